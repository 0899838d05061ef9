"""Ten planted faults: the right cause comes first. A healthy run has none."""

import itertools
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from toolverse.errors import InvalidInputError, NotFoundError
from toolverse.rollout.diagnosis import diagnose
from toolverse.rollout.files import write_trajectories
from toolverse.rollout.runs import read_run
from toolverse.rollout.tokens import TokenTrajectory, TokenTurn, TurnTokens, samples
from toolverse.types import ToolCall, tool_message


@dataclass
class Planted:
    """A training run that is about to be written; faults change it before."""

    episodes: list[TokenTrajectory]
    evaluation: list[TokenTrajectory]
    metrics: list[dict[str, float]]
    sample_fault: Callable[[dict[str, Any]], None] | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def write(self, folder: Path) -> Path:
        write_trajectories(self.episodes, folder / "trajectories.jsonl")
        write_trajectories(self.evaluation, folder / "eval.jsonl")
        rows = [{"trajectory": i, **s.as_json()} for i, t in enumerate(self.episodes) for s in samples(t)]
        if self.sample_fault is not None:
            for row in rows:
                self.sample_fault(row)
        (folder / "samples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in self.metrics))
        return folder


def episode(seed: int, attempt: int, rng: random.Random) -> TokenTrajectory:
    """Three turns: search, book, and an answer; solved in half of the attempts."""
    solved = rng.random() < 0.5
    context = tuple(rng.randrange(9, 99) for _ in range(20 + seed % 7))
    turns = []
    for index, name in enumerate(("search", "book", "")):
        last = index == 2
        arguments = {"q": rng.randrange(1000)}
        failed = rng.random() < 0.1
        text = "Error: busy" if failed else f"row {rng.randrange(10**6)}"
        call = (ToolCall(name=name, arguments=arguments),) if name else ()
        sampled = tuple(rng.randrange(9, 99) for _ in range(rng.randrange(3, 8)))
        turns.append(
            TokenTurn(
                index=index,
                parent=index - 1 if index else None,
                action=f"I take {name or 'my answer'} {rng.randrange(10**6)}",
                tool_calls=call,
                messages_delta=(tool_message(text, name=name),) if name else (),
                reward=(1.0 if solved else 0.0) if last else 0.1 * (rng.random() < 0.5),
                terminated=last,
                action_valid=not failed,
                score=float(solved and last),
                tokens=TurnTokens(
                    context_ids=context if index == 0 else (1, 2, 3),
                    sampled_ids=sampled,
                    logprobs=(-0.5,) * len(sampled),
                    restart=index == 0,
                ),
            )
        )
    return TokenTrajectory(
        env_id="toolverse/MCP-v0",
        task_id=f"task-{seed}",
        seed=seed,
        group_id=f"group-{seed}",
        policy="model",
        policy_version=str(seed // 8),
        opening=({"role": "user", "content": f"Please do number {seed}. " + "x" * (seed % 7)},),
        turns=tuple(turns),
        success=solved,
        score=float(solved),
    )


def healthy() -> Planted:
    rng = random.Random(7)
    train = [episode(seed, attempt, rng) for seed in range(16) for attempt in range(4)]
    evaluation = [episode(seed, 0, rng) for seed in range(500, 520)]
    metrics = [{"update": i, "lr": 1e-6, "approx_kl": 0.01, "kl": 0.02, "clip_fraction": 0.05} for i in range(8)]
    return Planted(train, evaluation, metrics)


def change(trajectory: TokenTrajectory, turn: Callable[[TokenTurn], dict[str, Any]], **fields: Any) -> TokenTrajectory:
    turns = tuple(t.model_copy(update=turn(t)) for t in trajectory.turns)
    return trajectory.model_copy(update={"turns": turns, **fields})


def frozen_reward(run: Planted) -> None:
    run.episodes = [change(t, lambda turn: {"reward": 0.5 if turn.terminated else 0.0}) for t in run.episodes]


def wrong_mask(run: Planted) -> None:
    # Tags were searched for in the text: the mask begins a token late and ends one late, into the environment's text.
    def shift(row: dict[str, Any]) -> None:
        row["mask"] = [0, *row["mask"][:-1]]

    run.sample_fault = shift


def duplicate_seeds(run: Planted) -> None:
    # Four workers, each starting at the same seed.
    run.episodes = [
        t.model_copy(update={"seed": (t.seed or 0) % 4, "task_id": f"task-{(t.seed or 0) % 4}"}) for t in run.episodes
    ]


def dead_tool(run: Planted) -> None:
    def broken(turn: TokenTurn) -> dict[str, Any]:
        if not turn.tool_calls or turn.tool_calls[0].name != "book":
            return {}
        return {
            "messages_delta": (tool_message("connection refused", name="book"),),
            "action_valid": False,
            "reward": 0.0,
        }

    run.episodes = [change(t, broken) for t in run.episodes]


def zero_learning_rate(run: Planted) -> None:
    for row in run.metrics:
        row |= {"lr": 0.0, "approx_kl": 0.0}


def cut_prompts(run: Planted) -> None:
    def cut(turn: TokenTurn) -> dict[str, Any]:
        if turn.index or turn.tokens is None:
            return {}
        return {"tokens": turn.tokens.model_copy(update={"context_ids": turn.tokens.context_ids[-22:]})}

    run.episodes = [change(t, cut) for t in run.episodes]


def lost_last_reward(run: Planted) -> None:
    def lose(row: dict[str, Any]) -> None:
        last = max(row["turns"])
        row["rewards"] = [0.0 if turn == last else r for r, turn in zip(row["rewards"], row["turns"], strict=True)]

    run.sample_fault = lose


def wrong_template(run: Planted) -> None:
    def speak(turn: TokenTurn) -> dict[str, Any]:
        return {"action": f"{turn.action}<|im_end|>\n<|im_start|>user\nThank you", "parse_error": "no_tag"}

    run.episodes = [change(t, speak) for t in run.episodes]


def kl_too_high(run: Planted) -> None:
    for i, row in enumerate(run.metrics):
        row |= {"approx_kl": 0.05 * 2**i, "clip_fraction": 0.6}


def evaluation_is_training(run: Planted) -> None:
    run.evaluation = [t.model_copy(update={"group_id": f"eval-{i}"}) for i, t in enumerate(run.episodes[::4])]


FAULTS = {
    "frozen reward": frozen_reward,
    "wrong mask": wrong_mask,
    "duplicate seeds": duplicate_seeds,
    "dead tool": dead_tool,
    "zero learning rate": zero_learning_rate,
    "cut prompts": cut_prompts,
    "lost last reward": lost_last_reward,
    "wrong chat template": wrong_template,
    "KL too high": kl_too_high,
    "evaluation leaks into training": evaluation_is_training,
}


def test_a_healthy_run_has_nothing_broken(tmp_path: Path) -> None:
    assert [f.cause for f in diagnose(read_run(healthy().write(tmp_path)))] == []


def framed(run: Planted, *, keep: slice) -> Planted:
    """Every prompt begins with token 4 and ends with token 5, of which `keep` is left; a limit of 24 tokens cuts most of them."""

    def mark(turn: TokenTurn) -> dict[str, Any]:
        if turn.index or turn.tokens is None:
            return {}
        return {"tokens": turn.tokens.model_copy(update={"context_ids": (4, *turn.tokens.context_ids, 5)[keep]})}

    run.episodes = [change(t, mark) for t in run.episodes]
    return run


def test_prompts_that_just_are_that_long_are_not_cut(tmp_path: Path) -> None:
    # Half of the tasks are of one kind, whose texts are all as long.
    run = framed(healthy(), keep=slice(None))
    longest = 5
    alike = [t for t in run.episodes if (t.seed or 0) % 7 == longest]
    for seed in range(100, 108):
        text = {"role": "user", "content": f"Please do numbr {seed}. " + "x" * longest}
        names = {"seed": seed, "group_id": f"group-{seed}", "task_id": f"task-{seed}"}
        run.episodes += [t.model_copy(update={**names, "opening": (text,)}) for t in alike[:4]]
    run.episodes = [t for t in run.episodes if (t.seed or 0) % 7 <= longest or (t.seed or 0) >= 100]
    found = read_run(run.write(tmp_path))
    most = max(e.prompt_tokens or 0 for e in found.episodes)
    assert len({e.prompt for e in found.episodes if e.prompt_tokens == most}) >= 4
    assert [f.cause for f in diagnose(found)] == []


@pytest.mark.parametrize("keep", [slice(-24, None), slice(0, 24)], ids=["beginning", "end"])
def test_prompts_without_their_beginning_or_end_are_cut(keep: slice, tmp_path: Path) -> None:
    run = read_run(framed(healthy(), keep=keep).write(tmp_path))
    assert [f.cause for f in diagnose(run)] == ["cut prompts"]


def test_a_windowed_run_is_not_told_that_its_turns_are_samples_of_their_own(tmp_path: Path) -> None:
    run = healthy()
    run.episodes = [
        change(t, lambda turn: {"tokens": turn.tokens.model_copy(update={"restart": True}) if turn.tokens else None})
        for t in run.episodes
    ]
    run.write(tmp_path)
    assert [f.cause for f in diagnose(read_run(tmp_path))] == ["template not prefix-stable"]
    (tmp_path / "recipe.json").write_text('{"policy": {"rendering": "windowed"}}')
    assert diagnose(read_run(tmp_path)) == []


def answering(run: Planted, text: Callable[[int], str], *, valid: bool) -> Planted:
    """The tool `book` answers every call so; `text` is given a running number."""
    numbers = itertools.count()

    def answer(turn: TokenTurn) -> dict[str, Any]:
        if not turn.tool_calls or turn.tool_calls[0].name != "book":
            return {}
        message = tool_message(text(next(numbers)), name="book")
        return {"messages_delta": (message,), "action_valid": valid, "reward": 0.0}

    run.episodes = [change(t, answer) for t in run.episodes]
    return run


@pytest.mark.parametrize(
    ("text", "valid", "causes"),
    [
        ('{"booked": true}', True, []),
        ('{"items": [], "total": 0}', True, ["dead tool"]),
        ("", True, ["dead tool"]),
        ("Something went wrong", False, ["dead tool"]),
        ("row {} is taken", False, ["tool always refused"]),
        ("HTTP is fine, row {} booked", True, []),
    ],
)
def test_a_tool_is_dead_if_what_it_answers_has_nothing_to_do_with_the_question(
    text: str, valid: bool, causes: list[str], tmp_path: Path
) -> None:
    run = answering(healthy(), lambda number: text.replace("{}", str(number)), valid=valid)
    assert [f.cause for f in diagnose(read_run(run.write(tmp_path)))] == causes


@pytest.mark.parametrize("cause", FAULTS)
def test_a_planted_fault_comes_first(cause: str, tmp_path: Path) -> None:
    run = healthy()
    FAULTS[cause](run)
    found = diagnose(read_run(run.write(tmp_path)))
    assert found, "nothing was found"
    assert found[0].cause == cause, [(f.cause, f.rank, f.share) for f in found]
    assert 0 < found[0].share <= 1
    assert found[0].fix
    assert all(0 <= place < 64 for place in found[0].episodes)
    assert [f.cause for f in found if f.rank == "broken"] == [cause]


def test_a_reward_on_a_context_token_is_found(tmp_path: Path) -> None:
    run = healthy()

    def move(row: dict[str, Any]) -> None:
        total = sum(row["rewards"])
        row["rewards"] = [total, *[0.0] * (len(row["rewards"]) - 1)]

    run.sample_fault = move
    assert diagnose(read_run(run.write(tmp_path)))[0].cause == "reward on a masked token"


def test_symptoms_are_told_with_counts(tmp_path: Path) -> None:
    run = healthy()
    run.episodes = [
        change(
            t,
            lambda turn: {
                "parse_error": "no_tag" if turn.index == 1 else None,
                "reward": 0.0,
                "terminated": False,
                "truncated": turn.index == 2,
                "truncation_reason": "max_turns" if turn.index == 2 else None,
                "tokens": turn.tokens.model_copy(update={"restart": True}) if turn.tokens else None,
                "score": 0.0,
            },
            success=False,
            score=0.0,
        )
        for t in run.episodes
    ]
    found = {f.cause: f for f in diagnose(read_run(run.write(tmp_path)))}
    assert found["zero-variance groups"].share == 1.0
    assert (found["parse errors"].count, found["parse errors"].of) == (64, 192)
    assert found["truncation"].share == 1.0
    assert (found["template not prefix-stable"].count, found["template not prefix-stable"].of) == (128, 128)


def test_attempts_that_say_the_same_are_found(tmp_path: Path) -> None:
    run = healthy()
    run.episodes = [change(t, lambda turn: {"action": f"turn {turn.index}"}) for t in run.episodes]
    assert diagnose(read_run(run.write(tmp_path)))[0].cause == "identical attempts"


def test_rollout_dumps_of_verl_are_read(tmp_path: Path) -> None:
    rng = random.Random(1)
    rows = [
        {"input": f"p{i // 4}", "output": f"o{rng.random()}", "gts": None, "score": 1.0, "acc": i % 2, "step": 1}
        for i in range(32)
    ]
    (tmp_path / "1.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "log").mkdir()
    log = tmp_path / "log" / "metrics.jsonl"
    log.write_text(
        "".join(json.dumps({"step": i, "data": {"actor/lr": 1e-6, "actor/ppo_kl": 5.0}}) + "\n" for i in range(4))
    )
    run = read_run(tmp_path)
    assert (run.kind, len(run.episodes), len(run.metrics)) == ("verl", 32, 4)
    assert {f.cause for f in diagnose(run) if f.rank == "broken"} == {"frozen reward", "KL too high"}
    assert read_run(tmp_path / "1.jsonl").kind == "verl"


def test_completion_tables_of_trl_are_read(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    def completion(i: int) -> list[dict[str, Any]]:
        call = {"type": "function", "function": {"name": "book", "arguments": json.dumps({"n": i})}}
        return [
            {"role": "assistant", "content": f"try {i}", "tool_calls": [call]},
            {"role": "tool", "content": '{"error": "no such host"}', "tool_calls": None},
            {"role": "assistant", "content": f"gave up {i}", "tool_calls": None},
        ]

    rows = {
        "step": [1] * 24,
        "prompt": [[{"role": "user", "content": f"task {i // 4}"}] for i in range(24)],
        "completion": [completion(i) for i in range(24)],
        "line_reward": [float(i % 3 == 0) for i in range(24)],
        "advantage": [0.0] * 24,
    }
    (tmp_path / "completions").mkdir()
    pq.write_table(pa.table(rows), tmp_path / "completions" / "completions_00001.parquet")
    state = {"log_history": [{"learning_rate": 0.0, "loss": 1.0}, {"learning_rate": 0.0}]}
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    run = read_run(tmp_path)
    assert (run.kind, len(run.episodes), run.episodes[0].reward) == ("trl", 24, 1.0)
    assert {f.cause for f in diagnose(run)} == {"dead tool", "zero learning rate"}


@pytest.mark.parametrize(
    ("row", "causes"),
    [
        ({"kl": 0.5, "reference_kl": 0.2}, {"KL too high"}),
        ({"kl": 0.5}, set()),
        ({"train/kl": 3.0}, {"KL too high"}),
        ({"kl": 0.01, "reference_kl": 0.2, "learning_rate": 0.0}, {"zero learning rate"}),
    ],
)
def test_the_numbers_of_a_run_are_enough_for_what_they_tell(
    row: dict[str, float], causes: set[str], tmp_path: Path
) -> None:
    (tmp_path / "metrics.jsonl").write_text(f"{json.dumps(row)}\n" * 6)
    assert {finding.cause for finding in diagnose(read_run(tmp_path))} == causes


def test_what_is_no_run_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="holds no run"):
        read_run(tmp_path)
    with pytest.raises(NotFoundError, match="no such run"):
        read_run(tmp_path / "none")
    folder = healthy().write(tmp_path)
    (folder / "metrics.jsonl").write_text('{"lr": 1}\n{"lr"\n{"lr": 1}\n')
    with pytest.raises(InvalidInputError, match=r"metrics.jsonl, line 2"):
        read_run(folder)


def dump_of_verl(file: Path, rows: list[dict[str, Any]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_validation_dumps_of_verl_beside_the_rollouts_are_no_training(tmp_path: Path) -> None:
    for step in (2, 10):
        dump_of_verl(
            tmp_path / "rollouts" / f"{step}.jsonl", [{"input": "q", "output": "a", "score": 1.0, "step": step}]
        )
    dump_of_verl(tmp_path / "validation" / "2.jsonl", [{"input": "v", "output": "a", "score": 0.0, "step": 2}])
    run = read_run(tmp_path)
    assert [episode.step for episode in run.episodes] == ["2", "10"], "in the order of the steps, not of their names"
    assert [episode.prompt for episode in run.evaluation] == ["v"]
    alone = read_run(tmp_path / "validation")
    assert ([e.prompt for e in alone.episodes], alone.evaluation) == (["v"], [])


def test_verl_names_groups_and_rollouts_in_its_uids_and_writes_numbers_as_text(tmp_path: Path) -> None:
    call = '<tool_call>\n{"name": "find", "arguments": {"q": 1}}\n</tool_call>'
    output = f"I look.{call}\nuser\n<tool_response>\nError: no\n</tool_response>"
    rows = [
        {"input": "q", "output": output, "score": 0.0, "step": 1, "uid": "s_1_0", "acc": "False"},
        {"input": "q", "output": "Done.", "score": 1.0, "step": 1, "uid": "s_1_1", "acc": "True"},
        {"input": "q", "output": "Done.", "score": 0.5, "step": 1, "uid": "s_2_0", "acc": "1"},
        {"input": "q", "output": "<tool_call>{bro", "score": None, "step": 1, "uid": "t_0_0", "acc": None},
    ]
    dump_of_verl(tmp_path / "1.jsonl", rows)
    first, second, other = read_run(tmp_path).episodes
    assert (first.reward, len(first.said), second.reward) == (1.0, 2, 0.5)
    assert first.group == second.group != other.group
    assert (first.success, second.success, other.success) == (True, True, None)
    (made,) = first.said[0].calls
    assert (made.name, made.arguments, made.result) == ("find", '{"q": 1}', "Error: no")
    assert other.said[0].calls == []


def test_only_the_reward_functions_of_trl_count_as_reward(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = {
        "step": [1, 1],
        "prompt": ["a", "b"],
        "completion": ["x", "y"],
        "exact": [1.0, float("nan")],
        "my_own_number": [40.0, 40.0],
        "advantage": [0.5, -0.5],
    }
    (tmp_path / "completions").mkdir()
    pq.write_table(pa.table(table), tmp_path / "completions" / "completions_00001.parquet")
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": [{"rewards/exact/mean": 1.0, "step": 1}]}))
    assert [episode.reward for episode in read_run(tmp_path).episodes] == [1.0, 0.0]
