"""Small stand-ins for rollout tests: a tokenizer whose merges depend on the neighbours, templates, scripted samplers."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import gymnasium

from toolverse.envs.base import ChatEnv, Opening, Outcome
from toolverse.envs.prompts import Prompt
from toolverse.types import JSON, ToolCall, ToolSpec

SPECIAL = ("<|im_start|>", "<|im_end|>", "<|end|>")
CHATML = (
    "{%- for message in messages -%}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{%- endfor -%}"
    "{%- if add_generation_prompt -%}<|im_start|>assistant\n{%- endif -%}"
).replace("\n", "{{ '\\n' }}")
TRIMMING = CHATML.replace("{{ message.content }}", "{{ message.content | trim }}")
# Old reasoning disappears once the next user message is there, as in several thinking templates.
FORGETFUL = CHATML.replace(
    "{{ message.content }}",
    "{{ message.content.split('</think>')[-1] if not loop.last else message.content }}",
)
# The generation prompt opens a block that the history does not have.
OPENS_THINK = CHATML.replace("<|im_start|>assistant{{ '\\n' }}{%- endif", "<|im_start|>assistant<think>{%- endif")


class PairTokeniser:
    """Special tokens are single ids; other text is read left to right in pairs where it can: re-encoding the text of ids
    that were sampled as single characters gives other ids, as with real tokenizers."""

    def encode(self, text: str) -> list[int]:
        ids: list[int] = []
        for part in re.split("(" + "|".join(map(re.escape, SPECIAL)) + ")", text):
            if part in SPECIAL:
                ids.append(SPECIAL.index(part))
                continue
            i = 0
            while i < len(part):
                pair = part[i : i + 2]
                if len(pair) == 2 and pair.isalpha() and pair.isascii():
                    ids.append(1_000_000 + ord(pair[0]) * 128 + ord(pair[1]))
                    i += 2
                else:
                    ids.append(10 + ord(part[i]))
                    i += 1
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self._text(i) for i in ids)

    def singles(self, text: str) -> list[int]:
        """Another tokenization of the same text: one id per character."""
        return [10 + ord(c) for c in text]

    @staticmethod
    def _text(i: int) -> str:
        if i < len(SPECIAL):
            return SPECIAL[i]
        if i >= 1_000_000:
            return chr((i - 1_000_000) // 128) + chr((i - 1_000_000) % 128)
        return chr(i - 10)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


class Echo(ChatEnv):
    """Two tools; `finish` ends the episode with success."""

    family = "Echo"
    default_prompt = "tools"

    def _begin(self, seed: int, options: Any) -> Opening:
        self._done = False
        return Opening("Say hello.", "Say hello.", f"echo-{seed}")

    def _act(self, command: str) -> Outcome:
        return Outcome(command)

    def _tool_specs(self) -> Sequence[ToolSpec]:
        return [ToolSpec(name="say.hello/now"), ToolSpec(name="finish")]

    def _call(self, call: ToolCall) -> Outcome:
        self._done = call.name == "finish"
        return Outcome(f"{call.name} {call.arguments}", reward=float(self._done), terminated=self._done)

    def _score(self) -> float:
        return float(self._done)

    def _state_hash(self) -> str:
        return str(self._done)

    def _save(self) -> JSON:
        return self._done

    def _load(self, state: JSON) -> None:
        self._done = state

    def _default_prompt(self, kind: str) -> Prompt:
        return Prompt(system="You have tools.")


class Corridor(ChatEnv):
    """Walk right to the end; 2 to 4 steps, by the seed. A milestone on the first step, reward 1 at the end. Falls off to the
    left. With a seed of `hang_seeds` a step waits for `hang` (or for ever); `die` names a file: while it is absent, a step
    creates it and kills the process."""

    family = "Corridor"
    default_prompt = "bare"
    hang: Any = None

    def __init__(self, *, hang_seeds: Sequence[int] = (), die: Any = None, delay_s: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.hang_seeds, self.die, self.delay_s = tuple(hang_seeds), die, delay_s

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self._outer_seed = seed
        return super().reset(seed=seed, options=options)

    def _begin(self, seed: int, options: Any) -> Opening:
        self.length = int(options.get("length", 2 + seed % 3))
        self.at = 0
        return Opening("You stand at 0.", "Walk right.", f"corridor-{self.length}")

    def _act(self, command: str) -> Outcome:
        if self.delay_s:
            time.sleep(self.delay_s)
        if self._outer_seed in self.hang_seeds:
            (self.hang or threading.Event()).wait(60)
        if self.die is not None and not os.path.exists(self.die):
            open(self.die, "x").close()
            os.kill(os.getpid(), signal.SIGKILL)
        if command not in ("left", "right"):
            return Outcome("No such move.", valid=False, error="unknown_action")
        self.at += 1 if command == "right" else -1
        done = self.at == self.length
        first = command == "right" and self.at == 1
        return Outcome(
            f"You stand at {self.at}.",
            reward=float(done),
            terminated=done or self.at < 0,
            milestones=("first-step",) if first else (),
        )

    def _score(self) -> float:
        return max(0.0, self.at / self.length)

    def _admissible(self) -> list[str]:
        return ["left", "right"]

    def _expert(self) -> str:
        return "right"

    def _state_hash(self) -> str:
        return f"{self.length}:{self.at}"

    def _save(self) -> JSON:
        return [self.length, self.at, self._outer_seed]

    def _load(self, state: JSON) -> None:
        self.length, self.at, self._outer_seed = state

    def _default_prompt(self, kind: str) -> Prompt:
        return Prompt(opening_text="{task} {observation}")


if "test/Corridor-v0" not in gymnasium.registry:
    gymnasium.register("test/Corridor-v0", entry_point="rollout_toys:Corridor")


class OpenCorridor(Corridor):
    """A corridor that waits openly: for as long as `gate` says in each step. `seen` collects the threads that stepped it."""

    waits_openly = True
    gate: Callable[[OpenCorridor], None] | None = None
    seen: ClassVar[set[int]] = set()
    closed: ClassVar[list[int]] = []

    def _act(self, command: str) -> Outcome:
        self.seen.add(threading.get_ident())
        if OpenCorridor.gate is not None:
            OpenCorridor.gate(self)
        return super()._act(command)

    def close(self) -> None:
        self.closed.append(self._outer_seed or 0)
        super().close()


if "test/OpenCorridor-v0" not in gymnasium.registry:
    gymnasium.register("test/OpenCorridor-v0", entry_point="rollout_toys:OpenCorridor")


def slow_mcp(*, delay_s: float, **settings: Any) -> gymnasium.Env[str, str]:
    """MCP servers that answer each call after `delay_s`: a remote tool, without the remote."""
    from toolverse.envs.mcp.env import McpEnv
    from toolverse.mcp import loop

    class SlowMcp(McpEnv):
        waits_openly = True

        def _call(self, call: ToolCall) -> Outcome:
            # Where a session waits for its server.
            loop.run(asyncio.sleep(delay_s))
            return super()._call(call)

    return SlowMcp(**settings)


if "test/SlowMcp-v0" not in gymnasium.registry:
    gymnasium.register("test/SlowMcp-v0", entry_point="rollout_toys:slow_mcp")


def corridor(**settings: Any) -> gymnasium.Env[str, str]:
    return gymnasium.make("test/Corridor-v0", **{"max_turns": 12, **settings})
