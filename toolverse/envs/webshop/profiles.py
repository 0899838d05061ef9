"""Protocols under which WebShop results are published: which goals, which reward, how many turns.

A profile decides nothing else: the observation is the engine's page under every profile, `info["score"]` the engine's reward.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from toolverse.envs.base import derive_seed
from toolverse.envs.webshop.goals import Draws, GoalList
from toolverse.envs.webshop.lint import is_reachable
from toolverse.envs.webshop.splits import CANONICAL_DRAWS, PROTOCOL_TEST_SIZE, canonical_part
from toolverse.errors import InvalidInputError

UPSTREAM_SHUFFLE: Final = 233

Picker = Callable[[int], int]
"""From an instance seed to a goal index."""


@dataclass(frozen=True, slots=True)
class Profile:
    """One protocol.

    Args:
        draws: from the engine's `seed` (and `predraw`) to the random draws behind its goal list.
        splits: names that `split=` takes; the first is the default.
        picker: makes the picker of one split of one goal list.
        reward: from the engine's reward at the purchase to the reward that `step` returns.
        max_turns: default episode length.
    """

    name: str
    draws: Callable[[int, bool], Draws]
    splits: tuple[str, ...]
    picker: Callable[[GoalList, str], Picker]
    reward: Callable[[float], float]
    max_turns: int


def _plain(score: float) -> float:
    return score


def _tenfold_success(score: float) -> float:
    return 10.0 if score == 1.0 else 0.0


def _success(score: float) -> float:
    return float(score == 1.0)


REWARDS: Final[dict[str, Callable[[float], float]]] = {"score": _plain, "success": _success}
"""From the engine's reward at the purchase to the one that `step` returns, by name."""


def _strict_picker(goals: GoalList, split: str) -> Picker:
    """Uniform over one side of the canonical split, unreachable goals passed over."""
    indices = range(len(goals)) if split == "all" else canonical_part(goals, split).indices

    def pick(seed: int) -> int:
        index = indices[seed % len(indices)]
        for attempt in range(1000):
            index = indices[derive_seed(seed, attempt) % len(indices)]
            goal = goals[index]
            if is_reachable(goals.table.catalogue[goal.asin], goal):
                break
        return index

    if not len(indices):
        raise InvalidInputError(
            f"no goal is on side {split!r} of the canonical split",
            where=goals.table.catalogue.name,
            fix="use split='all'",
        )
    return pick


_UPSTREAM_RANGES: Final = {"test": (0, 500), "dev": (500, 1500), "train": (1500, None)}


def _upstream_picker(goals: GoalList, split: str) -> Picker:
    """ "all" draws by weight, as the original does for a new session; a split is a range of positions, drawn evenly."""
    if split == "all":
        return lambda seed: goals.draw(random.Random(seed))
    return _range_picker(goals, *_UPSTREAM_RANGES[split])


def _verl_picker(goals: GoalList, split: str) -> Picker:
    test = (0, PROTOCOL_TEST_SIZE)
    return _range_picker(goals, *(test if split == "test" else (PROTOCOL_TEST_SIZE, None)))


def _range_picker(goals: GoalList, start: int, end: int | None) -> Picker:
    indices = range(len(goals))[start:end]
    if not indices:
        raise InvalidInputError(
            f"the protocol's split begins at goal {start}, and there are {len(goals)} goals",
            where=goals.table.catalogue.name,
            expected="a larger catalogue",
            fix="use profile='strict', whose split fits any size",
        )
    return lambda seed: indices[seed % len(indices)]


def _ragen_picker(goals: GoalList, split: str) -> Picker:
    """A fixed permutation of all positions, in which test, dev and train are ranges."""
    order = list(range(len(goals)))
    random.Random(42).shuffle(order)
    inside = _range_picker(goals, *_UPSTREAM_RANGES[split])
    return lambda seed: order[inside(seed)]


PROFILES: Final[dict[str, Profile]] = {
    profile.name: profile
    for profile in (
        Profile(
            name="strict",
            # One list for everybody: `seed` picks goals, it does not reorder them.
            draws=lambda seed, predraw: CANONICAL_DRAWS,
            splits=("train", "dev", "test", "all"),
            picker=_strict_picker,
            reward=_plain,
            max_turns=50,
        ),
        Profile(
            name="upstream",
            draws=lambda seed, predraw: Draws(seed, UPSTREAM_SHUFFLE, predraw),
            splits=("all", "train", "dev", "test"),
            picker=_upstream_picker,
            reward=_plain,
            max_turns=100,
        ),
        Profile(
            name="verl_agent",
            draws=lambda seed, predraw: Draws(seed, seed, predraw),
            splits=("train", "test"),
            picker=_verl_picker,
            reward=_tenfold_success,
            max_turns=15,
        ),
        Profile(
            name="ragen",
            draws=lambda seed, predraw: Draws(seed, UPSTREAM_SHUFFLE, predraw),
            splits=("train", "dev", "test"),
            picker=_ragen_picker,
            reward=_plain,
            max_turns=9,
        ),
    )
}


def profile_named(name: str, split: str | None) -> tuple[Profile, str]:
    """The profile, and the split to use.

    Raises:
        InvalidInputError: unknown profile, or a split it does not have.
    """
    profile = PROFILES.get(name)
    if profile is None:
        raise InvalidInputError(f"unknown profile {name!r}", where="WebShop", expected=f"one of {', '.join(PROFILES)}")
    if split is None:
        return profile, profile.splits[0]
    if split not in profile.splits:
        raise InvalidInputError(
            f"unknown split {split!r}", where=f"WebShop, profile {name}", expected=f"one of {', '.join(profile.splits)}"
        )
    return profile, split
