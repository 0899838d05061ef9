"""What goes wrong in a run is one clear error, and what the run has written stays usable."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from learner_kit import small_recipe  # noqa: E402

from toolverse.cli import app  # noqa: E402
from toolverse.errors import InvalidInputError, NotFoundError, ToolverseError  # noqa: E402
from toolverse.learner import checkpoint, iteration, train  # noqa: E402
from toolverse.learner.estimate import DEVICES, DoesNotFitError, estimate_run  # noqa: E402
from toolverse.learner.train import OutOfMemoryError, resume_run, train_recipe  # noqa: E402
from toolverse.learner.update import LossDivergedError  # noqa: E402


def after(updates: int, error: Exception, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """The update step raises after some updates; the returned function repairs it."""
    whole, calls = iteration.update, []

    def failing(*arguments: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) > updates:
            raise error
        return whole(*arguments, **options)

    monkeypatch.setattr(iteration, "update", failing)
    return lambda: monkeypatch.setattr(iteration, "update", whole)


@pytest.mark.parametrize(
    ("error", "kind", "fix"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), OutOfMemoryError, "microbatch_tokens"),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:121] . DefaultCPUAllocator: can't allocate memory: you tried to "
                      "allocate 4398046511104 bytes."), OutOfMemoryError, "microbatch_tokens"),
        (LossDivergedError("the loss is NaN or infinite", fix="lower update.learning_rate"), LossDivergedError, "learning_rate"),
    ],
    ids=["gpu memory", "cpu memory", "loss"],
)  # fmt: skip
def test_a_run_that_fails_can_go_on(
    error: Exception, kind: type[ToolverseError], fix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repair = after(1, error, monkeypatch)
    with pytest.raises(kind, match=fix):
        train_recipe(small_recipe(held_out_episodes=2), tmp_path)
    assert checkpoint.latest(tmp_path / "checkpoints").update == 1
    repair()
    assert resume_run(tmp_path)["updates"] == 2
    assert [line["update"] for line in checkpoint.read_metrics(tmp_path / "metrics.jsonl")] == [1, 2]


def test_an_infinite_reward_stops_before_the_step(tmp_path: Path) -> None:
    with pytest.raises(LossDivergedError, match="NaN or infinite"):
        train_recipe(small_recipe(credit__reward_scale=1e300, held_out_episodes=2), tmp_path)
    assert checkpoint.latest(tmp_path / "checkpoints").update == 0


def test_other_errors_are_not_taken_for_a_lack_of_memory() -> None:
    with pytest.raises(RuntimeError, match="shape"), train.clear_memory_errors():
        raise RuntimeError("shape mismatch")


def test_missing_weights_leave_no_checkpoint_behind(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    with pytest.raises(NotFoundError, match="no usable model"):
        train_recipe(small_recipe(policy__model=str(tmp_path / "nothing")), tmp_path / "run")
    assert not (tmp_path / "run" / "checkpoints").exists()


@pytest.mark.parametrize("setting", ["recompute", "compile", "shard"])
def test_the_tiny_policy_has_no_use_for_what_big_models_need(setting: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=setting):
        train_recipe(small_recipe(**{f"update__{setting}": True}), tmp_path)


SEVEN_B = {
    "hidden_size": 3584,
    "num_hidden_layers": 28,
    "intermediate_size": 18_944,
    "vocab_size": 152_064,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
}


def test_a_dry_run_counts_and_refuses_what_does_not_fit(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    (tmp_path / "config.json").write_text(json.dumps(SEVEN_B))
    command = ["train", "--recipe", "sokoban", "--model", str(tmp_path), "--dry-run", "--json"]
    done = CliRunner().invoke(app, command)
    assert isinstance(done.exception, DoesNotFitError)
    told = json.loads(done.stdout.splitlines()[-1])
    assert 6.5e9 < told["trunk"] + told["head"] < 7.7e9
    assert told["memory"] > 16 * told["trained"]
    assert CliRunner().invoke(app, ["train", "--recipe", "sokoban-tiny", "--dry-run"]).exit_code == 0


def test_adapters_and_recomputation_take_less(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SEVEN_B))
    whole = estimate_run(small_recipe(policy__model=str(tmp_path)))
    small = estimate_run(small_recipe(policy__model=str(tmp_path), policy__lora=16, update__recompute=True))
    assert small.parts["gradients and moments"] < 0.01 * whole.parts["gradients and moments"]
    assert small.parts["activations"] < 0.1 * whole.parts["activations"]
    assert small.memory < whole.memory


def test_fewer_slots_take_less_memory_and_more_steps(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SEVEN_B))
    common = {"policy__model": str(tmp_path), "policy__rendering": "append_only", "episodes": 8}
    whole, few = (estimate_run(small_recipe(**common, policy__slots=slots)) for slots in (0, 3))
    assert few.parts["sampler"] == pytest.approx(3 / 8 * whole.parts["sampler"])
    assert few.run_steps == 3 * whole.run_steps
    assert all(few.hours(device) > whole.hours(device) for device in DEVICES)
