"""One episode: the four lines of the contract, with everything that happened kept as a trajectory.

Every way of playing (alone, in threads, in a native batch, from a snapshot) writes its turns through one `Recorder`, so all of
them give the same trajectory for the same messages.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, SupportsFloat

import gymnasium

from toolverse.envs.base import INFO_KEYS, ChatEnv, derive_seed
from toolverse.envs.messages import PARSERS
from toolverse.rollout.tokens import Finish, TokenTrajectory, TokenTurn, TurnTokens, Usage
from toolverse.types import JSON


class Reply(str):
    """A policy's message: a plain string for the environment, with what else the sampler knows.

    Args:
        text: what the environment is stepped with.
        message: the chat message for the history where it holds more than the text (structured tool calls).
        tokens, usage, finish: see `TokenTurn`.
        give_up: the episode ends here, truncated with this reason, and the environment is not stepped.
    """

    message: dict[str, JSON] | None
    tokens: TurnTokens | None
    usage: Usage | None
    finish: Finish
    give_up: str | None

    def __new__(
        cls,
        text: str,
        *,
        message: dict[str, JSON] | None = None,
        tokens: TurnTokens | None = None,
        usage: Usage | None = None,
        finish: Finish = "unknown",
        give_up: str | None = None,
    ) -> Reply:
        self = super().__new__(cls, text)
        self.message, self.tokens, self.usage = message, tokens, usage
        self.finish, self.give_up = finish, give_up
        return self

    def __getnewargs_ex__(self) -> tuple[tuple[str], dict[str, Any]]:
        return (str(self),), dict(self.__dict__)


class Policy(Protocol):
    """Whoever answers. `name` is what reports call it."""

    name: str

    def begin(self, env: ChatEnv, seed: int) -> None:
        """A new episode has been reset; a scripted policy may look at `env`, a model must not."""
        ...

    def act(self, messages: list[dict[str, JSON]], info: dict[str, Any]) -> str | None:
        """The next assistant message (a `Reply` where the sampler knows more than the text); None gives up."""
        ...


class Recorder:
    """A trajectory in the making. Readable at any moment, also from another thread while the episode hangs.

    Args:
        labels: what the trajectory is filed under (`env_id`, `policy`, `seed`, `group_id`, `policy_version`, `metadata`).
    """

    on_turn: Callable[[], None] | None = None
    """Called when the episode opens and after each recorded turn."""

    def __init__(self, prompt_kind: str, **labels: Any) -> None:
        self._kind = prompt_kind
        self._parse = PARSERS[prompt_kind]
        self._labels = labels
        self._opening: tuple[dict[str, JSON], ...] = ()
        self._tools: tuple[dict[str, JSON], ...] = ()
        self._first: tuple[str, str | None] = ("", None)
        self._first_score = 0.0
        self._task_id = ""
        self._turns: list[TokenTurn] = []
        self._ended: str | None = None
        self.messages: list[dict[str, JSON]] = []

    def opened(self, observation: str, info: Mapping[str, Any]) -> None:
        """The environment has been reset."""
        self._opening = tuple(info["messages"])
        self._tools = tuple(info["tools"] or ())
        self._first = (observation, info["state_hash"])
        self._first_score = info["score"]
        self._task_id = info["task_id"]
        # What a family says about its instances (the type of a task, say), for tables.
        extras = {k: v for k, v in info.items() if k not in INFO_KEYS and isinstance(v, (str, int, float))}
        if extras:
            self._labels = {**self._labels, "metadata": {**self._labels.get("metadata", {}), "info": extras}}
        self.messages = list(self._opening)
        if self.on_turn is not None:
            self.on_turn()

    @property
    def over(self) -> bool:
        """The episode has ended, or was cut."""
        return self._ended is not None or (
            bool(self._turns) and (self._turns[-1].terminated or self._turns[-1].truncated)
        )

    @property
    def turns(self) -> Sequence[TokenTurn]:
        return self._turns

    def played(
        self,
        action: str,
        result: tuple[str, SupportsFloat, bool, bool, Mapping[str, Any]],
        *,
        latency_s: float | None = None,
        policy_latency_s: float | None = None,
    ) -> None:
        """One message and what `step` returned for it."""
        observation, reward, terminated, truncated, info = result
        parsed = self._parse(action)
        self._append(
            action,
            policy_latency_s,
            messages_delta=tuple(info["messages_delta"]),
            observation=observation,
            tool_calls=parsed.calls,
            reward=float(reward),
            terminated=bool(terminated),
            truncated=bool(truncated),
            truncation_reason=info["truncation_reason"],
            action_valid=info["action_valid"],
            parse_error=info["parse_error"],
            milestones=tuple(info["milestones"]),
            score=info["score"],
            state_hash=info["state_hash"],
            subgoal=parsed.subgoal,
            is_boundary=bool(parsed.switch) or not self._turns,
            latency_s=latency_s,
        )
        self.messages.extend(info["messages_delta"])

    def not_played(self, action: str, reason: str, *, policy_latency_s: float | None = None) -> None:
        """A message that was sampled but not given to the environment: the episode is truncated at it, without reward."""
        score = self._turns[-1].score if self._turns else self._first_score
        self._append(
            action,
            policy_latency_s,
            truncated=True,
            truncation_reason=reason,
            # Success belongs to what the environment saw, and it had not ended: an unplayed message can't carry a score of 1.
            score=min(score, 1.0 - 1e-9),
            is_boundary=not self._turns,
        )

    def cut(self, reason: str) -> None:
        """The episode goes no further: its last turn is truncated with this reason (no effect on an ended episode)."""
        if not self.over:
            self._ended = reason
            if self._turns:
                self._turns[-1] = self._turns[-1].model_copy(update={"truncated": True, "truncation_reason": reason})

    def trajectory(self) -> TokenTrajectory:
        """What happened so far. An episode without turns that was cut says why in `metadata["ended"]`."""
        turns = tuple(self._turns)
        score = turns[-1].score if turns else self._first_score
        labels = dict(self._labels)
        if self._ended is not None and not turns:
            labels["metadata"] = {**labels.get("metadata", {}), "ended": self._ended}
        return TokenTrajectory(
            task_id=self._task_id,
            prompt=self._kind,
            opening=self._opening,
            tools=self._tools,
            first_observation=self._first[0],
            first_state_hash=self._first[1],
            turns=turns,
            success=score == 1.0,
            score=score,
            **labels,
        )

    def _append(self, action: str, policy_latency_s: float | None, **fields: Any) -> None:
        index = len(self._turns)
        message: dict[str, JSON] | None = None
        known: dict[str, Any] = {}
        if isinstance(action, Reply):
            message = action.message
            known = {"tokens": action.tokens, "usage": action.usage, "finish": action.finish}
        self._turns.append(
            TokenTurn(
                index=index,
                parent=index - 1 if index else None,
                action=str(action),
                message=message,
                policy_latency_s=policy_latency_s,
                **known,
                **fields,
            )
        )
        self.messages.append(message or {"role": "assistant", "content": str(action)})
        if self.on_turn is not None:
            self.on_turn()


def env_id_of(env: gymnasium.Env[str, str]) -> str:
    """The id an environment was made by."""
    core = env.unwrapped
    assert isinstance(core, ChatEnv)
    return env.spec.id if env.spec is not None else f"toolverse/{core.family}-v0"


def play(
    env: gymnasium.Env[str, str],
    policy: Policy,
    *,
    seed: int = 0,
    options: dict[str, Any] | None = None,
    attempt: int = 0,
    group_id: str = "",
    metadata: dict[str, JSON] | None = None,
    token_budget: int | None = None,
    watch: Callable[[Recorder], Callable[[], None]] | None = None,
) -> TokenTrajectory:
    """Play one episode and return it.

    A reply that ran into its own token limit is never scored as a parse error: the episode is truncated at it
    ("max_tokens"), the environment does not see it, and rewards earned before stay as they are. An episode that the policy
    gives up is truncated with reason "policy_gave_up".

    Args:
        seed, attempt: the world starts from the seed; the policy draws from both, so that the attempts of a group differ.
        token_budget: sampled tokens that the whole episode may use (a turn's own limit is the policy's business); once they
            are used up, the episode is truncated with reason "token_budget".
        watch: is given the recorder before the episode opens, and returns what to call after each turn: for a caller that
            has to see the turns of an episode that hangs.
    """
    core = env.unwrapped
    assert isinstance(core, ChatEnv)
    recorder = Recorder(core.prompt_kind, **labels_of(env, policy, seed, group_id, metadata))
    if watch is not None:
        recorder.on_turn = watch(recorder)
    observation, info = env.reset(seed=seed, options=options)
    recorder.opened(observation, info)
    policy.begin(core, policy_seed(seed, attempt))
    advance(env, policy, recorder, info, token_budget=token_budget)
    return recorder.trajectory()


def policy_seed(seed: int, attempt: int) -> int:
    """What a policy draws from: the world's own seed in the first attempt, another one in each further attempt at it."""
    return derive_seed(seed, attempt) if attempt else seed


class Named(Protocol):
    """Has the name that reports call it."""

    name: str


def labels_of(
    env: gymnasium.Env[str, str], policy: Named, seed: int, group_id: str, metadata: dict[str, JSON] | None
) -> dict[str, Any]:
    """What a `Recorder` files an episode under."""
    return {
        "env_id": env_id_of(env),
        "policy": policy.name,
        "policy_version": str(getattr(policy, "version", "")),
        "seed": seed,
        "group_id": group_id,
        "metadata": metadata or {},
    }


def advance(
    env: gymnasium.Env[str, str],
    policy: Policy,
    recorder: Recorder,
    info: dict[str, Any],
    *,
    token_budget: int | None = None,
) -> None:
    """Play a reset (or restored) environment to its end, turn by turn."""
    used = 0
    while not recorder.over:
        asked = time.perf_counter()
        action = policy.act(recorder.messages, info)
        found = take(env, recorder, action, policy_latency_s=time.perf_counter() - asked)
        if found is None:
            return
        info = found
        used += recorder.turns[-1].completion_tokens()
        if token_budget is not None and used >= token_budget:
            recorder.cut("token_budget")


def take(
    env: gymnasium.Env[str, str], recorder: Recorder, action: str | None, *, policy_latency_s: float
) -> dict[str, Any] | None:
    """Put a policy's answer into its episode: the environment is stepped with it, or the episode ends here.

    Returns:
        The info after the step; None if there was none.
    """
    if action is None:
        recorder.cut("policy_gave_up")
        return None
    if isinstance(action, Reply):
        reason = action.give_up or ("max_tokens" if action.finish == "length" else None)
        if reason is not None:
            recorder.not_played(action, reason, policy_latency_s=policy_latency_s)
            return None
    started = time.perf_counter()
    result = env.step(action)
    recorder.played(action, result, latency_s=time.perf_counter() - started, policy_latency_s=policy_latency_s)
    return result[4]
