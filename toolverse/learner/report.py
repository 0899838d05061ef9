"""What a run looks like: `curve.png`, and `report.html`, which needs no other file."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from toolverse.learner.recipe import Recipe

Lines = Sequence[Mapping[str, Any]]

_PANELS = (
    ("score", "mean score while training"),
    ("entropy", "entropy, nats per token"),
    ("explained_variance", "explained variance of the critic"),
    ("kl", "KL(old || new) per update"),
    ("clip_fraction", "share of clipped ratios"),
    ("turns", "turns per episode"),
)


def write_report(out: Path, recipe: Recipe, lines: Lines, result: Mapping[str, Any]) -> Path:
    """Write both files; returns the page."""
    draw_curve(out / "curve.png", recipe, lines, result)
    page = out / "report.html"
    page.write_text(_page(out / "curve.png", recipe, lines, result), encoding="utf-8")
    return page


def draw_curve(file: Path, recipe: Recipe, lines: Lines, result: Mapping[str, Any]) -> None:
    """Success on the held-out panel (with the intervals of start and end) above, what the update step says below."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import MaxNLocator

    figure = plt.figure(figsize=(10, 7), layout="constrained")
    grid = figure.add_gridspec(4, 3)
    axis = figure.add_subplot(grid[:2, :])
    updates = [line["update"] for line in lines]
    axis.plot(updates, [line["success"] for line in lines], color="0.7", lw=1, label="training instances, per update")
    seen = [(line["update"], line["held_out"]) for line in lines if "held_out" in line]
    points = [(0, result["success_start"]), *seen, (result["updates"], result["success_end"])]
    axis.plot(*zip(*points, strict=True), "o-", color="C0", label="held-out panel, sampled")
    for at, key, value in ((0, "interval_start", "success_start"), (result["updates"], "interval", "success_end")):
        low, high = result[key]
        axis.errorbar(at, result[value], [[result[value] - low], [high - result[value]]], color="C0", capsize=4)
    axis.set(ylim=(-0.02, 1.02), xlabel="update", ylabel="success")
    axis.set_title(f"{recipe.name}: {recipe.credit.estimator}, seed {recipe.seed}; bars are Wilson 95 % intervals")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.grid(alpha=0.3)
    axis.legend(loc="best")
    for place, (key, title) in enumerate(_PANELS):
        small = figure.add_subplot(grid[2 + place // 3, place % 3])
        values = [(line["update"], line[key]) for line in lines if line.get(key) is not None]
        if values:
            small.plot(*zip(*values, strict=True), color="C1", lw=1)
        small.xaxis.set_major_locator(MaxNLocator(integer=True))
        small.set_title(title, fontsize=9)
        small.grid(alpha=0.3)
    figure.savefig(file, dpi=110)
    plt.close(figure)


def _page(curve: Path, recipe: Recipe, lines: Lines, result: Mapping[str, Any]) -> str:
    picture = base64.b64encode(curve.read_bytes()).decode("ascii")
    rows = [
        ("success before", _rate(result["success_start"], result["interval_start"])),
        ("success after", _rate(result["success_end"], result["interval"])),
        ("mean score before", _rate(result["score_start"], result["score_interval_start"])),
        ("mean score after", _rate(result["score_end"], result["score_interval"])),
        ("held-out episodes", result["episodes"]),
        ("updates", result["updates"]),
        ("CPU-seconds", result["cpu_s"]),
    ]
    told: dict[str, int] = {}
    for line in lines:
        for alarm in line["alarms"]:
            told.setdefault(alarm, line["update"])
    warnings = "".join(f"<li>update {at}: {html.escape(said)}</li>" for said, at in told.items())
    table = "".join(f"<tr><th>{name}</th><td>{html.escape(str(value))}</td></tr>" for name, value in rows)
    body = (
        f"<h1>{html.escape(recipe.name)}</h1><p>The recipe: {html.escape(recipe.status)}</p><table>{table}</table>"
        f'<img alt="learning curve" src="data:image/png;base64,{picture}">'
        f"<h2>Alarms</h2><ul>{warnings or '<li>none</li>'}</ul>"
        f"<h2>Recipe</h2><pre>{html.escape(recipe.model_dump_json(indent=1))}</pre>"
    )
    style = (
        "body{font:15px system-ui;max-width:64em;margin:2em auto}img{width:100%}th{text-align:left;padding-right:2em}"
        "pre{white-space:pre-wrap}"
    )
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(recipe.name)}</title>'
    return f"{head}<style>{style}</style><body>{body}</body></html>"


def _rate(value: float, interval: Sequence[float]) -> str:
    return f"{value:.1%} ({interval[0]:.1%} to {interval[1]:.1%})"
