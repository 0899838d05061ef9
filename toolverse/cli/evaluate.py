"""`toolverse eval TARGET`: score a policy on a panel, or score and compare recorded runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolverse.cli.output import JsonFlag, SetOption, emit, settings, stderr, table
from toolverse.cli.players import (
    DialectOption,
    KeyOption,
    LogprobsOption,
    MaxTokensOption,
    ModelOption,
    ParallelOption,
    Player,
    PolicyOption,
    StallOption,
    TemperatureOption,
    WorkersOption,
    env_named,
)
from toolverse.errors import InvalidInputError

if TYPE_CHECKING:
    from toolverse.rollout.evaluation import Report
    from toolverse.rollout.jobs import Failed, Job
    from toolverse.rollout.tokens import TokenTrajectory

HELP = """Score a policy on a panel of instances, each attempted exactly --attempts times.

TARGET is an environment id, a dataset folder or file of tasks, a run folder of an earlier evaluation (which is then only
scored), or the folder of a training run (whose last checkpoint plays its held-out panel; --temperature 0 for its likeliest
words). Success comes with a 95 % interval, by
type and depth where the instances have them, and with pass@k.

Examples:

  toolverse eval Sokoban --policy reference --episodes 100

  toolverse eval datasets/mini --policy http://localhost:8000/v1 --model my-model --attempts 4 --out out/my-model

  toolverse eval out/my-model --against out/baseline
"""


def evaluate(
    ctx: typer.Context,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="Environment id, dataset folder, or run folder.")],
    policy: PolicyOption = "reference",
    model: ModelOption = "",
    attempts: Annotated[int, typer.Option(help="Episodes per instance.", min=1)] = 1,
    episodes: Annotated[
        int | None,
        typer.Option(
            help="Instances of an environment id (100), or of a training run's panel (as many as it used).", min=1
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="First seed of an environment id.", min=0)] = 0,
    split: Annotated[str | None, typer.Option(help="Only this split of a dataset.")] = None,
    limit: Annotated[int | None, typer.Option(help="Only the first tasks of a dataset.", min=1)] = None,
    k: Annotated[str, typer.Option("--k", help="Which pass@k, such as 1,4; default 1 and --attempts.")] = "",
    out: Annotated[Path | None, typer.Option(help="Run folder: trajectories, scores and a page.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Keep the episodes that --out holds already.")] = False,
    against: Annotated[Path | None, typer.Option(help="Compare with this run folder, instance by instance.")] = None,
    dialect: DialectOption = "openai",
    api_key_env: KeyOption = "OPENAI_API_KEY",
    temperature: TemperatureOption = None,
    max_tokens: MaxTokensOption = 1024,
    logprobs: LogprobsOption = False,
    workers: WorkersOption = "threads",
    parallel: ParallelOption = 8,
    stall_s: StallOption = 900.0,
    set_: SetOption = None,
    json: JsonFlag = False,
) -> None:
    from toolverse.rollout import evaluation
    from toolverse.rollout.files import TRAJECTORIES, read_header, read_trajectories, reproduction
    from toolverse.rollout.page import write_page

    if (Path(target) / "checkpoints").is_dir():
        _refuse_others(ctx, "episodes", "temperature", what="a training run, whose policy plays its own held-out panel")
        _training_run(Path(target), episodes, temperature, json)
        return
    ks = _numbers(k)
    baseline = list(read_trajectories(against)) if against is not None else []
    player = Player(policy, model, dialect, api_key_env, temperature, max_tokens, logprobs, workers, parallel, stall_s)
    jobs: list[Job] | None = None
    failures: list[Failed] = []
    counts: dict[str, int] = {}
    if (Path(target) / TRAJECTORIES).is_file():
        _refuse_others(ctx, "k", "against", "out", what="episodes that were played already: they are only scored")
        trajectories = list(read_trajectories(target))
    else:
        jobs = _panel(target, attempts, episodes or 100, seed, split, limit, settings(set_))
        player = player.introduced()
        header = reproduction(purpose="evaluation", target=target, policy=policy, model=player.model, attempts=attempts)
        path = out / TRAJECTORIES if out is not None else None
        collected, counts = player.play(jobs, out=path, resume=resume, header=header)
        trajectories, failures = collected.trajectories, collected.failures
    result: dict[str, Any] = {"target": target, "policy": player.name, "failed": len(failures)}
    if not trajectories:
        if json:
            emit({**result, "episodes": 0, "missing": len(jobs or ())})
        stderr.print("No episode could be played.")
        sys.exit(1)
    if counts:
        result["endpoint"] = counts
    report = evaluation.evaluate(trajectories, jobs=jobs, ks=ks)
    _show(report, trajectories, to_stderr=json)
    result |= report.as_json()
    if against is not None:
        comparison = evaluation.compare(baseline, trajectories)
        statement = comparison.statement(str(against), str(out or target))
        stderr.print(statement, markup=False)
        result["comparison"] = {
            "statement": statement,
            "difference": comparison.difference.as_json(),
            "p_value": comparison.p_value,
            "instances": comparison.instances,
        }
    if out is not None:
        title = f"Evaluation of {trajectories[0].policy}"
        made_by = read_header(out) if (out / TRAJECTORIES).is_file() else {}
        page = write_page(trajectories, out / "index.html", title=title, header=made_by)
        stderr.print(f"Every episode, turn by turn: {page}", markup=False)
        result["page"] = str(page)
    if json:
        emit(result)
    if report.missing:
        stderr.print(f"{report.missing} episodes of the panel could not be played: the rates above leave them out.")
        sys.exit(1)


def _numbers(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all(part.isdigit() and int(part) > 0 for part in parts):
        raise InvalidInputError(f"{text!r}", where="--k", expected="numbers of attempts, such as 1,4")
    return [int(part) for part in parts]


def _refuse_others(ctx: typer.Context, *heeded: str, what: str) -> None:
    """An option that would change nothing here was meant to change something.

    Raises:
        InvalidInputError: an option was given that is none of these, and not `--json` either.
    """
    given = []
    for option in ctx.command.params:
        source = ctx.get_parameter_source(str(option.name))
        if source is not None and source.name == "COMMANDLINE":
            given.append(option)
    if unheard := [max(o.opts, key=len) for o in given if o.name not in {"target", "json", *heeded}]:
        raise InvalidInputError(
            f"{', '.join(unheard)}: not for {what}",
            where=ctx.params["target"],
            expected=", ".join(f"--{name}" for name in (*heeded, "json")),
        )


def _training_run(folder: Path, episodes: int | None, temperature: float | None, json: bool) -> None:
    from toolverse.learner.train import evaluate_run

    found = evaluate_run(folder, episodes=episodes, temperature=temperature)
    low, high = found["interval"]
    stderr.print(
        f"success {found['success']:.1%} [{low:.1%}, {high:.1%}] on {found['episodes']} held-out instances, "
        f"after update {found['update']}",
        markup=False,
    )
    if json:
        emit({"target": str(folder), **found})


def _panel(
    target: str,
    attempts: int,
    episodes: int,
    seed: int,
    split: str | None,
    limit: int | None,
    env_settings: dict[str, Any],
) -> list[Job]:
    from itertools import islice

    from toolverse.io import iter_tasks
    from toolverse.rollout.evaluation import env_panel, task_panel

    if Path(target).exists():
        return task_panel(islice(iter_tasks(target, split=split), limit), attempts=attempts, settings=env_settings)
    return env_panel(env_named(target), episodes=episodes, seed=seed, attempts=attempts, settings=env_settings)


def _show(report: Report, trajectories: list[TokenTrajectory], *, to_stderr: bool) -> None:
    columns = ("", "instances", "episodes", "success [95 %]", "score", "turns", "tokens")
    tables = {f"{trajectories[0].policy}": [report.overall], **{f"by {name}": t for name, t in report.tables.items()}}
    for title, rows in tables.items():
        table(
            title,
            columns,
            [
                (
                    row.name,
                    row.instances,
                    row.episodes,
                    row.success,
                    f"{row.mean_score:.2f}",
                    f"{row.mean_turns:.1f}",
                    f"{row.tokens:.0f}" if row.tokens else "",
                )
                for row in rows
            ],
            to_stderr=to_stderr,
        )
    rates = ", ".join(f"pass@{k} {value:.1%}" for k, value in report.pass_at.items())
    ends = ", ".join(f"{n} {name}" for name, n in report.endings.items())
    stderr.print(
        f"{rates}. Episodes ended: {ends}. Parse errors in {report.parse_error_rate:.1%} of turns.", markup=False
    )
