"""`toolverse train`: the reference learner."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from toolverse.cli.live import live_view
from toolverse.cli.output import JsonFlag, emit, stderr
from toolverse.errors import InvalidInputError, MissingDependencyError

HELP = """Train a policy: behaviour cloning of the expert, then policy-gradient updates.

The success of the warm start and of the last checkpoint is measured on the same held-out instances.

Examples:

  toolverse train --recipe sokoban-tiny --out out/sokoban

  toolverse train --recipe sokoban-tiny --estimator gigpo --set group_size=8 --set credit.settings={}

  toolverse train --resume --out out/sokoban

  torchrun --nproc-per-node 8 -m toolverse train --recipe alfworld --set update.shard=true
"""


def train(
    recipe: Annotated[str, typer.Option(help="A bundled recipe, or the path of a .toml file.")] = "",
    model: Annotated[str, typer.Option(help="'tiny', or folder or name of a transformers causal LM.")] = "",
    lora: Annotated[
        int, typer.Option(help="Rank of LoRA adapters for a transformers model; 0 trains everything.", min=0)
    ] = 0,
    sampler: Annotated[
        str, typer.Option(metavar="local|URL", help="Who samples: this process, or a vLLM server (with --lora).")
    ] = "",
    estimator: Annotated[str, typer.Option(help="An estimator of `toolverse credit list`.")] = "",
    seed: Annotated[int | None, typer.Option(help="Decides every random choice of the run.", min=0)] = None,
    updates: Annotated[int | None, typer.Option(help="Number of updates; schedules span it.", min=0)] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder. Default: out/train/RECIPE-SEED.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out.")] = False,
    stop_after: Annotated[int | None, typer.Option(help="Stop after this update, to be resumed.", min=0)] = None,
    workers: Annotated[
        str, typer.Option(help="Who steps the environments: local, threads, processes or ray (with --sampler URL).")
    ] = "",
    log: Annotated[str, typer.Option(help="Metrics also to: tensorboard (OUT/tensorboard) or trackio.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print tokens, memory and time; train nothing.")] = False,
    threads: Annotated[int, typer.Option(help="CPU threads. More than one slows down on shared cores.", min=1)] = 1,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="FIELD=VALUE", help="A field of the recipe, such as update.epochs=4. Repeatable."
        ),
    ] = None,
    json: JsonFlag = False,
) -> None:
    try:
        from toolverse.learner.recipe import load, names, parse_changes
        from toolverse.learner.train import resume_run, set_threads, train_recipe
    except ImportError as error:
        raise MissingDependencyError(
            f"the learner is not installed ({error.name} is missing)",
            where="toolverse train",
            fix="pip install 'toolverse[learner]'",
        ) from error
    set_threads(threads)
    if resume:
        if out is None:
            raise InvalidInputError("--resume needs the run folder", where="--out", expected="the folder of the run")
        with live_view() as (tell, watchers), metrics_log(log, out) as logged:
            result = resume_run(out, stop_after=stop_after, progress=tell, watchers=[*watchers, *logged])
    else:
        if not recipe:
            raise InvalidInputError(
                "no recipe", where="--recipe", expected=f"one of {', '.join(names())}, or a .toml file"
            )
        changes = parse_changes(set_ or [])
        given = {
            "policy.model": model or None,
            "policy.lora": lora or None,
            "policy.sampler": sampler or None,
            "policy.workers": workers or None,
            "credit.estimator": estimator or None,
            "seed": seed,
            "updates": updates,
        }
        chosen = load(recipe, {**{key: value for key, value in given.items() if value is not None}, **changes})
        if dry_run:
            from toolverse.learner.estimate import estimate_run

            found = estimate_run(chosen)
            for line in found.lines():
                stderr.print(line, markup=False)
            if json:
                emit(found.as_json())
            found.refuse()
            return
        folder = out or Path("out/train") / f"{chosen.name}-{chosen.seed}"
        with live_view() as (tell, watchers), metrics_log(log, folder) as logged:
            result = train_recipe(chosen, folder, stop_after=stop_after, progress=tell, watchers=[*watchers, *logged])
        out = folder
    if os.environ.get("RANK", "0") != "0":
        return  # one of the processes of a distributed run talks
    low, high = result["interval"]
    stderr.print(
        f"success {result['success_start']:.1%} -> {result['success_end']:.1%} ({low:.1%} to {high:.1%}) "
        f"in {result['cpu_s']:.0f} CPU-seconds. Report: {out / 'report.html'}",
        markup=False,
    )
    if json:
        emit({**result, "out": str(out)})


@contextmanager
def metrics_log(kind: str, folder: Path) -> Iterator[list[Any]]:
    """Where the metrics of each update go besides `metrics.jsonl`."""
    if not kind:
        yield []
    elif kind == "tensorboard":
        from toolverse.learner.tensorboard import EventFile

        with EventFile(folder / "tensorboard") as events:
            yield [events]
    elif kind == "trackio":
        try:
            import trackio
        except ImportError as error:
            raise MissingDependencyError(
                "trackio is not installed", where="--log", fix="pip install trackio"
            ) from error
        trackio.init(project="toolverse", name=folder.name, resume="allow")
        try:
            yield [
                lambda line: trackio.log(
                    {k: v for k, v in line.items() if isinstance(v, int | float)}, step=line["update"]
                )
            ]
        finally:
            trackio.finish()
    else:
        raise InvalidInputError(f"{kind!r}", where="--log", expected="tensorboard or trackio")
