"""Whole runs: resuming, repeating, crashing, reporting."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from learner_kit import small_recipe  # noqa: E402

from toolverse.cli import app  # noqa: E402
from toolverse.errors import InvalidInputError, NotFoundError  # noqa: E402
from toolverse.learner import checkpoint  # noqa: E402
from toolverse.learner.play import training_seeds  # noqa: E402
from toolverse.learner.train import evaluate_run, resume_run, train_recipe  # noqa: E402


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run")
    train_recipe(small_recipe(updates=4), out)
    return out


def weights(out: Path) -> dict[str, torch.Tensor]:
    return checkpoint.latest(out / "checkpoints").weights


def test_a_run_leaves_what_it_promises(finished: Path) -> None:
    result = json.loads((finished / "result.json").read_text())
    assert 0.0 <= result["success_start"] <= 1.0
    assert result["interval"][0] <= result["success_end"] <= result["interval"][1]
    assert [line["update"] for line in checkpoint.read_metrics(finished / "metrics.jsonl")] == [1, 2, 3, 4]
    assert (finished / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert "success after" in (finished / "report.html").read_text()


def test_stopping_and_resuming_changes_no_bit(finished: Path, tmp_path: Path) -> None:
    train_recipe(small_recipe(updates=4), tmp_path, stop_after=2)
    resume_run(tmp_path)
    one, other = weights(finished), weights(tmp_path)
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    moments = checkpoint.latest(finished / "checkpoints").moments, checkpoint.latest(tmp_path / "checkpoints").moments
    assert all(torch.equal(moments[0][name], moments[1][name]) for name in moments[0])


def test_a_crash_during_a_checkpoint_loses_one_update_at_most(finished: Path, tmp_path: Path) -> None:
    train_recipe(small_recipe(updates=4), tmp_path, stop_after=3)
    # What a kill leaves: a partial folder, a damaged newest checkpoint, and a torn line of metrics.
    (tmp_path / "checkpoints" / ".000004.partial").mkdir()
    (tmp_path / "checkpoints" / "000003" / "model.safetensors").write_bytes(b"half")
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"update": 4, "succ')
    result = resume_run(tmp_path)
    assert result["updates"] == 4
    assert [line["update"] for line in checkpoint.read_metrics(tmp_path / "metrics.jsonl")] == [1, 2, 3, 4]
    assert all(torch.equal(tensor, weights(tmp_path)[name]) for name, tensor in weights(finished).items())


def test_evaluating_a_run_again_gives_its_own_figure(finished: Path) -> None:
    result = json.loads((finished / "result.json").read_text())
    assert evaluate_run(finished)["success"] == result["success_end"]
    likeliest = [evaluate_run(finished, temperature=0.0) for _ in range(2)]
    assert likeliest[0]["success"] == likeliest[1]["success"]
    assert likeliest[0]["temperature"] == 0.0


def test_a_kl_in_the_rewards_is_not_in_the_loss_as_well(tmp_path: Path) -> None:
    returns = {}
    for place in ("reward", "loss"):
        train_recipe(
            small_recipe(update__kl_coefficient=0.5, update__kl_in=place, update__learning_rate=0.05), tmp_path / place
        )
        lines = checkpoint.read_metrics(tmp_path / place / "metrics.jsonl")
        returns[place] = [(line["return"], line["policy_loss"], line["reference_kl"]) for line in lines]
    first, second = returns["reward"], returns["loss"]
    assert first[0] == pytest.approx(second[0], nan_ok=True), "the reference is the policy in the first update"
    assert first[1] != second[1]
    assert first[1][2] > 0


def test_a_run_is_never_overwritten(finished: Path) -> None:
    with pytest.raises(InvalidInputError, match="--resume"):
        train_recipe(small_recipe(), finished)


def test_a_folder_without_a_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="training run"):
        resume_run(tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"policy__rendering": "append_only"},
        {"credit__estimator": "rloo", "credit__settings": {}, "group_size": 4, "policy__critic": "none"},
        {"policy__critic": "separate", "update__critic_warmup_updates": 1},
        {"update__kl_coefficient": 0.1, "update__kl_target": 0.01},
        {"env__settings": {"boxes": 1, "size": [5, 5], "min_pushes": 1, "max_turns": 4, "prompt": "hiper"},
         "credit__estimator": "hae", "credit__settings": {"gamma": 0.9}, "policy__max_new_tokens": 24},
    ],
    ids=["append_only", "rloo", "separate critic", "adaptive kl", "hae"],
)  # fmt: skip
def test_other_ways_of_training_run_and_resume(changes: dict[str, object], tmp_path: Path) -> None:
    train_recipe(small_recipe(**changes), tmp_path, stop_after=1)
    result = resume_run(tmp_path)
    assert result["updates"] == 2


def test_instances_of_an_update_depend_on_seed_and_number_alone() -> None:
    assert training_seeds(1, 5, 4, 2) == training_seeds(1, 5, 4, 2)
    assert training_seeds(1, 5, 4, 2)[0] == training_seeds(1, 5, 4, 2)[1]
    assert not set(training_seeds(1, 5, 4, 1)) & set(training_seeds(1, 6, 4, 1))


def test_the_command_prints_the_result(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    recipe = tmp_path / "mine.toml"
    recipe.write_text(
        'name = "mine"\nupdates = 0\nheld_out_episodes = 4\n[env]\nid = "toolverse/Sokoban-v0"\n'
        'settings = {boxes = 1, size = [5, 5], min_pushes = 1, max_turns = 4}\n[policy]\nwidth = 16\nheads = 2\n'
        '[prompt]\nwindow = "{observation}"\n[clone]\nepisodes = 4\nepochs = 1\n'
    )  # fmt: skip
    out = tmp_path / "run"
    command = ["train", "--recipe", str(recipe), "--out", str(out), "--set", "episodes=4", "--json"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout.splitlines()[-1])
    assert {"success_start", "success_end", "interval", "score_start", "score_end", "cpu_s"} <= told.keys()
    low, high = told["score_interval"]
    assert low <= told["score_end"] <= high
    again = CliRunner().invoke(app, ["eval", str(out), "--json"])
    assert json.loads(again.stdout.splitlines()[-1])["success"] == told["success_end"]
    more = CliRunner().invoke(app, ["eval", str(out), "--episodes", "6", "--json"])
    assert json.loads(more.stdout.splitlines()[-1])["episodes"] == 6
    refused = CliRunner().invoke(app, ["eval", str(out), "--out", str(tmp_path / "scored"), "--set", "max_turns=2"])
    assert isinstance(refused.exception, InvalidInputError)
    assert "--out, --set" in str(refused.exception)
