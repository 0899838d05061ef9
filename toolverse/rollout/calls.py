"""Players of `toolverse.tasks.agents` as policies: the reference of a task, random valid calls, nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from toolverse.envs.base import ChatEnv, derive_seed
from toolverse.envs.messages import write_calls, write_command
from toolverse.tasks.agents import RANDOM_CALLS, Player, play_random
from toolverse.types import JSON, Task, ToolCall, ToolSpec


class RandomCallsPolicy:
    """Random calls that keep to the schemas of the tools on offer, then some value that was seen as the answer."""

    name = "random"
    waits_openly = True

    def __init__(self, calls: int = RANDOM_CALLS) -> None:
        self._calls = calls

    def begin(self, env: ChatEnv, seed: int) -> None:
        self._kind = env.prompt_kind
        self._seed = derive_seed(seed, 1)
        self._player: Player | None = None

    def act(self, messages: list[dict[str, JSON]], info: dict[str, Any]) -> str | None:
        try:
            if self._player is None:
                tools = {str(tool["function"]["name"]): _spec(tool["function"]) for tool in info["tools"] or ()}
                if not tools:
                    return None
                task = Task(task_id=info["task_id"] or "none", env_id="any", instruction=_request(messages))
                self._player = play_random(task, tools, self._seed, calls=self._calls)
                name, arguments = next(self._player)
            else:
                name, arguments = self._player.send(_result(messages))
        except StopIteration as stop:
            return write_command(self._kind, str(stop.value))
        if self._kind == "tools":
            return write_calls([ToolCall(name=name, arguments=arguments)])
        return write_command(self._kind, json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False))


def _spec(function: dict[str, Any]) -> ToolSpec:
    return ToolSpec(name=function["name"], input_schema=function.get("parameters") or {"type": "object"})


def _request(messages: Sequence[dict[str, JSON]]) -> str:
    return next((str(message["content"]) for message in reversed(messages) if message["role"] == "user"), "")


def _result(messages: Sequence[dict[str, JSON]]) -> JSON:
    """What the last call returned, as JSON if it is JSON."""
    text = str(messages[-1]["content"])
    try:
        return json.loads(text)
    except ValueError:
        return {"text": text}
