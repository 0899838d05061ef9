"""`toolverse diagnose RUN`: why a training run does not learn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from toolverse.cli.output import JsonFlag, emit, people, stderr

if TYPE_CHECKING:
    from toolverse.rollout.diagnosis import Finding

HELP = """Look for what is wrong with a training run, and rank the causes.

RUN is a run folder of toolverse (trajectories.jsonl, and where there are: eval.jsonl, samples.jsonl, metrics.jsonl), TRL's
output folder with logged completions, or the rollout dumps of verl.

Example: toolverse diagnose out/my-run
"""


def diagnose(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder, or one dump file.")],
    page: Annotated[bool, typer.Option("--page", help="Write the page that the episode links lead to.")] = False,
    json: JsonFlag = False,
) -> None:
    from toolverse.rollout.diagnosis import diagnose
    from toolverse.rollout.files import read_header, trajectory_file
    from toolverse.rollout.page import write_page
    from toolverse.rollout.runs import read_run

    found = read_run(run)
    findings = diagnose(found)
    link = "episode "
    trajectories = [episode.trajectory for episode in found.episodes if episode.trajectory is not None]
    if page and trajectories:
        target = trajectory_file(run).with_name("index.html")
        link = f"{write_page(trajectories, target, title=run.name, header=read_header(run))}#"
    what = f"{len(found.episodes)} episodes of a {found.kind} run"
    if findings:
        _show(what, findings, link, people(to_stderr=json))
    else:
        stderr.print(f"{what}: nothing wrong was found.", markup=False)
    if json:
        emit({"kind": found.kind, "episodes": len(found.episodes), "findings": [f.as_json() for f in findings]})


def _show(what: str, findings: Sequence[Finding], link: str, console: Console) -> None:
    """The worst first; sentences, since a table of them is unreadable in eighty columns."""
    console.print(f"{what}, the worst first:", markup=False)
    for number, finding in enumerate(findings, start=1):
        much = f"{finding.count} of {finding.of} {finding.unit} ({finding.share:.0%})"
        console.print()
        console.print(Text.assemble(f"{number}. ", (finding.cause, "bold"), f" ({finding.rank}): {much}"))
        places = ", ".join(f"{link}{place}" for place in finding.episodes[:3])
        for line in (finding.evidence, f"To do: {finding.fix}", f"Look at: {places}" if places else ""):
            if line:
                console.print(Padding(Text(line), (0, 0, 0, 3)))
