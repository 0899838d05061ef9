"""`toolverse diagnose RUN`: why a training run does not learn."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from toolverse.cli.output import JsonFlag, emit, stderr, table

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
        table(
            what,
            ("", "cause", "how much", "evidence", "what to do", "look at"),
            [
                (
                    finding.rank,
                    finding.cause,
                    f"{finding.count} of {finding.of} {finding.unit} ({finding.share:.0%})",
                    finding.evidence,
                    finding.fix,
                    ", ".join(f"{link}{place}" for place in finding.episodes[:3]),
                )
                for finding in findings
            ],
            to_stderr=json,
        )
    else:
        stderr.print(f"{what}: nothing wrong was found.", markup=False)
    if json:
        emit({"kind": found.kind, "episodes": len(found.episodes), "findings": [f.as_json() for f in findings]})
