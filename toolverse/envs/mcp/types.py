"""What an MCP environment is set up from: the scene of a task, and the names its tools are offered under."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from pydantic import Field, model_validator

from toolverse.types import Model, ToolSpec

Transport = Literal["in_process", "stdio"]


class WorldSpec(Model):
    """The world behind the bundled servers of a scene. `acting_as` None: whoever the seed makes the user."""

    seed: int = Field(default=0, ge=0, lt=2**63)
    size: str = "small"
    acting_as: str | None = None


class SceneCall(Model):
    """A call that the scene makes itself, unseen by the agent."""

    server: str = Field(min_length=1)
    tool: str = Field(min_length=1)
    arguments: dict[str, Any] = Field(default_factory=dict)

    @property
    def id(self) -> str:
        """`server.tool`."""
        return f"{self.server}.{self.tool}"


class Scene(Model):
    """`Task.env_config` of this family: which servers, over which world, and how the others are launched.

    `servers` are names of the catalogue, or of `launch`, in the order in which their tools are offered. `launch`
    holds server configurations as `ServerConfig.public()` writes them: secrets are references, looked up when the
    episode starts. `max_turns` is the task's own limit; the environment's is the upper bound.

    What is known of servers without a world: `setup` are calls made at every reset, before the agent's first turn.
    `read_back` are reads whose results are the state: `state` predicates find them under `/read_back/<name>`, without
    the `volatile` places (JSON pointers by `server.tool`) that differ between equal calls. `reads` are tools
    (`server.tool`) that were seen to change nothing: after them the state is not looked at again.
    """

    servers: tuple[str, ...] = Field(min_length=1)
    world: WorldSpec = WorldSpec()
    launch: dict[str, dict[str, Any]] = Field(default_factory=dict)
    max_turns: int | None = Field(default=None, ge=1)
    setup: tuple[SceneCall, ...] = ()
    read_back: dict[str, SceneCall] = Field(default_factory=dict)
    reads: tuple[str, ...] = ()
    volatile: dict[str, tuple[str, ...]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _names(self) -> Scene:
        if len(set(self.servers)) != len(self.servers):
            raise ValueError("a server is named twice")
        if unused := set(self.launch) - set(self.servers):
            raise ValueError(f"launch holds servers that the scene does not name: {sorted(unused)}")
        if unknown := {call.server for call in (*self.setup, *self.read_back.values())} - set(self.servers):
            raise ValueError(f"setup or read_back name servers that the scene does not: {sorted(unknown)}")
        return self


@dataclass(frozen=True)
class Offered:
    """One tool of a scene: where it is, and the name under which a model may call it."""

    server: str
    tool: ToolSpec
    name: str

    @property
    def id(self) -> str:
        """`server.tool`: the name in tasks, predicates and graphs."""
        return f"{self.server}.{self.tool.name}"

    @cached_property
    def spec(self) -> ToolSpec:
        """The tool as the agent sees it."""
        return self.tool.model_copy(update={"name": self.name})

    @cached_property
    def line(self) -> str:
        """`spec` as a line of JSON."""
        return json.dumps(self.spec.to_openai()["function"], ensure_ascii=False)


class Toolset:
    """The tools on offer, in order, found by the names that models use for them.

    The offered name is `server__tool`: endpoints take only letters, digits, `_` and `-`, at most 64, and the prefix
    keeps one server from shadowing the tool of another. `server.tool`, and the bare name where it is not ambiguous,
    are understood too.
    """

    def __init__(self, tools: Sequence[Offered]) -> None:
        self.tools = tuple(tools)
        self._by_name: dict[str, Offered] = {}
        bare: dict[str, list[Offered]] = {}
        for offered in tools:
            bare.setdefault(offered.tool.name, []).append(offered)
        for name, found in bare.items():
            if len(found) == 1:
                self._by_name[name] = found[0]
        self._by_name.update({offered.id: offered for offered in tools})
        self._by_name.update({offered.name: offered for offered in tools})

    def find(self, name: str) -> Offered | None:
        """The tool that a model means by `name`."""
        return self._by_name.get(name)

    def names(self) -> list[str]:
        """The offered names, in order."""
        return [offered.name for offered in self.tools]


def offered_name(server: str, tool: str) -> str:
    """The name a tool is offered under."""
    return wire_name(f"{server}__{tool}")


def wire_name(name: str) -> str:
    """A name that every endpoint takes: letters, digits, `_` and `-`, at most 64.

    Names that had to be changed or cut carry a short hash, so that they stay apart.
    """
    clean = re.sub(r"[^A-Za-z0-9_-]", "_", name)
    if clean == name and 0 < len(name) <= 64:
        return name
    return f"{clean[:55]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"
