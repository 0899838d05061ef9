"""The environment contract: one class that every text environment derives from.

A chat trainer needs four lines::

    observation, info = env.reset(seed=0)
    messages = info["messages"]                       # the opening chat
    while not (terminated or truncated):
        messages.append({"role": "assistant", "content": (text := model(messages, info["tools"]))})
        observation, reward, terminated, truncated, info = env.step(text)
        messages += info["messages_delta"]            # what the environment says to it

`observation` is the engine's new text of this turn only, the action is the assistant's raw message, and **every string is a
legal action**: what can't be read is an outcome (the observation says what was wrong, `info["parse_error"]` has the code), never
an exception. `terminated` means that the task ended by its own rules, `truncated` that it was cut off
(`info["truncation_reason"]` says by what); never both. Stepping an ended episode changes nothing and gives reward 0.

`info` is fresh at every call, deterministic and JSON-able; every key of `INFO_KEYS` is always present, None where it does not
apply. A family may add keys of its own, which are then always present too.

A family implements the hooks under "What a family writes"; nothing else of Gymnasium, chat or prompts belongs into it.
"""

from __future__ import annotations

import abc
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, Self

import gymnasium
from gymnasium.utils import seeding

from toolverse.envs.messages import PARSERS, PROMPT_KINDS, Parsed, parse_bare, write_calls, write_command
from toolverse.envs.prompts import Past, Prompt
from toolverse.envs.snapshots import SNAPSHOT_VERSION, Snapshot
from toolverse.envs.spaces import UnicodeText
from toolverse.errors import EnvironmentStateError, InvalidInputError, SnapshotError
from toolverse.types import JSON, ToolCall, ToolSpec, tool_message

SnapshotKind = Literal["native", "replay", "none"]

INFO_KEYS: Final = (
    "messages",  # list of chat messages: the opening chat, at reset, else None
    "messages_delta",  # list of chat messages to append
    "tools",  # list of OpenAI tool entries, at reset and when they changed, else None
    "tools_hash",  # str, None without tools
    "admissible_actions",  # list of str, None where the family can't or should not list them
    "success",  # bool
    "score",  # float in [0, 1]; 1.0 exactly if success
    "action_valid",  # bool: the message was read and the engine accepted it; True at reset
    "parse_error",  # one of `messages.PARSE_ERRORS`, or None
    "milestones",  # list of ids latched in this step
    "turn",  # int: turns played since reset
    "state_hash",  # str: equal states have equal hashes, in every process
    "task_id",  # str: names the instance
    "truncation_reason",  # str if truncated, else None
)


@dataclass(slots=True)
class Opening:
    """What a family returns from `_begin`: the first observation and what the agent is asked to do.

    `task` fills the prompt's `{task}`; `task_id` names the instance, equal for equal instances.
    """

    observation: str
    task: str
    task_id: str


@dataclass(slots=True)
class Outcome:
    """What one command did.

    `valid` is False if the engine refused the command; `error` is a code of `messages.PARSE_ERRORS` if it could not be read.
    """

    observation: str
    reward: float = 0.0
    terminated: bool = False
    truncation_reason: str | None = None
    valid: bool = True
    error: str | None = None
    milestones: Sequence[str] = ()


def derive_seed(root: int, index: int) -> int:
    """A 63-bit seed as a pure function of two integers: the counter-based generator behind every instance."""
    digest = hashlib.blake2b(f"{root}:{index}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def stable_hash(value: JSON) -> str:
    """16 hex digits over the canonical JSON text of `value`."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


class ChatEnv(gymnasium.Env[str, str], abc.ABC):
    """The chat face of a family. See the module docstring for the contract.

    Args:
        prompt: how a message is parsed and what `info["messages*"]` hold (`messages.PROMPT_KINDS`); the observation is the
            engine's text in every case.
        prompt_file: a TOML file with templates of the user's own (see `prompts.Prompt.load`).
        max_turns: the episode is truncated after this many turns.
        observation_max_chars: longer observations are cut in the middle, with a marker that says how much is missing.
        message_max_chars: longest legal action; only the action space's bound, longer strings are read all the same.
        render_mode: None, "ansi", or what else the family offers.
    """

    family: ClassVar[str]
    """Name of the family, as in `toolverse/<Family>-v0`."""
    default_prompt: ClassVar[str] = "bare"
    keys: ClassVar[Mapping[str, str]] = {}
    """For people who play: single keys, as a terminal sends them, that stand for messages."""
    snapshot_kind: SnapshotKind = "native"
    waits_openly: ClassVar[bool] = False
    """See `toolverse.waiting`."""
    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012 (Gymnasium's own convention)

    def __init__(
        self,
        *,
        prompt: str | None = None,
        prompt_file: str | Path | None = None,
        max_turns: int = 50,
        observation_max_chars: int = 20_000,
        message_max_chars: int = 100_000,
        render_mode: str | None = None,
    ) -> None:
        kind = self.default_prompt if prompt is None else prompt
        if kind not in PROMPT_KINDS:
            raise InvalidInputError(
                f"unknown prompt {kind!r}", where=self.family, expected=f"one of {', '.join(PROMPT_KINDS)}"
            )
        if max_turns < 1:
            raise InvalidInputError(f"max_turns is {max_turns}", where=self.family, expected="at least 1")
        if observation_max_chars < 200:
            raise InvalidInputError(
                f"observation_max_chars is {observation_max_chars}", where=self.family, expected="at least 200"
            )
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise InvalidInputError(
                f"unknown render_mode {render_mode!r}",
                where=self.family,
                expected=f"one of {self.metadata['render_modes']} or None",
            )
        self.prompt_kind = kind
        self.max_turns = max_turns
        self.observation_max_chars = observation_max_chars
        self.render_mode = render_mode
        self.observation_space = UnicodeText(observation_max_chars)
        self.action_space = UnicodeText(message_max_chars)
        self._parse = PARSERS[kind]
        self.prompt = Prompt.load(prompt_file, kind) if prompt_file is not None else self._default_prompt(kind)
        self._root_seed: int | None = None
        self._episode = -1
        self._turn = 0
        self._over: str | None = "not reset"
        self._task_id = ""
        self._task_text = ""
        self._observation = ""
        self._tools: list[dict[str, JSON]] | None = None
        self._tools_hash: str | None = None
        self._tools_text = ""
        self._tools_made_of: tuple[ToolSpec, ...] | None = None

    @property
    def prompt(self) -> Prompt:
        """The templates in use."""
        return self._prompt

    @prompt.setter
    def prompt(self, prompt: Prompt) -> None:
        self._prompt = prompt
        self._turn_is_plain = prompt.turn_is_plain

    # What a family writes -----------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def _begin(self, seed: int, options: Mapping[str, Any]) -> Opening:
        """Start the instance that `options` name, or else make one from `seed` (an integer in [0, 2**63))."""

    @abc.abstractmethod
    def _act(self, command: str) -> Outcome:
        """Execute one command of the engine's language. Any string is legal."""

    @abc.abstractmethod
    def _score(self) -> float:
        """Progress in [0, 1] in the current state; 1.0 exactly on success."""

    @abc.abstractmethod
    def _state_hash(self) -> str:
        """Equal states have equal hashes, in every process and under any PYTHONHASHSEED. No turn counters."""

    @abc.abstractmethod
    def _save(self) -> JSON:
        """The engine's state as a JSON value that playing on does not change, all that `_load` needs in a fresh environment with
        the same settings. `_load` may get it as it is or read back from JSON (tuples are lists then)."""

    @abc.abstractmethod
    def _load(self, state: JSON) -> None:
        """Inverse of `_save`; must not share mutable state with the saved value."""

    @abc.abstractmethod
    def _default_prompt(self, kind: str) -> Prompt:
        """The family's own templates for one prompt kind."""

    def _success(self) -> bool:
        return self._score() == 1.0

    def _admissible(self) -> list[str] | None:
        """Commands that the engine would accept now, in its own order; a fresh list."""
        return None

    def _extra(self) -> dict[str, JSON]:
        """The family's own info keys: the same ones at every call."""
        return {}

    def _tool_specs(self) -> Sequence[ToolSpec]:
        """The tools offered under `prompt="tools"`; asked at every reset."""
        return ()

    def _call(self, call: ToolCall) -> Outcome:
        """Execute one tool call under `prompt="tools"`."""
        return Outcome(f"There is no tool named {call.name!r}.", valid=False, error="unknown_tool")

    def _answer(self, text: str) -> Outcome:
        """A message without a tool call under `prompt="tools"`. A world that is only acted upon has no use for it."""
        return Outcome("Nothing was done: the message holds no tool call.", valid=False, error="no_tag")

    def _expert(self) -> str | Sequence[ToolCall] | None:
        """The reference agent's next command (or calls, or final answer, under `prompt="tools"`); None if it gives up."""
        return None

    def _refuse(self, parsed: Parsed) -> Outcome:
        """A message that could not be read. It costs a turn, so that an episode always ends."""
        return Outcome(f"Nothing was done: {parsed.detail}", valid=False, error=parsed.error)

    def _spec_settings(self) -> dict[str, JSON]:
        """Settings that decide what a saved state means; snapshots fit only environments with equal ones."""
        return {}

    # Gymnasium's face ---------------------------------------------------------------------------------------------------

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start an episode: the instance named in `options`, or one made from the seed.

        With a seed the instance is a function of that seed; without, the n-th reset after `reset(seed=s)` gives the n-th
        instance of `s` (a counter, so the sequence is the same on every machine).
        """
        super().reset(seed=seed)
        if seed is not None:
            self._root_seed, self._episode = seed, -1
        elif self._root_seed is None:
            # Never seeded: entropy from the operating system, as Gymnasium does it.
            self._root_seed = int(seeding.np_random(None)[1]) % 2**63
        self._episode += 1
        opening = self._begin(derive_seed(self._root_seed, self._episode), options or {})
        self._turn = 0
        self._over = None
        self._task_id, self._task_text = opening.task_id, opening.task
        observation = self._observation = self._cut(opening.observation)
        if self.prompt_kind == "tools" and (specs := tuple(self._tool_specs())) != self._tools_made_of:
            # A hundred schemas take longer to write out and to hash than a world takes to start over.
            self._tools_made_of = specs
            self._tools = [spec.to_openai() for spec in specs]
            self._tools_hash = stable_hash(self._tools)
            self._tools_text = json.dumps(self._tools)
        admissible = self._admissible()
        info = self._info(self.prompt.opening(self._fields(observation, admissible)), [], admissible, True, None, ())
        if self._tools is not None:
            # A fresh copy: parsing JSON is three times as fast as copying it.
            info["tools"] = json.loads(self._tools_text)
        return observation, info

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if self._over is not None:
            if self._over == "not reset":
                raise EnvironmentStateError("step before reset", where=self.family, fix="call env.reset() first")
            return self._stand_still()
        delta = None
        if self._parse is parse_bare:
            # What its `Parsed` would say, without making one: the hot path of word games.
            outcome = self._act(action.strip())
        elif (parsed := self._parse(action)).error is not None:
            outcome = self._refuse(parsed)
        elif parsed.command is not None:
            outcome = self._act(parsed.command)
        elif parsed.calls:
            outcome, delta = self._run_calls(parsed.calls)
        else:
            outcome = self._answer(parsed.answer or "")
        self._turn += 1
        observation = outcome.observation
        if len(observation) > self.observation_max_chars:
            observation = self._cut(observation)
        self._observation = observation
        terminated = outcome.terminated
        reason = None
        if not terminated:
            reason = outcome.truncation_reason
            if reason is None and self._turn >= self.max_turns:
                reason = "max_turns"
        if terminated or reason is not None:
            self._over = reason or "terminated"
        admissible = self._admissible()
        if delta is None:
            if self._turn_is_plain:
                delta = [{"role": "user", "content": observation}]
            else:
                delta = self.prompt.turn(self._fields(observation, admissible))
        info = self._info(None, delta, admissible, outcome.valid, outcome.error, outcome.milestones)
        info["truncation_reason"] = reason
        return observation, outcome.reward, terminated, reason is not None, info

    def render(self) -> Any:
        """The current text under "ansi"; other modes are the family's."""
        if self.render_mode == "ansi":
            return self._observation
        return None

    def expert_action(self) -> str | None:
        """The reference agent's next message, written as this prompt kind wants it; None if the family has no expert or the
        expert has given up (a level already lost, say). Looks at the hidden state; changes nothing."""
        move = self._expert()
        if move is None or isinstance(move, str):
            return None if move is None else write_command(self.prompt_kind, move)
        return write_calls(move)

    def window(
        self, history: Sequence[Past], *, subgoal: str = "", history_length: int | None = None
    ) -> list[dict[str, JSON]]:
        """A whole prompt for the present turn alone, for agents whose chat does not grow; see `Prompt.window`."""
        fields = self._fields(self._observation, self._admissible())
        return self._prompt.window(fields, history, subgoal=subgoal, history_length=history_length)

    def painted(self) -> Sequence[tuple[str, str]]:
        """The last observation for people: parts of it with a style of the `rich` library each."""
        return [(self._observation, "")]

    def picture(self) -> Any:
        """The present state as an (height, width, 3) uint8 array; None if the family draws nothing."""
        return None

    # Snapshots ----------------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """The state of the running (or ended) episode.

        Raises:
            EnvironmentStateError: before the first reset.
            SnapshotError: `snapshot_kind` is "none".
        """
        if self._over == "not reset":
            raise EnvironmentStateError("snapshot before reset", where=self.family, fix="call env.reset() first")
        if self.snapshot_kind == "none":
            raise SnapshotError("this environment can't be snapshotted", where=self.family)
        state = (
            self._root_seed,
            self._episode,
            self._turn,
            self._over,
            self._task_id,
            self._task_text,
            self._observation,
            self._tools,
            self._save(),
        )
        return Snapshot.of(self._env_id, self._spec_hash, state, self._state_hash())

    def restore(self, snapshot: Snapshot) -> None:
        """Continue from `snapshot`, taken from an environment with the same id and settings, in any process.

        Raises:
            SnapshotError: it belongs to another environment, other settings or another version of the format.
        """
        if snapshot.version != SNAPSHOT_VERSION:
            raise SnapshotError(
                f"snapshot format {snapshot.version}", where=self.family, expected=f"format {SNAPSHOT_VERSION}"
            )
        if snapshot.env_id != self._env_id or snapshot.spec_hash != self._spec_hash:
            raise SnapshotError(
                f"the snapshot was taken from {snapshot.env_id} with settings {snapshot.spec_hash}",
                where=f"{self._env_id} with settings {self._spec_hash}",
                fix="make the environment with the same arguments",
            )
        self._adopt(snapshot.state)

    def _adopt(self, state: Sequence[JSON]) -> None:
        """Take over a snapshot's state; it stays untouched, so that several clones may read it."""
        (
            self._root_seed,
            self._episode,
            self._turn,
            self._over,
            self._task_id,
            self._task_text,
            self._observation,
            tools,
            engine,
        ) = state
        if tools is not self._tools:
            self._tools, self._tools_made_of = tools, None
            self._tools_hash = None if tools is None else stable_hash(tools)
        self._load(engine)

    def fork(self, n: int) -> list[Self]:
        """`n` independent environments (without wrappers) in the state of this one."""
        state = self.snapshot().state
        clones = []
        for _ in range(n):
            # As `copy.copy` does it, without its detour over pickling.
            clone = object.__new__(type(self))
            clone.__dict__.update(self.__dict__)
            clone._np_random = None
            clone._adopt(state)
            clones.append(clone)
        return clones

    # Inside -------------------------------------------------------------------------------------------------------------

    @property
    def last_observation(self) -> str:
        """The observation of the last reset or step."""
        return self._observation

    @property
    def task_text(self) -> str:
        """What the agent is asked to do, as the prompt's `{task}`."""
        return self._task_text

    @property
    def is_over(self) -> bool:
        """The episode has ended (or none was started)."""
        return self._over is not None

    @property
    def _env_id(self) -> str:
        return self.spec.id if self.spec is not None else f"toolverse/{self.family}-v0"

    @property
    def _spec_hash(self) -> str:
        cached = self.__dict__.get("_spec_hash_value")
        if cached is None:
            settings = {"prompt": self.prompt_kind, "max_turns": self.max_turns, **self._spec_settings()}
            cached = self._spec_hash_value = stable_hash(settings)
        return cached

    def _fields(self, observation: str, admissible: list[str] | None) -> dict[str, Any]:
        return {
            "observation": observation,
            "task": self._task_text,
            "admissible_actions": admissible or [],
            "turn": self._turn,
            "turns_left": self.max_turns - self._turn,
        }

    def _info(
        self,
        messages: list[dict[str, JSON]] | None,
        delta: list[dict[str, JSON]],
        admissible: list[str] | None,
        valid: bool,
        error: str | None,
        milestones: Sequence[str],
    ) -> dict[str, Any]:
        score = self._score()
        return {
            "messages": messages,
            "messages_delta": delta,
            "tools": None,
            "tools_hash": self._tools_hash,
            "admissible_actions": admissible,
            "success": score == 1.0,
            "score": score,
            "action_valid": valid,
            "parse_error": error,
            "milestones": list(milestones),
            "turn": self._turn,
            "state_hash": self._state_hash(),
            "task_id": self._task_id,
            "truncation_reason": None,
            **self._extra(),
        }

    def _stand_still(self) -> tuple[str, float, bool, bool, dict[str, Any]]:
        info = self._info(None, [], self._admissible(), False, None, ())
        terminated = self._over == "terminated"
        info["truncation_reason"] = None if terminated else self._over
        return self._observation, 0.0, terminated, not terminated, info

    def _run_calls(self, calls: Sequence[ToolCall]) -> tuple[Outcome, list[dict[str, JSON]]]:
        """Execute the calls of one message in order; an end of the episode answers the rest with a fixed text."""
        total = Outcome("")
        texts: list[str] = []
        delta: list[dict[str, JSON]] = []
        milestones: list[str] = []
        for call in calls:
            if total.terminated or total.truncation_reason is not None:
                text = "Not executed: the episode is over."
            else:
                one = self._call(call)
                text = self._cut(one.observation)
                total.reward += one.reward
                total.terminated, total.truncation_reason = one.terminated, one.truncation_reason
                total.valid = total.valid and one.valid
                total.error = total.error or one.error
                milestones.extend(one.milestones)
            texts.append(text)
            delta.append(tool_message(text, name=call.name, call_id=call.id))
        total.observation = "\n".join(texts)
        total.milestones = milestones
        return total, delta

    def _cut(self, text: str) -> str:
        limit = self.observation_max_chars
        if len(text) <= limit:
            return text
        marker = f"\n[... {len(text) - limit} characters left out ...]\n"
        keep = limit - len(marker)
        return text[: keep - keep // 4] + marker + text[len(text) - keep // 4 :]
