"""Batches: one policy call per turn for all running episodes.

What in-process models need (one forward pass for many prompts), over families that step in microseconds: threads would do
nothing for either. The trajectories are the same as with `play`. The environments are stepped one after the other and not
through a Gymnasium vector, which spends more on merging 14 info keys per environment than the fast families on the step.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol

import gymnasium

from toolverse.envs.base import ChatEnv
from toolverse.errors import InvalidInputError
from toolverse.rollout.episode import Policy, Recorder, labels_of, policy_seed, take
from toolverse.rollout.tokens import TokenTrajectory
from toolverse.types import JSON


class BatchPolicy(Protocol):
    """Answers many episodes at once."""

    name: str

    def begin_batch(self, envs: Sequence[ChatEnv], seeds: Sequence[int]) -> None:
        """New episodes, one per environment."""
        ...

    def act_batch(
        self, indices: Sequence[int], messages: Sequence[list[dict[str, JSON]]], infos: Sequence[dict[str, Any]]
    ) -> Sequence[str | None]:
        """One message for each running episode; `indices` say which of the batch they are."""
        ...


class Batched:
    """A policy per episode behind the batch interface."""

    def __init__(self, policies: Sequence[Policy]) -> None:
        self.name = policies[0].name if policies else ""
        self._policies = list(policies)

    def begin_batch(self, envs: Sequence[ChatEnv], seeds: Sequence[int]) -> None:
        for policy, env, seed in zip(self._policies, envs, seeds, strict=True):
            policy.begin(env, seed)

    def act_batch(
        self, indices: Sequence[int], messages: Sequence[list[dict[str, JSON]]], infos: Sequence[dict[str, Any]]
    ) -> Sequence[str | None]:
        return [self._policies[i].act(chat, info) for i, chat, info in zip(indices, messages, infos, strict=True)]


def play_batch(
    envs: Sequence[gymnasium.Env[str, str]],
    policy: BatchPolicy,
    seeds: Sequence[int],
    *,
    options: Sequence[dict[str, Any] | None] | None = None,
    attempts: Sequence[int] | None = None,
    group_ids: Sequence[str] | None = None,
    metadata: Sequence[dict[str, JSON]] | None = None,
) -> list[TokenTrajectory]:
    """Play one episode in each environment; trajectories in their order.

    Args:
        envs: chat environments (those of a `TurnVectorEnv` are its `.envs`).
        seeds: one per environment; equal seeds make a group, whose `attempts` count from 0.
        options, attempts, group_ids, metadata: one per environment, or None.
    """
    n = len(envs)
    lists = {"seeds": seeds, "options": options, "attempts": attempts, "group_ids": group_ids, "metadata": metadata}
    for name, given in lists.items():
        if given is not None and len(given) != n:
            raise InvalidInputError(f"{len(given)} {name} for {n} environments", where="play_batch")
    cores: list[ChatEnv] = [env.unwrapped for env in envs]  # type: ignore[misc]
    recorders: list[Recorder] = []
    infos: list[dict[str, Any]] = []
    for i, (env, core) in enumerate(zip(envs, cores, strict=True)):
        labels = labels_of(env, policy, seeds[i], group_ids[i] if group_ids else "", metadata[i] if metadata else None)
        recorders.append(Recorder(core.prompt_kind, **labels))
        observation, info = env.reset(seed=seeds[i], options=options[i] if options else None)
        recorders[i].opened(observation, info)
        infos.append(info)
    policy.begin_batch(cores, [policy_seed(seed, attempts[i] if attempts else 0) for i, seed in enumerate(seeds)])
    clock = time.perf_counter
    while running := [i for i in range(n) if not recorders[i].over]:
        asked = clock()
        said = policy.act_batch(running, [recorders[i].messages for i in running], [infos[i] for i in running])
        thought = (clock() - asked) / len(running)
        for i, action in zip(running, said, strict=True):
            found = take(envs[i], recorders[i], action, policy_latency_s=thought)
            infos[i] = infos[i] if found is None else found
    return [recorder.trajectory() for recorder in recorders]
