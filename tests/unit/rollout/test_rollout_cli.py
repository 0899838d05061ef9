"""The verbs: eval, diagnose, view, export."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from rollout_stub import Stub, completion
from typer.testing import CliRunner

from toolverse.cli import app, view
from toolverse.io import load_tasks, write_tasks
from toolverse.rollout import read_trajectories
from toolverse.types import Task

RUNNER = CliRunner()
ENV = "rollout_toys:test/Corridor-v0"


def run(*words: str, code: int = 0) -> dict[str, Any]:
    done = RUNNER.invoke(app, [*words, "--json"])
    assert done.exit_code == code, done.output
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def test_eval_plays_a_panel_and_writes_a_run_that_eval_can_read(tmp_path: Path) -> None:
    out = tmp_path / "good"
    scored = run("eval", ENV, "--policy", "reference", "--episodes", "4", "--attempts", "2", "--out", str(out))
    assert (scored["instances"], scored["episodes"], scored["success"]["value"]) == (4, 8, 1.0)
    assert scored["pass_at"] == {"1": 1.0, "2": 1.0}
    assert (out / "index.html").is_file()
    again = run("eval", str(out))
    refused = RUNNER.invoke(app, ["eval", str(out), "--episodes", "8", "--policy", "noop"])
    assert "--policy, --episodes: not for episodes that were played already" in str(refused.exception)
    assert again["success"] == scored["success"]
    worse = run("eval", ENV, "--policy", "noop", "--episodes", "4", "--set", "max_turns=3", "--against", str(out))
    assert worse["comparison"]["difference"]["value"] == -1.0
    assert "worse than" in worse["comparison"]["statement"] or "No significant" in worse["comparison"]["statement"]


def test_eval_scores_a_served_model_on_a_dataset_in_one_command(tmp_path: Path) -> None:
    tasks = [Task(task_id=f"t{i}", env_id=ENV, seed=i, family_id="walk") for i in range(3)]
    write_tasks(tasks, tmp_path / "data" / "test-00000-of-00001.parquet")
    with Stub(lambda n, body: completion("right")).running() as stub:
        scored = run("eval", str(tmp_path / "data"), "--policy", stub.url, "--model", "mine", "--split", "test")
        assert {body["model"] for body in stub.bodies} == {"mine"}
    assert (scored["policy"], scored["episodes"], scored["success"]["value"]) == ("mine", 3, 1.0)
    assert scored["tokens"] > 0


def test_eval_says_so_if_the_server_fails_and_does_not_call_it_a_failed_task() -> None:
    with Stub(lambda n, body: 401).running() as stub:
        scored = run("eval", ENV, "--policy", stub.url, "--model", "m", "--episodes", "2", code=1)
    assert (scored["failed"], scored["episodes"], scored["missing"]) == (2, 0, 2)


def test_view_writes_one_page_about_several_runs(tmp_path: Path) -> None:
    for name, policy in (("a", "reference"), ("b", "noop")):
        run("eval", ENV, "--policy", policy, "--episodes", "2", "--set", "max_turns=4", "--out", str(tmp_path / name))
    shown = run("view", str(tmp_path / "a"), str(tmp_path / "b"), "--out", str(tmp_path / "both.html"))
    assert shown["episodes"] == 4
    assert "<title>a, b</title>" in (tmp_path / "both.html").read_text()


def test_diagnose_and_export_read_what_eval_wrote(tmp_path: Path) -> None:
    out = tmp_path / "run"
    run(
        "eval", ENV, "--policy", "noop", "--episodes", "8", "--attempts", "2", "--set", "max_turns=3", "--out", str(out)
    )
    found = run("diagnose", str(out), "--page")
    assert {"zero-variance groups", "parse errors"} <= {f["cause"] for f in found["findings"]}
    assert found["episodes"] == 16
    out = tmp_path / "good"
    run("eval", ENV, "--policy", "reference", "--episodes", "3", "--out", str(out))
    written = run("export", str(out), "--to", "sft", "--out", str(tmp_path / "s.jsonl"))
    assert written["rows"] == len((tmp_path / "s.jsonl").read_text().splitlines()) > 0


def test_the_page_is_served_and_nothing_else_is(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("the page")
    (tmp_path / "secret").write_text("the key")
    with view.server_of(tmp_path / "index.html", 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        assert [httpx.get(address + path).text for path in ("/", "/secret")] == ["the page"] * 2
        server.shutdown()
        thread.join()


def test_rollout_keeps_the_successes_of_several_attempts_for_export(tmp_path: Path) -> None:
    out = tmp_path / "good.jsonl"
    words = ["rollout", ENV, "--policy", "noisy:0.5", "--episodes", "4", "--attempts", "4", "--out", str(out)]
    played = run(*words, "--keep", "success")
    kept = list(read_trajectories(out))
    assert played["episodes"] == 16
    assert 0 < len(kept) == played["kept"] < 16
    assert all(trajectory.success for trajectory in kept)
    assert 0 < run("export", str(out), "--to", "sft", "--out", str(tmp_path / "s.jsonl"))["rows"] <= len(kept)
    assert run("rollout", ENV, "--agent", "reference", "--episodes", "2")["success_rate"] == 1.0


def test_calibrate_writes_rates_and_the_trainable_subset(tmp_path: Path) -> None:
    write_tasks([Task(task_id=f"t{i}", env_id=ENV, seed=i) for i in range(4)], tmp_path / "d" / "train-0.parquet")
    words = [
        "tasks",
        "calibrate",
        str(tmp_path / "d"),
        "--out",
        str(tmp_path / "c"),
        "--policy",
        "noisy:0.5",
        "--attempts",
        "6",
    ]
    result = run(*words)
    measured, subset = load_tasks(tmp_path / "c"), load_tasks(tmp_path / "c" / "trainable")
    assert [task.difficulty.agents[0].n for task in measured] == [6] * 4
    assert len(subset) == result["trainable"]
    assert all(0.1 <= task.difficulty.agents[0].pass_rate <= 0.9 for task in subset)
    assert RUNNER.invoke(app, [*words, "--keep", "2:1"]).exit_code == 1


@pytest.mark.parametrize("words", [("eval", "Nowhere-v0"), ("eval", ENV, "--policy", "nobody")])
def test_mistakes_are_errors_with_a_way_out(words: tuple[str, ...]) -> None:
    done = RUNNER.invoke(app, list(words))
    assert done.exit_code == 1
    assert done.exception is not None
    assert "expected" in str(done.exception)


def test_ctrl_c_at_a_terminal_leaves_what_was_played_and_resume_plays_the_rest(tmp_path: Path) -> None:
    out = tmp_path / "t.jsonl"
    tests = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-m", "toolverse", "rollout", "rollout_toys:test/Corridor-v0", "--episodes", "60"]
    command += ["--set", "delay_s=0.05", "--workers", "processes", "--parallel", "2", "--out", str(out)]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tests.parent), str(tests)])}
    # As in a terminal, the signal reaches the whole group: the workers too.
    running = subprocess.Popen(command, env=environ, start_new_session=True, stderr=subprocess.PIPE, text=True)
    while not (out.exists() and out.read_bytes().count(b"\n") > 5):
        assert running.poll() is None
        threading.Event().wait(0.02)
    os.killpg(running.pid, signal.SIGINT)
    _, said = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "--resume goes on from there" in " ".join(said.split())
    kept = len(list(read_trajectories(out)))
    assert 5 <= kept < 60
    done = subprocess.run([*command, "--resume", "--json"], env=environ, capture_output=True, text=True, check=True)
    result = json.loads(done.stdout.splitlines()[-1])
    assert (result["reused"], result["episodes"]) == (kept, 60)
    assert [t.seed for t in read_trajectories(out)] == list(range(60))


def refused(*words: str) -> str:
    done = RUNNER.invoke(app, words)
    assert done.exit_code != 0
    return str(done.exception)


def test_episodes_that_were_paid_for_are_not_overwritten(tmp_path: Path) -> None:
    panel = ("eval", ENV, "--episodes", "3", "--out", str(tmp_path / "run"))
    run(*panel)
    before = (tmp_path / "run" / "trajectories.jsonl").read_bytes()
    assert "holds episodes already. Add --resume" in refused(*panel)
    assert (tmp_path / "run" / "trajectories.jsonl").read_bytes() == before
    assert run(*panel, "--resume")["episodes"] == 3


def test_a_server_with_one_model_needs_no_name_for_it_and_its_troubles_are_told() -> None:
    def script(number: int, body: dict[str, Any]) -> Any:
        assert body["model"] == "the-one"
        return 429 if number == 1 else completion("right")

    with Stub(script, models=["the-one"]).running() as stub:
        done = RUNNER.invoke(app, ["eval", ENV, "--policy", stub.url, "--episodes", "2", "--json"])
    assert done.exit_code == 0, done.output
    scored = json.loads(done.stdout.splitlines()[-1])
    assert (scored["policy"], scored["success"]["value"]) == ("the-one", 1.0)
    assert (scored["endpoint"]["retry_busy"], scored["endpoint"]["requests"]) == (1, scored["endpoint"]["answers"] + 1)
    assert "1 busy (429)" in " ".join(done.stderr.split())


def test_what_can_not_work_is_said_before_anything_is_played(tmp_path: Path) -> None:
    with Stub(lambda number, body: completion("right"), models=["a", "b"]).running() as stub:
        assert "expected one of a, b" in refused("eval", ENV, "--policy", stub.url)
        gone = stub.url
    assert "nothing answers" in refused("eval", ENV, "--policy", gone, "--model", "m")
    assert "no such file" in refused("eval", ENV, "--against", str(tmp_path / "nowhere"))
    assert "numbers of attempts" in refused("eval", ENV, "--k", "1,all")
    assert "no such file or folder" in refused("eval", str(tmp_path / "no-dataset"))
    assert "no such file or folder" in refused("rollout", "tasks.parquet")
