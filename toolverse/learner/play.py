"""Playing for the learner: batches of episodes on training or held-out instances, and success on a panel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import gymnasium

from toolverse.envs.base import derive_seed
from toolverse.envs.lookup import make_chat_env
from toolverse.learner.distributed import ALONE, World
from toolverse.learner.recipe import Recipe
from toolverse.learner.sampler import Sampler
from toolverse.rollout.batch import BatchPolicy, play_batch
from toolverse.rollout.stats import wilson
from toolverse.rollout.stream import play_stream
from toolverse.rollout.tokens import TokenTrajectory
from toolverse.types import JSON

PANEL_SEED = 7_919
"""Held-out instances are a function of this number alone: every run of a recipe is measured on the same panel."""


class Closing(Protocol):
    """A sampler that can say what context would come next."""

    def closing(
        self, index: int, messages: Sequence[dict[str, JSON]], info: dict[str, Any]
    ) -> tuple[list[int], bool]: ...


class LastInfo(gymnasium.Wrapper[str, str, str, str]):
    """Keeps the info of the last reset or step: what the state after an episode's last observation is rendered from."""

    last_info: dict[str, Any]

    def reset(self, **arguments: Any) -> tuple[str, dict[str, Any]]:
        observation, self.last_info = self.env.reset(**arguments)
        return observation, self.last_info

    def step(self, action: str) -> tuple[str, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, self.last_info = self.env.step(action)
        return observation, reward, terminated, truncated, self.last_info


class Arena:
    """The environments of one side of a recipe, made once and reused.

    Args:
        held_out: the side for evaluation; its settings come on top of the common ones.
        width: episodes that run at the same time.
    """

    def __init__(self, recipe: Recipe, *, held_out: bool, width: int) -> None:
        self._id, self._settings, self._width = recipe.env.id, recipe.env.on_side(held_out=held_out), width
        self._closing: dict[int, tuple[list[int], bool]] = {}

    @cached_property
    def envs(self) -> list[LastInfo]:
        """Made when they are first needed: a crew's workers have their own."""
        return [
            LastInfo(make_chat_env(self._id, disable_env_checker=True, **self._settings)) for _ in range(self._width)
        ]

    def play(self, policy: BatchPolicy, seeds: Sequence[int]) -> list[TokenTrajectory]:
        """One episode per seed; equal seeds are one group. At most as many as there are environments, unless the policy
        streams."""
        groups = [str(seed) for seed in seeds]
        self._closing = {}
        if not (isinstance(policy, Sampler) and policy.streams):
            return play_batch(self.envs[: len(seeds)], policy, seeds, group_ids=groups)
        out: dict[int, TokenTrajectory] = {}
        for i, trajectory, info in play_stream(self.envs, policy, seeds, group_ids=groups):
            out[i] = trajectory
            if _was_cut(trajectory):  # now: the environment plays another episode next
                self._closing[i] = policy.closing(i, trajectory.chat(), info)
        return [out[i] for i in range(len(seeds))]

    def play_many(self, policy: BatchPolicy, seeds: Sequence[int]) -> list[TokenTrajectory]:
        """Any number of episodes, `width` at a time."""
        if isinstance(policy, Sampler) and policy.streams:
            return self.play(policy, seeds)
        out: list[TokenTrajectory] = []
        for first in range(0, len(seeds), len(self.envs)):
            out += self.play(policy, seeds[first : first + len(self.envs)])
        return out

    def closing_contexts(self, sampler: Closing, trajectories: Sequence[TokenTrajectory]) -> dict[int, list[int]]:
        """Of the truncated trajectories just played: the tokens of the whole context after the last observation."""
        out: dict[int, list[int]] = {}
        for i, trajectory in enumerate(trajectories):
            if not _was_cut(trajectory):
                continue
            known = self._closing.get(i)
            ids, restart = known or sampler.closing(i, trajectory.chat(), self.envs[i].last_info)
            out[i] = ids if restart else [*trajectory.path_ids(), *ids]
        return out

    def close(self) -> None:
        for env in self.__dict__.get("envs", ()):
            env.close()


def _was_cut(trajectory: TokenTrajectory) -> bool:
    return bool(trajectory.turns) and trajectory.turns[-1].truncated


def training_seeds(run_seed: int, update: int, episodes: int, group_size: int) -> list[int]:
    """Instance seeds of one update: a pure function of its arguments; each seed `group_size` times in a row."""
    root = derive_seed(run_seed, update)
    return [derive_seed(root, i // group_size) for i in range(episodes)]


def panel_seeds(count: int) -> list[int]:
    """Seeds of the held-out panel."""
    return [derive_seed(PANEL_SEED, i) for i in range(count)]


def score_interval(mean: float, episodes: int) -> tuple[float, float]:
    """Wilson's 95 % interval at a mean score: an outer bound, since no score in [0, 1] varies more than a coin of its mean."""
    found = wilson(min(mean * episodes, episodes), episodes)
    return found.low, found.high


@dataclass(frozen=True)
class Success:
    """Success on a panel, with the Wilson 95 % interval."""

    successes: int
    episodes: int
    mean_score: float
    mean_turns: float

    @property
    def rate(self) -> float:
        return self.successes / self.episodes

    @property
    def interval(self) -> tuple[float, float]:
        found = wilson(self.successes, self.episodes)
        return found.low, found.high


def success_of(played: Sequence[TokenTrajectory], episodes: int, world: World = ALONE) -> Success:
    """Success over the episodes of all processes, of which this one played `played`."""
    successes, scores, turns = world.total(
        [
            sum(trajectory.success for trajectory in played),
            sum(trajectory.score for trajectory in played),
            sum(len(trajectory.turns) for trajectory in played),
        ]
    )
    return Success(
        successes=round(successes), episodes=episodes, mean_score=scores / episodes, mean_turns=turns / episodes
    )
