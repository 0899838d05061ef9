"""Reading training runs, ours and others', into one shape that can be diagnosed.

| run | what is read |
|---|---|
| ours | `trajectories.jsonl`, `eval.jsonl`, `samples.jsonl`, `metrics.jsonl` (see `files`), or the last one alone |
| TRL | `completions/completions_*.parquet` (`log_completions=True`), `trainer_state.json` |
| verl | `*.jsonl` with `input`, `output`, `score`, `step` (`trainer.rollout_data_dir`, `validation_data_dir`); its file logger |
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from toolverse.errors import InvalidInputError, NotFoundError
from toolverse.rollout.evaluation import instance_of
from toolverse.rollout.files import TRAJECTORIES, read_trajectories
from toolverse.rollout.tokens import TokenTrajectory
from toolverse.types import JSON

Metrics = dict[str, float]


@dataclass
class Call:
    """One tool call and what came back; `failed` is None where nothing tells."""

    name: str
    arguments: str
    result: str
    failed: bool | None = None


@dataclass
class Said:
    """One message of the policy. `error` is a parse error, `cut` that it ran into its length limit."""

    text: str
    reward: float = 0.0
    error: str | None = None
    cut: bool = False
    calls: list[Call] = field(default_factory=list)


@dataclass
class Episode:
    """One episode as diagnosis sees it.

    Args:
        place: position in its file (the page's `#place`).
        step: update, or policy version, that it belongs to ("" where unknown).
        group: what its advantage is relative to ("" without groups).
        instance: what was attempted: equal for equal tasks and seeds.
        prompt: text of the opening; `prompt_tokens` its length, None where unknown.
        success, truncated: None where the run does not tell.
        seed: None where unknown.
    """

    place: int
    step: str
    group: str
    instance: str
    prompt: str
    reward: float
    said: list[Said]
    seed: int | None = None
    prompt_tokens: int | None = None
    success: bool | None = None
    truncated: bool | None = None
    trajectory: TokenTrajectory | None = None


@dataclass(eq=False)
class Run:
    """A run: episodes trained on, episodes of evaluations, training samples (as written), one dict of numbers per update.

    `windowed`: its recipe renders every turn anew, on purpose.
    """

    kind: str
    path: Path
    episodes: list[Episode]
    evaluation: list[Episode] = field(default_factory=list)
    samples: list[dict[str, Any]] = field(default_factory=list)
    metrics: list[Metrics] = field(default_factory=list)
    windowed: bool = False


def read_run(path: str | Path) -> Run:
    """Read a run folder (or a single dump file), whichever trainer wrote it.

    Raises:
        NotFoundError: nothing there is a run.
        InvalidInputError: a file is damaged, with file and line.
    """
    folder = Path(path)
    if not folder.exists():
        raise NotFoundError("no such run", where=str(folder))
    if folder.is_file():
        head = _first_row(folder)
        if "score" in head and "output" in head:
            return Run("verl", folder, _verl([folder]))
        return Run("toolverse", folder, [_own(t, i) for i, t in enumerate(read_trajectories(folder))])
    if (folder / TRAJECTORIES).is_file():
        return _own_run(folder)
    tables = sorted(folder.glob("completions/completions_*.parquet")) or sorted(folder.glob("completions_*.parquet"))
    if tables:
        state = next((f for f in sorted(folder.glob("**/trainer_state.json"), reverse=True)), None)
        metrics = _trl_metrics(state) if state else []
        return Run("trl", folder, _trl(tables, _trl_rewards(metrics)), metrics=metrics)
    dumps = [file for file in sorted(folder.rglob("*.jsonl")) if {"output", "score"} <= _first_row(file).keys()]
    if dumps:
        return _verl_run(folder, dumps)
    if (folder / "metrics.jsonl").is_file():
        return Run("toolverse", folder, [], metrics=_metrics(folder / "metrics.jsonl"))
    raise NotFoundError(
        "the folder holds no run",
        where=str(folder),
        expected=f"{TRAJECTORIES}, TRL's completions/*.parquet, or verl's rollout dumps",
    )


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                if not line.endswith("\n"):
                    return  # the run was killed while it wrote
                raise InvalidInputError(f"is not JSON ({error})", where=f"{file}, line {number}") from error
            if isinstance(row, dict):
                yield row


def _first_row(file: Path) -> dict[str, Any]:
    try:
        return next(_rows(file), {})
    except (InvalidInputError, UnicodeDecodeError):
        return {}


def _metrics(file: Path) -> list[Metrics]:
    """Numbers per update; verl's file logger nests them under `data`."""
    found = []
    for row in _rows(file):
        inner = row.get("data")
        numbers = {**row, **inner} if isinstance(inner, Mapping) else row
        found.append({k: float(v) for k, v in numbers.items() if isinstance(v, (int, float))})
    return found


# --- ours ---------------------------------------------------------------------------------------------------------------


def _own_run(folder: Path) -> Run:
    def optional(name: str) -> Path | None:
        return file if (file := folder / name).is_file() else None

    evaluation, samples, metrics = optional("eval.jsonl"), optional("samples.jsonl"), optional("metrics.jsonl")
    return Run(
        "toolverse",
        folder,
        [_own(t, i) for i, t in enumerate(read_trajectories(folder))],
        evaluation=[_own(t, i) for i, t in enumerate(read_trajectories(evaluation))] if evaluation else [],
        samples=list(_rows(samples)) if samples else [],
        metrics=_metrics(metrics) if metrics else [],
        windowed=_windowed(optional("recipe.json")),
    )


def _windowed(recipe: Path | None) -> bool:
    try:
        policy = json.loads(recipe.read_text(encoding="utf-8")).get("policy") if recipe else None
    except (ValueError, AttributeError):
        return False  # whoever resumes the run says what is wrong with it
    return isinstance(policy, Mapping) and policy.get("rendering") == "windowed"


def _own(trajectory: TokenTrajectory, place: int) -> Episode:
    path = trajectory.path()
    first = path[0].tokens if path else None
    prompt_tokens = len(first.context_ids) if first is not None else None
    if prompt_tokens is None and path and path[0].usage is not None:
        prompt_tokens = path[0].usage.prompt
    return Episode(
        place=place,
        step=trajectory.policy_version,
        group=trajectory.group_id,
        instance=f"{trajectory.env_id}#{trajectory.task_id}#{trajectory.seed}"
        if trajectory.seed is not None
        else instance_of(trajectory),
        prompt="\n".join(str(message.get("content") or "") for message in trajectory.opening),
        reward=trajectory.total_reward(),
        said=[
            Said(
                turn.action,
                turn.reward,
                turn.parse_error,
                turn.finish == "length" or turn.truncation_reason == "max_tokens",
                _calls(
                    [(c.name, json.dumps(c.arguments, sort_keys=True)) for c in turn.tool_calls],
                    turn.messages_delta,
                    None if turn.action_valid else True,
                ),
            )
            for turn in path
        ],
        seed=trajectory.seed,
        prompt_tokens=prompt_tokens,
        success=trajectory.success,
        truncated=bool(path) and path[-1].truncated,
        trajectory=trajectory,
    )


def _calls(calls: Sequence[tuple[str, str]], answers: Sequence[Mapping[str, JSON]], refused: bool | None) -> list[Call]:
    """Calls with their answers, matched by order; a refusal is the call's if there is only one."""
    texts = [str(message.get("content") or "") for message in answers if message.get("role") == "tool"]
    texts += [""] * (len(calls) - len(texts))
    return [
        Call(name, arguments, text, refused if len(calls) == 1 else None)
        for (name, arguments), text in zip(calls, texts, strict=False)
    ]


# --- TRL ----------------------------------------------------------------------------------------------------------------

_TRL_COLUMNS = {"step", "prompt", "completion", "advantage"}


def _trl_rewards(metrics: Sequence[Metrics]) -> set[str]:
    """Names of the reward functions, of which each update logs the mean."""
    return {match[1] for row in metrics for key in row if (match := re.fullmatch(r"rewards/(.+)/mean", key))}


def _trl(tables: Sequence[Path], rewards: Set[str]) -> list[Episode]:
    """Rows `{step, prompt, completion, <a column per reward function>, <columns of the user's own>, advantage}`.

    Args:
        rewards: the reward functions; if unknown, every column of numbers counts as one.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    episodes: list[Episode] = []
    for file in tables:
        try:
            table = pq.read_table(file)
        except pa.ArrowInvalid as error:
            raise InvalidInputError(f"is no parquet file ({error})", where=str(file)) from error
        columns = [
            name
            for name in table.column_names
            if name not in _TRL_COLUMNS and pa.types.is_floating(table.schema.field(name).type)
        ]
        columns = [name for name in columns if name in rewards] or columns
        for row in table.to_pylist():
            prompt = _text(row.get("prompt"))
            completion = row.get("completion")
            episodes.append(
                Episode(
                    place=len(episodes),
                    step=str(row.get("step", "")),
                    group=f"{row.get('step', '')}:{prompt}",
                    instance=prompt,
                    prompt=prompt,
                    # A function that does not apply to a row gives None, which comes back as None or NaN.
                    reward=sum(row[name] for name in columns if row[name] is not None and row[name] == row[name]),
                    said=_messages(completion) if isinstance(completion, list) else [Said(str(completion or ""))],
                )
            )
    return episodes


def _text(value: Any) -> str:
    if isinstance(value, list):
        return "\n".join(str(message.get("content") or "") for message in value if isinstance(message, Mapping))
    return str(value or "")


def _messages(completion: Sequence[Mapping[str, Any]]) -> list[Said]:
    said: list[Said] = []
    for position, message in enumerate(completion):
        if message.get("role") != "assistant":
            continue
        answers: list[Mapping[str, Any]] = []
        for later in completion[position + 1 :]:
            if later.get("role") == "assistant":
                break
            answers.append(later)
        calls = [
            (str(function.get("name")), json.dumps(function.get("arguments"), sort_keys=True))
            for call in message.get("tool_calls") or ()
            if isinstance(function := call.get("function", call), Mapping)
        ]
        said.append(Said(str(message.get("content") or ""), calls=_calls(calls, answers, None)))
    return said


def _trl_metrics(state: Path) -> list[Metrics]:
    try:
        history = json.loads(state.read_text(encoding="utf-8")).get("log_history", [])
    except ValueError as error:
        raise InvalidInputError(f"is not JSON ({error})", where=str(state)) from error
    return [{k: float(v) for k, v in row.items() if isinstance(v, (int, float))} for row in history]


# --- verl ---------------------------------------------------------------------------------------------------------------

_VALIDATION: Final = re.compile(r"(?:^|[/_-])(?:val|valid|validation|eval|evaluation|test)(?:[/_-]|$)", re.IGNORECASE)
_CALLS: Final = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_ANSWERS: Final = re.compile(r"<tool_response>\n?(.*?)\n?</tool_response>", re.DOTALL)


def _verl_run(folder: Path, dumps: Sequence[Path]) -> Run:
    """Dumps of `trainer.rollout_data_dir`, and of `trainer.validation_data_dir` if it lies in the same folder: the rows are
    alike, only the folder's name says which is which."""
    metrics = [row for file in sorted(folder.rglob("*.jsonl")) if file not in dumps for row in _metrics(file)]
    below = {file: "/".join(file.relative_to(folder).parts[:-1]) for file in dumps}
    held_out = [file for file in dumps if _VALIDATION.search(below[file])]
    trained = [file for file in dumps if file not in held_out]
    if not trained:
        trained, held_out = held_out, []
    return Run("verl", folder, _verl(trained), evaluation=_verl(held_out), metrics=metrics)


def _by_step(file: Path) -> tuple[str, int, str]:
    """Files are named by step: 2 comes before 10."""
    return str(file.parent), int(file.stem) if file.stem.isdigit() else -1, file.name


def _verl(dumps: Sequence[Path]) -> list[Episode]:
    """Rows `{input, output, gts, score, step, ...}`; either trainer adds columns of its own.

    The current one writes `uid`, `<sample>_<rollout>_<output>`: a rollout may have several outputs, which are one episode here,
    with the score of the last. The older one writes what the reward function returned (`acc`, ...), and numbers of NumPy as text.
    """
    episodes: list[Episode] = []
    by_rollout: dict[tuple[str, str], Episode] = {}
    for file in sorted(dumps, key=_by_step):
        for row in _rows(file):
            prompt, step = str(row.get("input", "")), str(row.get("step", file.stem))
            sample, rollout = _uid(str(row.get("uid") or ""))
            score = _number(row.get("score"))
            said = _spoken(str(row.get("output", "")))
            solved = _number(row.get("acc", row.get("success")))
            if rollout and (known := by_rollout.get((step, rollout))) is not None:
                known.said.append(said)
                known.reward, known.success = score or 0.0, None if solved is None else bool(solved)
                continue
            episode = Episode(
                place=len(episodes),
                step=step,
                group=f"{step}:{sample or prompt}",
                instance=prompt,
                prompt=prompt,
                reward=score or 0.0,
                said=[said],
                success=None if solved is None else bool(solved),
            )
            episodes.append(episode)
            if rollout:
                by_rollout[step, rollout] = episode
    return episodes


def _uid(text: str) -> tuple[str, str]:
    """What the attempts at one prompt share, and what the outputs of one attempt share; empty without the parts."""
    parts = text.rsplit("_", 2)
    return (parts[0], "_".join(parts[:2])) if len(parts) == 3 else (text, "")


def _number(value: Any) -> float | None:
    """A number, a truth value, or either as text."""
    if isinstance(value, str):
        if value in ("True", "False"):
            return float(value == "True")
        try:
            return float(value)
        except ValueError:
            return None
    return float(value) if isinstance(value, (int, float)) else None


def _spoken(output: str) -> Said:
    """A whole response, tool results included, with special tokens left out as verl decodes it; calls where it has any."""
    answers = _ANSWERS.findall(output)
    calls = []
    for number, text in enumerate(_CALLS.findall(output)):
        try:
            call = json.loads(text)
            name, arguments = str(call["name"]), json.dumps(call.get("arguments"), sort_keys=True)
        except (ValueError, TypeError, KeyError, AttributeError):
            continue
        calls.append(Call(name, arguments, answers[number] if number < len(answers) else ""))
    return Said(output, calls=calls)
