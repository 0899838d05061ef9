"""Options that several verbs share about who plays and how many at a time, and the progress they show."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolverse.cli.output import stderr
from toolverse.errors import InvalidInputError, NotFoundError

if TYPE_CHECKING:
    from toolverse.rollout.collect import Collection, Tally
    from toolverse.rollout.endpoint import EndpointSettings
    from toolverse.rollout.jobs import Job, Result
    from toolverse.types import JSON

PolicyOption = Annotated[
    str,
    typer.Option(
        "--policy",
        metavar="WHO",
        help="reference, random, noop, noisy:0.2, replay:FILE, or the url of an OpenAI-compatible server (http://host:8000/v1).",
    ),
]
ModelOption = Annotated[
    str, typer.Option("--model", help="Name of the model, if --policy is a server with more than one.")
]
DialectOption = Annotated[str, typer.Option(help="Extensions of the server: openai (none), vllm, sglang, llamacpp.")]
KeyOption = Annotated[str, typer.Option("--api-key-env", help="Environment variable that holds the server's key.")]
TemperatureOption = Annotated[
    float | None, typer.Option(help="Sampling temperature; that of the server (or training run) if absent.")
]
MaxTokensOption = Annotated[int, typer.Option(help="Tokens per message.", min=1)]
LogprobsOption = Annotated[bool, typer.Option("--logprobs", help="Keep log-probabilities, and token ids where told.")]
WorkersOption = Annotated[str, typer.Option(help="threads, processes or ray.")]
ParallelOption = Annotated[int, typer.Option(help="Episodes at a time.", min=1)]
StallOption = Annotated[float, typer.Option("--stall-s", help="Give an episode up after this long without a turn.")]


@dataclass(frozen=True)
class Player:
    """Who plays, and how: what the options of a verb name.

    Args:
        who: what `--policy` says; `model` is needed for a server that lists several models.
    """

    who: str
    model: str = ""
    dialect: str = "openai"
    api_key_env: str = "OPENAI_API_KEY"
    temperature: float | None = None
    max_tokens: int = 1024
    logprobs: bool = False
    workers: str = "threads"
    parallel: int = 8
    stall_s: float = 900.0

    @property
    def name(self) -> str:
        """What reports call it before it has played."""
        return self.model or self.who

    def introduced(self) -> Player:
        """The same, with the model's name if the server has only one; asks a server once, so that a wrong url fails at once.

        Raises:
            ServerError: nothing answers there, or the key is refused.
            InvalidInputError: the model has to be named.
        """
        from toolverse.rollout.endpoint import served_models

        if not self.who.startswith(("http://", "https://")):
            return self
        listed = served_models(self._endpoint())
        if self.model:
            if listed and self.model not in listed:
                stderr.print(f"The server lists {', '.join(listed[:5])}; asking for {self.model}.", markup=False)
            return self
        if len(listed) == 1:
            return replace(self, model=listed[0])
        raise InvalidInputError(
            "a server needs the name of its model",
            where=self.who,
            expected=f"one of {', '.join(listed[:10])}" if listed else None,
            fix="add --model NAME",
        )

    def play(
        self, jobs: Sequence[Job], *, out: Path | None, resume: bool, header: Mapping[str, JSON] | None = None
    ) -> tuple[Collection, dict[str, int]]:
        """Play the jobs with a progress bar; what was played, and the counters of the server that was asked.

        Ctrl-C ends the program, with a word about what was kept. An existing file is only continued, never lost.

        Raises:
            InvalidInputError: `out` holds episodes already, and `resume` was not said.
        """
        from toolverse.rollout.collect import collect
        from toolverse.rollout.crews import CrewSettings, crew_of
        from toolverse.rollout.policies import EndpointFactory, make_policy

        if out is not None and not resume and out.is_file() and out.stat().st_size:
            raise InvalidInputError(
                "holds episodes already", where=str(out), fix="add --resume to go on with them, or name another --out"
            )
        factory = make_policy(self.who, endpoint=self._endpoint())
        counts: dict[str, int] = {}
        try:
            with progress(self.name) as show:
                collected = collect(
                    jobs,
                    factory,
                    crew=crew_of(self.workers),
                    settings=CrewSettings(workers=self.parallel, stall_s=self.stall_s),
                    path=out,
                    header=header,
                    resume=resume,
                    on_result=show,
                )
        except KeyboardInterrupt:
            if out is not None:
                stderr.print(f"Interrupted. Finished episodes are in {out}; --resume goes on from there.", markup=False)
            sys.exit(130)
        finally:
            if isinstance(factory, EndpointFactory):
                counts = dict(factory.endpoint.counts)
                factory.close()
        if counts:
            stderr.print(told(counts), markup=False)
        for failed in collected.failures[:5]:
            stderr.print(f"not played: seed {failed.job.seed}, {failed.kind}: {failed.detail}", markup=False)
        return collected, counts

    def _endpoint(self) -> EndpointSettings:
        from toolverse.rollout.endpoint import EndpointSettings

        return EndpointSettings(
            url=self.who if self.who.startswith(("http://", "https://")) else "http://localhost/v1",
            model=self.model,
            dialect=self.dialect,  # type: ignore[arg-type]  # checked there
            api_key_env=self.api_key_env,
            temperature=self.temperature,
            max_tokens=self.max_tokens,
            logprobs=self.logprobs,
            max_concurrency=self.parallel,
        )


def env_named(target: str) -> str:
    """The full id of an environment that a target names, after no such file was found.

    Raises:
        NotFoundError: it names nothing.
    """
    from toolverse.envs.lookup import full_id

    looks_like_a_file = target.startswith((".", "/", "~")) or Path(target).suffix in (".parquet", ".jsonl")
    folder = Path(target).parent
    if looks_like_a_file or (folder != Path() and folder.is_dir()):
        raise NotFoundError("no such file or folder", where=target, expected="a dataset, or the id of an environment")
    return full_id(target)


def told(counts: Mapping[str, int]) -> str:
    """What happened at a server, in a line: requests, and every kind of trouble that was met."""
    troubles = {
        "retry_busy": "busy (429)",
        "retry_server": "server errors",
        "retry_connection": "lost connections",
        "retry_stall": "stalls",
        "retry_malformed": "malformed answers",
        "failures": "given up",
        "bad_tool_calls": "unreadable tool calls",
        "cut_messages": "messages cut at the token limit",
    }
    met = [f"{counts[key]} {name}" for key, name in troubles.items() if counts.get(key)]
    line = f"Asked {counts.get('requests', 0)} times, answered {counts.get('answers', 0)}"
    return f"{line}: {', '.join(met)}." if met else f"{line}."


@contextmanager
def progress(title: str) -> Iterator[Callable[[Result, Tally], None]]:
    """A bar on stderr: episodes, success, turns/s, tokens/s, time to go. Ctrl-C ends it with a word about what was kept."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[line]}"))
    with Progress(*columns, console=stderr) as bar:
        job = bar.add_task(title, total=None, line="")

        def show(result: Result, tally: Tally) -> None:
            left = tally.eta_s()
            eta = f", {int(left) // 60}:{int(left) % 60:02d} to go" if left is not None else ""
            bar.update(job, total=tally.total, completed=tally.done, line=tally.line() + eta)

        yield show
