"""Streams: episodes out of step with one another, each answered as soon as its message is done.

In a batch (`play_batch`) all wait for the longest message of a turn, and the last ones play on among empty places. In a stream
an environment is stepped when its message ends, and reset with the next seed when its episode does: what a policy that samples
for many rows at once needs to keep them all busy.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import gymnasium

from toolverse.envs.base import ChatEnv
from toolverse.rollout.episode import Recorder, labels_of, take
from toolverse.rollout.tokens import TokenTrajectory
from toolverse.types import JSON


class StreamPolicy(Protocol):
    """Answers many episodes, each when it is ready."""

    name: str

    def begin_stream(self, width: int) -> None:
        """A new stream, of at most `width` episodes at a time."""
        ...

    def begin(self, index: int, env: ChatEnv, seed: int) -> None:
        """Episode `index` of the stream starts; they start in the order of their numbers."""
        ...

    def ask(self, index: int, messages: list[dict[str, JSON]], info: dict[str, Any]) -> None:
        """An episode that is not being answered wants its next message."""
        ...

    def answers(self) -> Sequence[tuple[int, str | None]]:
        """Works until at least one of those that asked has its answer; there is at least one that asked."""
        ...

    def end(self, index: int) -> None:
        """An episode is over: its place is free."""
        ...


def play_stream(
    envs: Sequence[gymnasium.Env[str, str]],
    policy: StreamPolicy,
    seeds: Sequence[int],
    *,
    group_ids: Sequence[str] | None = None,
) -> Iterator[tuple[int, TokenTrajectory, dict[str, Any]]]:
    """Play one episode per seed, as many at a time as there are environments.

    Args:
        envs: chat environments; each plays one episode after the other.
        group_ids: one per seed.

    Yields:
        As episodes end: place in `seeds`, trajectory, and the last info that the environment gave.
    """
    clock = time.perf_counter
    width = min(len(envs), len(seeds))
    policy.begin_stream(width)
    recorders: dict[int, Recorder] = {}
    infos: dict[int, dict[str, Any]] = {}
    places: dict[int, int] = {}
    asked: dict[int, float] = {}
    waiting = iter(range(len(seeds)))

    def start(place: int) -> None:
        index = next(waiting, None)
        if index is None:
            return
        env = envs[place]
        core = env.unwrapped
        assert isinstance(core, ChatEnv)
        labels = labels_of(env, policy, seeds[index], group_ids[index] if group_ids else "", None)
        recorders[index], places[index] = Recorder(core.prompt_kind, **labels), place
        observation, infos[index] = env.reset(seed=seeds[index])
        recorders[index].opened(observation, infos[index])
        policy.begin(index, core, seeds[index])
        ask(index)

    def ask(index: int) -> None:
        asked[index] = clock()
        policy.ask(index, recorders[index].messages, infos[index])

    for place in range(width):
        start(place)
    while recorders:
        for index, action in policy.answers():
            recorder, env = recorders[index], envs[places[index]]
            found = take(env, recorder, action, policy_latency_s=clock() - asked[index])
            infos[index] = infos[index] if found is None else found
            if not recorder.over:
                ask(index)
                continue
            policy.end(index)
            yield index, recorder.trajectory(), infos.pop(index)
            del recorders[index], asked[index]
            start(places.pop(index))
