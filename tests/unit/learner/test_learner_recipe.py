"""Recipes and health alarms."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from toolverse.errors import InvalidInputError, NotFoundError
from toolverse.learner.health import alarms
from toolverse.learner.recipe import load, names, parse_changes


@pytest.mark.parametrize("name", names())
def test_every_bundled_recipe_is_valid(name: str) -> None:
    assert load(name).name == name


def test_a_field_can_be_changed_by_its_dotted_name() -> None:
    recipe = load("sokoban-tiny", parse_changes(["update.epochs=7", "env.held_out={}", "credit.estimator=grpo"]))
    assert recipe.update.epochs == 7
    assert recipe.env.held_out == {}
    assert recipe.credit.estimator == "grpo"


def test_a_misspelled_recipe_is_answered_with_the_near_one() -> None:
    with pytest.raises(NotFoundError, match="sokoban-tiny"):
        load("sokoban-tinny")


def test_an_unknown_field_is_named_with_its_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('[env]\nid = "Sokoban"\n[update]\nlerning_rate = 1\n')
    with pytest.raises(InvalidInputError, match=r"mine\.toml.*update\.lerning_rate"):
        load(str(file))


def test_a_file_that_is_no_toml_says_where(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[env\n")
    with pytest.raises(InvalidInputError, match=r"not TOML.*line 1"):
        load(str(file))


def test_groups_must_be_whole() -> None:
    with pytest.raises(InvalidInputError, match="group_size"):
        load("sokoban-tiny", {"group_size": 7, "episodes": 64})


@pytest.mark.parametrize(
    ("field", "value", "word"),
    [
        ("copies", False, "matches=3 without copies"),
        ("heads", 7, "7 heads"),
        ("left_out", ["("], "no regular expression"),
    ],
)
def test_a_tiny_policy_that_cant_be_is_refused_before_anybody_plays(field: str, value: object, word: str) -> None:
    with pytest.raises(InvalidInputError, match=word):
        load("mcp-tiny", {f"policy.{field}": value})


@pytest.mark.parametrize("pair", ["epochs", "a-b=1", "=3"])
def test_a_change_without_a_field_is_refused(pair: str) -> None:
    with pytest.raises(InvalidInputError, match="--set"):
        parse_changes([pair])


GOOD = {"success": 0.5, "entropy": 0.5, "explained_variance": 0.4, "clip_fraction": 0.1, "tokens_per_turn": 5.0}


@pytest.mark.parametrize(
    ("lines", "word"),
    [
        ([{**GOOD, "explained_variance": -0.1}] * 3, "explained variance"),
        ([GOOD, {**GOOD, "entropy": 0.01}], "entropy fell"),
        ([{**GOOD, "clip_fraction": 0.4}], "clipped"),
        ([{**GOOD, "zero_variance_groups": 0.95}], "equal outcomes"),
        ([GOOD, {**GOOD, "tokens_per_turn": 20.0}], "messages grew"),
        ([{**GOOD, "sampler_gap": 0.5}], "sampler and learner"),
    ],
)
def test_an_alarm_says_what_is_wrong(lines: list[dict[str, float]], word: str) -> None:
    assert any(word in said for said in alarms(lines))


def test_a_healthy_run_is_silent() -> None:
    assert alarms([GOOD, GOOD, {**GOOD, "entropy": 0.02, "success": 0.97}]) == []
