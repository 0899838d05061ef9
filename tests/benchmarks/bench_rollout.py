"""What collecting costs on top of playing: per turn, per concurrent episode, per batch, per page.

Overheads are CPU time of this process, medians over repeats, with the environment's own time subtracted; concurrency is wall
time against the ideal (the delays themselves): run that part on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rollout_toys import corridor

from toolverse.envs.lookup import make_chat_env
from toolverse.rollout import play
from toolverse.rollout.batch import Batched, play_batch
from toolverse.rollout.collect import collect
from toolverse.rollout.crews import Crew, CrewSettings, processes, threads
from toolverse.rollout.jobs import Job, Played
from toolverse.rollout.page import write_page
from toolverse.rollout.policies import ScriptedPolicy
from toolverse.rollout.tokens import TokenTrajectory, TokenTurn, TurnTokens, samples

ROOT = Path(__file__).resolve().parents[2]
ENV = "rollout_toys:test/Corridor-v0"
TURNS = 40
TICKS = os.sysconf("SC_CLK_TCK")


class Pacing:
    """Right and left for ever: an episode lasts until its limit."""

    name = "pacing"

    def begin(self, env: Any, seed: int) -> None:
        self._right = False

    def act(self, messages: Any, info: Any) -> str:
        self._right = not self._right
        return "right" if self._right else "left"


def cpu(function: Callable[[], Any], repeats: int = 7) -> float:
    """Median CPU seconds."""
    times = []
    for _ in range(repeats):
        started = time.process_time()
        function()
        times.append(time.process_time() - started)
    return median(times)


def bare(episodes: int) -> None:
    env = corridor(max_turns=TURNS)
    for seed in range(episodes):
        env.reset(seed=seed, options={"length": 3})
        over, right = False, True
        while not over:
            *_, terminated, truncated, _ = env.step("right" if right else "left")
            over, right = terminated or truncated, not right


def jobs(episodes: int, **settings: Any) -> list[Job]:
    options = {"length": 3}
    return [Job(i, ENV, i, {"max_turns": TURNS, **settings}, options) for i in range(episodes)]


def overhead_per_turn() -> dict[str, float]:
    """µs per turn of each way of playing, above the environment itself."""
    n = 50
    world = cpu(lambda: bare(n))

    def per_turn(function: Callable[[], Any]) -> float:
        return (cpu(function) - world) / (n * TURNS) * 1e6

    env = corridor(max_turns=TURNS)
    envs = [corridor(max_turns=TURNS) for _ in range(n)]
    with tempfile.TemporaryDirectory() as folder:
        return {
            "environment itself": world / (n * TURNS) * 1e6,
            "play": per_turn(lambda: [play(env, Pacing(), seed=s, options={"length": 3}) for s in range(n)]),
            "batch of 50": per_turn(
                lambda: play_batch(envs, Batched([Pacing() for _ in range(n)]), range(n), options=[{"length": 3}] * n)
            ),
            "threads (8)": per_turn(lambda: list(threads(jobs(n), Pacing, CrewSettings(workers=8)))),
            "threads (8), to a file": per_turn(
                lambda: collect(jobs(n), Pacing, settings=CrewSettings(workers=8), path=Path(folder) / "t.jsonl")
            ),
        }


class Asking:
    """One and the same question, again and again."""

    name = "asking"
    waits_openly = True

    def begin(self, env: Any, seed: int) -> None:
        pass

    def act(self, messages: Any, info: Any) -> str:
        return '<tool_call>\n{"name": "people__find_teams", "arguments": {"department": "I"}}\n</tool_call>'


def spent() -> tuple[float, float]:
    """User and system seconds of this process and of its children that run (of these on Linux only)."""
    user, system = os.times()[:2]
    for child in multiprocessing.active_children():
        stat = Path(f"/proc/{child.pid}/stat")
        if stat.exists():
            fields = stat.read_text().rpartition(")")[2].split()
            user, system = user + int(fields[11]) / TICKS, system + int(fields[12]) / TICKS
    return user, system


def concurrency(episodes: int = 256, delay_s: float = 0.05, rounds: int = 3) -> dict[str, float]:
    """Episodes on MCP servers whose every call takes `delay_s`, always so many at a time: of 10 turns and of 40 (a long task),
    in one process and shared by one process per CPU.

    A round is as many episodes as are played at a time, over `rounds` rounds. Two rounds before (processes start, worlds open)
    and one after (not all workers are busy any more) do not count. The ideal is the delays themselves. The floor of this machine
    is the CPU time that a round took, spread over all that can run at a time (one core for one process): below it, no
    scheduling helps.
    """
    world = make_chat_env("MCP", servers=["people"])
    world.reset(seed=0)
    task = world.unwrapped.task.model_dump(mode="json")  # type: ignore[attr-defined]
    world.close()

    def measured(crew: Crew, turns: int) -> list[float]:
        """Wall, user and system seconds of a round."""
        settings = {"max_turns": turns, "delay_s": delay_s, "servers": ["people"]}
        work = [
            Job(i, "rollout_toys:test/SlowMcp-v0", 0, settings, {"task": task}) for i in range(episodes * (rounds + 3))
        ]
        marks: list[tuple[float, ...]] = []
        for count, result in enumerate(crew(work, Asking, CrewSettings(workers=episodes)), start=1):
            assert isinstance(result, Played)
            assert len(result.trajectory.turns) == turns
            if count in (2 * episodes, (2 + rounds) * episodes):
                marks.append((time.monotonic(), *spent()))
        return [(after - before) / rounds for before, after in zip(*marks, strict=True)]

    out: dict[str, float] = {}
    for turns in (10, 40):
        for name, crew, cores in (("threads", threads, 1), ("processes", processes, os.cpu_count() or 1)):
            wall, user, system = measured(crew, turns)
            ideal, count = turns * delay_s, episodes * turns
            out |= {
                f"{turns} turns, {name}: a round, s (ideal {ideal:g})": wall,
                f"{turns} turns, {name}: user ms per turn": user / count * 1e3,
                f"{turns} turns, {name}: system ms per turn": system / count * 1e3,
                f"{turns} turns, {name}: floor of this machine, s": max(ideal, (user + system) / cores),
                f"{turns} turns, {name}: ratio to the ideal": wall / ideal,
            }
    return out


def per_episode() -> dict[str, float]:
    """ms per episode of crossing a process border, workers started already."""
    out: dict[str, float] = {}
    for name, crew in {"processes": processes, **_ray()}.items():
        marks: list[float] = []
        for _ in crew(jobs(400), Pacing, CrewSettings(workers=2)):
            marks.append(time.monotonic())
        # The first results wait for the workers to start.
        out[name] = (marks[-1] - marks[200]) / (len(marks) - 201) * 1e3
    out["one episode itself"] = cpu(lambda: bare(20)) / 20 * 1e3
    return out


def _ray() -> dict[str, Any]:
    try:
        import ray  # noqa: F401
    except ImportError:
        return {}
    from toolverse.rollout.crews import ray_workers

    # Its workers import the toy worlds as well.
    os.environ["PYTHONPATH"] = os.pathsep.join(map(str, (ROOT, ROOT / "tests")))
    return {"ray": ray_workers}


def tokens_and_page() -> dict[str, float]:
    turns = tuple(
        TokenTurn(
            index=i,
            parent=i - 1 if i else None,
            action="right",
            observation="You stand somewhere, and it is dark. " * 4,
            tokens=TurnTokens(context_ids=(1,) * 60, sampled_ids=(2,) * 40, logprobs=(-0.5,) * 40, restart=i == 0),
        )
        for i in range(20)
    )
    trajectory = TokenTrajectory(env_id="e", turns=turns)
    out = {
        "samples of a 2,000-token episode, us per token": cpu(lambda: list(samples(trajectory))) / 2000 * 1e6,
    }
    many = [play(corridor(max_turns=8), ScriptedPolicy(["right", "left"] * 4), seed=i) for i in range(100)] * 100
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "p.html"
        out["page of 10,000 episodes, CPU s"] = cpu(lambda: write_page(many, page, title="t"), repeats=1)
        out["page of 10,000 episodes, MB"] = page.stat().st_size / 1e6
        if opened := _browse(page, Path(folder)):
            out["until a browser shows it and one episode, s (wall)"] = opened
    return out


def _browse(page: Path, folder: Path) -> float | None:
    """Wall seconds of the page above those of an empty one."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        return None
    blank = folder / "blank.html"
    blank.write_text("<!doctype html><title>x</title>")

    def load(file: Path, place: str) -> float:
        flags = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-sync"
        started = time.monotonic()
        subprocess.run(
            [browser, *flags.split(), f"--user-data-dir={folder / 'profile'}", "--dump-dom", f"file://{file}{place}"],
            capture_output=True,
            check=True,
            timeout=120,
        )
        return time.monotonic() - started

    load(blank, "")
    return median(load(page, "#7000") for _ in range(3)) - median(load(blank, "") for _ in range(3))


SECTIONS: dict[str, tuple[str, Callable[[], dict[str, float]]]] = {
    "overhead": ("overhead per turn, us (CPU)", overhead_per_turn),
    "concurrency": ("256 MCP episodes at a time, a tool of 50 ms", concurrency),
    "crossing": ("per episode across processes, ms (wall)", per_episode),
    "page": ("tokens and page", tokens_and_page),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", choices=list(SECTIONS), help="measure only this")
    given = parser.parse_args()
    results = {title: measure() for name, (title, measure) in SECTIONS.items() if given.only in (None, name)}
    for title, rows in results.items():
        print(title)
        for name, value in rows.items():
            print(f"  {name:<60} {value:10.3f}")
    if given.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
