"""Policies that are no model (the expert, a noisy one, chance, nobody, a person, a record), and how users name them all."""

from __future__ import annotations

import copy
import dataclasses
import functools
import random
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from toolverse.envs.base import ChatEnv, derive_seed
from toolverse.envs.messages import write_command
from toolverse.errors import InvalidInputError
from toolverse.rollout.calls import RandomCallsPolicy
from toolverse.rollout.endpoint import Endpoint, EndpointPolicy, EndpointSettings
from toolverse.rollout.episode import Policy
from toolverse.rollout.files import read_trajectories
from toolverse.types import JSON, Trajectory, Turn


class ExpertPolicy:
    """The family's reference agent: knows the hidden state. Gives up where the family has no expert."""

    name = "reference"
    waits_openly = True

    def begin(self, env: ChatEnv, seed: int) -> None:
        self._env = env

    def act(self, messages: list[dict[str, JSON]], info: dict[str, Any]) -> str | None:
        return self._env.expert_action()


class RandomPolicy:
    """A uniformly drawn admissible action, in the format of the environment's prompt kind."""

    name = "random"
    waits_openly = True

    def begin(self, env: ChatEnv, seed: int) -> None:
        self._kind = env.prompt_kind
        self._rng = random.Random(derive_seed(seed, 1))

    def act(self, messages: list[dict[str, JSON]], info: dict[str, Any]) -> str | None:
        choices = info["admissible_actions"]
        return write_command(self._kind, self._rng.choice(choices)) if choices else None


class NoopPolicy:
    """Does nothing: the floor that every reward must keep at zero. Where tools are offered it claims to be done."""

    name = "noop"
    waits_openly = True

    def begin(self, env: ChatEnv, seed: int) -> None:
        self._said = "Done." if env.prompt_kind == "tools" else ""

    def act(self, messages: list[dict[str, JSON]], info: dict[str, Any]) -> str | None:
        return self._said


class ScriptedPolicy:
    """Says the given messages in order, then gives up."""

    waits_openly = True

    def __init__(self, actions: Sequence[str], name: str = "scripted") -> None:
        self.name = name
        self._actions = tuple(actions)

    def begin(self, env: ChatEnv, seed: int) -> None:
        self._left = iter(self._actions)

    def act(self, messages: list[dict[str, JSON]], info: dict[str, Any]) -> str | None:
        return next(self._left, None)


class ChancePolicy:
    """Chance in any world: random calls of the tools on offer where there are tools, random admissible actions elsewhere."""

    name = "random"
    waits_openly = True

    def begin(self, env: ChatEnv, seed: int) -> None:
        self._policy: Policy = RandomCallsPolicy() if env.prompt_kind == "tools" else RandomPolicy()
        self._policy.begin(env, seed)

    def act(self, messages: list[dict[str, JSON]], info: dict[str, Any]) -> str | None:
        return self._policy.act(messages, info)


class NoisyExpert:
    """The expert, with a share of its turns replaced by random admissible actions: imperfect demonstrations, a ladder of
    difficulty, and off-policy states that the expert has to come back from.

    Args:
        noise: probability of a random turn, in [0, 1]; one draw per turn from the episode's seed.
    """

    waits_openly = True

    def __init__(self, noise: float) -> None:
        if not 0.0 <= noise <= 1.0:
            raise InvalidInputError(f"noise {noise}", where="NoisyExpert", expected="a share between 0 and 1")
        self.noise = noise
        self.name = f"noisy-{noise:g}"

    def begin(self, env: ChatEnv, seed: int) -> None:
        self._expert, self._random = ExpertPolicy(), ChancePolicy()
        self._expert.begin(env, seed)
        self._random.begin(env, seed)
        self._rng = random.Random(derive_seed(seed, 2))

    def act(self, messages: list[dict[str, JSON]], info: dict[str, Any]) -> str | None:
        if self._rng.random() < self.noise and (action := self._random.act(messages, info)) is not None:
            return action
        return self._expert.act(messages, info)


class HumanPolicy:
    """Somebody at a terminal.

    Args:
        ask: shows a text and returns the typed line, None at the end of input.
    """

    name = "human"

    def __init__(self, ask: Callable[[str], str | None]) -> None:
        self._ask = ask

    def begin(self, env: ChatEnv, seed: int) -> None:
        self._shown = 0
        self._kind = env.prompt_kind

    def act(self, messages: list[dict[str, JSON]], info: dict[str, Any]) -> str | None:
        fresh = [str(m["content"]) for m in messages[self._shown :] if m["role"] != "assistant"]
        self._shown = len(messages)
        line = self._ask("\n".join(fresh))
        return None if line is None else write_command(self._kind, line)


class ReplayPolicy:
    """Says what was said in recorded episodes, found by task and first state; gives up where the record ends.

    `diverged` counts turns after which the environment's state differed from the record: zero in a deterministic world.
    """

    name = "replay"
    waits_openly = True

    def __init__(self, trajectories: Iterable[Trajectory]) -> None:
        self._recorded: dict[tuple[str, str | None], list[Trajectory]] = {}
        for trajectory in trajectories:
            self._recorded.setdefault((trajectory.task_id, trajectory.first_state_hash), []).append(trajectory)
        self._played: dict[tuple[str, str | None], int] = {}
        self.diverged = 0

    def begin(self, env: ChatEnv, seed: int) -> None:
        self._path: tuple[Turn, ...] | None = None
        self._next = 0

    def act(self, messages: list[dict[str, JSON]], info: dict[str, Any]) -> str | None:
        if self._path is None:
            key = (info["task_id"], info["state_hash"])
            attempts = self._recorded.get(key, [])
            # Several attempts at one task are played in the order of the record.
            attempt = self._played.get(key, 0)
            self._played[key] = attempt + 1
            self._path = attempts[attempt % len(attempts)].path() if attempts else ()
        if 0 < self._next <= len(self._path):
            before = self._path[self._next - 1].state_hash
            self.diverged += before is not None and before != info["state_hash"]
        if self._next >= len(self._path):
            return None
        self._next += 1
        return self._path[self._next - 1].action


def make_policy(spec: str, *, endpoint: EndpointSettings | None = None) -> Callable[[], Policy]:
    """From what a user types to a factory of policies, one per episode.

    Args:
        spec: `reference`, `random`, `noop`, `noisy:0.2`, `replay:FILE`, or the url of an OpenAI-compatible server.
        endpoint: settings for a url; its `url` is replaced by `spec`.

    Raises:
        InvalidInputError: none of these.
    """
    simple: dict[str, Callable[[], Policy]] = {
        "reference": ExpertPolicy,
        "random": ChancePolicy,
        "noop": NoopPolicy,
    }
    kind, _, rest = spec.partition(":")
    if spec in simple:
        return simple[spec]
    if kind == "noisy":
        try:
            return functools.partial(NoisyExpert, float(rest))
        except ValueError as error:
            raise InvalidInputError(f"policy {spec!r}", expected="noisy:SHARE, such as noisy:0.2") from error
    if kind == "replay":
        # Copies share the counters of attempts, and each has its own position.
        return functools.partial(copy.copy, ReplayPolicy(read_trajectories(rest)))
    if kind in ("http", "https"):
        if endpoint is None or not endpoint.model:
            raise InvalidInputError("a server needs the name of its model", where=spec, fix="add --model NAME")
        return EndpointFactory(dataclasses.replace(endpoint, url=spec))
    raise InvalidInputError(
        f"unknown policy {spec!r}", expected=f"{', '.join(simple)}, noisy:SHARE, replay:FILE or the url of a server"
    )


class EndpointFactory:
    """Makes `EndpointPolicy`s that share one `Endpoint` per process. Pickles as its settings."""

    def __init__(self, settings: EndpointSettings) -> None:
        self.settings = settings
        self._endpoint: Endpoint | None = None
        self._lock = threading.Lock()

    @property
    def endpoint(self) -> Endpoint:
        with self._lock:
            if self._endpoint is None:
                self._endpoint = Endpoint(self.settings)
            return self._endpoint

    def __call__(self) -> Policy:
        return EndpointPolicy(self.endpoint)

    def close(self) -> None:
        """Close the connections; a later episode opens new ones."""
        with self._lock:
            endpoint, self._endpoint = self._endpoint, None
        if endpoint is not None:
            endpoint.close()

    def __reduce__(self) -> tuple[type[EndpointFactory], tuple[EndpointSettings]]:
        return EndpointFactory, (self.settings,)
