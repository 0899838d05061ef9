"""Train the tiny recipes over seeds, and say what came out: success before and after with Wilson intervals, CPU-seconds.

    python tests/benchmarks/recipes.py                                # all of them, three seeds: `make recipes`
    python tests/benchmarks/recipes.py --recipe sokoban-tiny --seeds 1 --out out/try --json out/try.json

Resumable: a finished run is read, an unfinished one goes on from its newest checkpoint. The JSON holds the curves too, and the
figure is drawn from it. Each run is a process of its own on one thread, so that its CPU-seconds are its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from toolverse.learner.recipe import load, parse_changes

HERE = Path(__file__).resolve().parent
MEASURED = ("sokoban-tiny", "alfworld-tiny", "webshop-tiny", "mcp-tiny")
"""Recipes for a CPU."""


def one(name: str, seed: int, folder: Path, changes: list[str]) -> dict[str, Any]:
    """The result of one run (trained, continued or read), and its curve: (update, success on the held-out panel)."""
    out = folder / f"{name}-{seed}"
    if not (out / "result.json").is_file():
        command = [sys.executable, "-m", "toolverse", "train", "--out", str(out)]
        if (out / "checkpoints").is_dir() and any((out / "checkpoints").glob("[0-9]*")):
            command += ["--resume"]
        else:
            command += ["--recipe", name, "--seed", str(seed)]
            command += [word for change in changes for word in ("--set", change)]
        subprocess.run(command, check=True)
    result = dict(json.loads((out / "result.json").read_text(encoding="utf-8")))
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    seen = [[line["update"], line["held_out"]] for line in lines if "held_out" in line]
    curve = [[0, result["success_start"]], *seen, [result["updates"], result["success_end"]]]
    return {**result, "curve": curve, "train": [round(line["success"], 4) for line in lines]}


def sentence(r: dict[str, Any]) -> str:
    """One run, for people."""
    start, end = r["interval_start"], r["interval"]
    score = f"mean score {r['score_start']:.2f} -> {r['score_end']:.2f}, " if "score_end" in r else ""
    return (
        f"{r['recipe']:14} seed {r['seed']}: {r['success_start']:.1%} [{start[0]:.1%}, {start[1]:.1%}] -> "
        f"{r['success_end']:.1%} [{end[0]:.1%}, {end[1]:.1%}], {score}{r['updates']} updates, {r['cpu_s']:.0f} CPU-s"
    )


def draw(results: list[dict[str, Any]], file: Path) -> None:
    """One panel per recipe: each seed's held-out curve, with the Wilson intervals of its ends; dashed, the mean scores of the
    ends where those say more."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    names = list(dict.fromkeys(r["recipe"] for r in results))
    figure, axes = plt.subplots(1, len(names), figsize=(3.6 * len(names), 3.4), sharey=True, squeeze=False)
    for axis, name in zip(axes[0], names, strict=True):
        for color, r in enumerate(x for x in results if x["recipe"] == name):
            axis.plot(range(1, len(r["train"]) + 1), r["train"], color=f"C{color}", alpha=0.25, lw=1)
            axis.plot(*zip(*r["curve"], strict=True), "o-", ms=3, color=f"C{color}", label=f"seed {r['seed']}")
            for at, value, (low, high) in (
                (0, r["success_start"], r["interval_start"]),
                (r["updates"], r["success_end"], r["interval"]),
            ):
                axis.errorbar(at, value, [[value - low], [high - value]], color=f"C{color}", capsize=3)
            if r.get("score_end", r["success_end"]) - r["success_end"] > 0.02:  # half-right is not nothing there
                ends = [0, r["updates"]], [r["score_start"], r["score_end"]]
                axis.plot(*ends, "s--", ms=4, color=f"C{color}", label="mean score" if color == 0 else None)
        axis.set(title=name, xlabel="update", ylim=(-0.02, 1.02))
        axis.grid(alpha=0.3)
        axis.legend(loc="best", fontsize=8)
    axes[0][0].set_ylabel("sampled success, held-out instances")
    figure.tight_layout()
    figure.savefig(file, dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--recipe", action="append", help=f"repeatable; default: {', '.join(MEASURED)}")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("out/recipes"), help="folder of the runs")
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="FIELD=VALUE")
    parser.add_argument("--json", type=Path, default=HERE / "results" / "recipes.json")
    parser.add_argument("--figure", type=Path, help="draw the curves here")
    arguments = parser.parse_args()
    changes = parse_changes(arguments.changes)
    chosen = arguments.recipe or list(MEASURED)
    for name in chosen:
        load(name, changes)  # a mistake shows before anything is trained
    found = [one(name, seed, arguments.out, arguments.changes) for name in chosen for seed in range(arguments.seeds)]
    print("\n".join(map(sentence, found)))
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text("[\n" + ",\n".join(json.dumps(r) for r in found) + "\n]\n", encoding="utf-8")
    if arguments.figure is not None:
        draw(found, arguments.figure)


if __name__ == "__main__":
    main()
