"""The stage of an episode: its servers, opened, and the world behind them. No Gymnasium, no chat.

Bundled servers share one world. In process they list their tools over the protocol, and calls go to the handler
behind it: the protocol adds a third of a millisecond and, on a busy machine, the wait for another thread. Over stdio
each is a process on one database file, into which this process looks as well; the texts are the same. So either way
the state is known, and a snapshot is the world's own. Other servers are started afresh for each episode in a folder
of their own; their state is only known by what was called, so a snapshot is the list of calls, played again.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolverse.checks.values import parse_pointer, without
from toolverse.envs.base import SnapshotKind, stable_hash
from toolverse.envs.mcp.types import Offered, Scene, SceneCall, Toolset, Transport, offered_name
from toolverse.errors import InvalidInputError, NotFoundError, ServerError
from toolverse.mcp import loop, results
from toolverse.mcp.catalog import Entry, World, entry
from toolverse.mcp.config import EPISODE_DIR, ResetTool, ServerConfig
from toolverse.mcp.results import ToolResult
from toolverse.mcp.session import Session
from toolverse.types import JSON

if TYPE_CHECKING:
    from toolverse.mcp.sdk import Peer

logger = logging.getLogger("toolverse.envs.mcp")

MAX_FOLDS = 32
"""Deeper than this a result is taken as it is."""

HASTY_S = 0.1
"""How long a server that is declared to keep nothing may take to leave; node's never leave by themselves."""

_LISTED: dict[str, tuple[Offered, ...]] = {}
"""What bundled servers offer in process. It is the same over every world, so each is asked once, and not by every stage."""


class Stage:
    """The opened servers of a scene. `reset` brings everything back to the first minute."""

    def __init__(self, scene: Scene, configs: Mapping[str, ServerConfig], transport: Transport) -> None:
        self.scene = scene
        self.transport = transport
        self._entries: dict[str, Entry] = {name: entry(name) for name in scene.servers if name not in configs}
        self._configs = {
            **{name: known.config() for name, known in self._entries.items() if not known.bundled},
            **configs,
        }
        self._bundled = [name for name, known in self._entries.items() if known.bundled]
        self._worlds: dict[str, World] = {}
        self._starts: dict[str, bytes] = {}
        self._sessions: dict[str, Session] = {}
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._calls: list[list[JSON]] = []
        self._toolset = Toolset(())

    @property
    def snapshot_kind(self) -> SnapshotKind:
        """native if every server is bundled, none if one is remote (its state is nobody's to restore), else replay."""
        if any(config.transport == "http" and config.reset is None for config in self._configs.values()):
            return "none"
        return "replay" if self._configs else "native"

    @property
    def toolset(self) -> Toolset:
        """All usable tools of the servers, in the scene's order. Known once the stage is open."""
        return self._toolset

    @property
    def briefing(self) -> str:
        """What the worlds tell the acting user about himself; empty without a world."""
        return "\n\n".join(world.briefing for world in self._worlds.values())

    def reset(self) -> None:
        """Open what is not open, go back to the start, and make the scene's own calls.

        Raises:
            ServerError: a server can't be started, or refuses a call of the scene's setup.
            InvalidInputError, NotFoundError: what the scene names does not exist, or a secret is not set.
        """
        self._calls = []
        if not self._toolset.tools:
            self._open()
        else:
            for name, world in self._worlds.items():
                world.restore(self._starts[name])
            if self._configs:
                self._restart(list(self._configs))
        for call in self.scene.setup:
            result = self._perform(call)
            if result.is_error:
                raise ServerError(
                    f"refused a call of the scene's setup: {result.text[:300]}",
                    where=f"server {call.server!r}, {call.tool}",
                    fix="the server has changed since the task was made, or does not start in the same state every time",
                )

    def _open(self) -> None:
        try:
            world = self.scene.world
            for name in self._bundled:
                known = self._entries[name]
                if known.world not in self._worlds:
                    database = str(self._own_folder() / "world.sqlite") if self.transport == "stdio" else None
                    opened = known.open_world(
                        seed=world.seed, size=world.size, acting_as=world.acting_as, database=database
                    )
                    self._worlds[known.world] = opened
                    self._starts[known.world] = opened.snapshot()
            in_process = self._bundled if self.transport == "in_process" else []
            self._restart([name for name in self.scene.servers if name not in in_process or name not in _LISTED])
            listed = {name: tuple(self._list_tools(name)) for name in self._sessions}
            _LISTED.update({name: listed[name] for name in in_process if name in listed})
            self._toolset = Toolset(
                [offered for name in self.scene.servers for offered in listed.get(name) or _LISTED[name]]
            )
            self._end(in_process)
        except BaseException:
            self.close()
            raise

    def _restart(self, names: Sequence[str]) -> None:
        """Close and open the sessions of these servers, all at once, those that are not bundled in a new folder."""

        if not names:
            return
        self._end(names)

        async def restart() -> None:
            if self._configs:
                shutil.rmtree(self._own_folder() / "servers", ignore_errors=True)
            opened = await asyncio.gather(*(self._open_one(name) for name in names), return_exceptions=True)
            self._sessions.update(
                {name: session for name, session in zip(names, opened, strict=True) if isinstance(session, Session)}
            )
            for failure in opened:
                if isinstance(failure, BaseException):
                    raise failure

        loop.run(restart())

    def _end(self, names: Sequence[str]) -> None:
        ending = [self._sessions.pop(name) for name in names if name in self._sessions]

        async def end() -> None:
            await asyncio.gather(*(session.aclose() for session in ending))

        if ending:
            loop.run(end())

    async def _open_one(self, name: str) -> Session:
        if name in self._configs:
            folder = self._own_folder() / "servers" / name
            config, fresh = isolated(self._configs[name], folder)
            session = await Session.aopen(config, environ=fresh)
            if isinstance(config.reset, ResetTool):
                try:
                    await _forget(session, config.reset)
                except BaseException:
                    await session.aclose()
                    raise
            return session
        known, world = self._entries[name], self.scene.world
        if self.transport == "in_process":
            server = known.protocol_server(self._worlds[known.world])
            config = ServerConfig(name=name, target=known.server, trusted=True)
            return await Session.aopen(config, server)
        database = str(self._own_folder() / "world.sqlite")
        config = known.config(database=database, seed=world.seed, size=world.size, acting_as=world.acting_as)
        return await Session.aopen(config)

    def _list_tools(self, name: str) -> Iterator[Offered]:
        for tool in self._sessions[name].tools().tools:
            yield Offered(name, tool, offered_name(name, tool.name))

    def call(self, offered: Offered, arguments: dict[str, JSON]) -> ToolResult:
        """Call a tool.

        Raises:
            ServerTimeoutError, ServerClosedError: there was no answer.
        """
        if offered.server in self._configs:
            self._calls.append([offered.server, offered.tool.name, arguments])
        elif self.transport == "in_process":
            return self._handle(offered, arguments)
        return self._sessions[offered.server].call(offered.tool.name, arguments)

    def _perform(self, call: SceneCall) -> ToolResult:
        """A call of the scene itself.

        Raises:
            NotFoundError: the server does not offer the tool.
        """
        offered = self._toolset.find(call.id)
        if offered is None:
            raise NotFoundError(
                f"offers no tool {call.tool!r}", where=f"server {call.server!r}", fix="the server has changed since"
            )
        if call.server not in self._configs and self.transport == "in_process":
            return self._handle(offered, call.arguments)
        return self._sessions[call.server].call(call.tool, call.arguments)

    def look_back(self, name: str) -> JSON:
        """The state as the scene's read-back `name` tells it: the result without its volatile places, None if it is refused.

        The call is part of the server's history (its counters may move), but not of what the agent did.
        """
        call = self.scene.read_back[name]
        self._calls.append([call.server, call.tool, call.arguments, "read_back"])
        try:
            result = self._perform(call)
        except ServerError:
            return None
        offered = self._toolset.find(call.id)
        return None if result.is_error or offered is None else self.read(offered, result)

    def read(self, offered: Offered, result: ToolResult) -> JSON:
        """What predicates look into. Of servers that are not bundled: texts that are JSON read as such (two spellings of one
        object are the same), and without the places that differ between equal calls."""
        document = document_of(result)
        if offered.server not in self._configs:
            return document
        return without(unfolded(document), [parse_pointer(path) for path in self.scene.volatile.get(offered.id, ())])

    def _handle(self, offered: Offered, arguments: dict[str, JSON]) -> ToolResult:
        """A call of a bundled server without the protocol; what it would refuse or guard against is here too."""
        if unsendable := results.unsendable(arguments):
            return unsendable
        world = self._worlds[self._entries[offered.server].world]
        try:
            answer = world.call(offered.server, offered.tool.name, arguments)
        except Exception:
            logger.exception("%s failed", offered.id)
            return results.failed("The server failed; nothing was changed.")
        return ToolResult(answer.text, answer.content, answer.is_error)

    def peer(self, name: str) -> Peer:
        """What a server said about itself. Known while its session is open."""
        return self._sessions[name].peer

    def only_reads(self, offered: Offered) -> bool:
        """Whether a tool is known to leave the state alone: a bundled server's own word is taken for that, for others what was
        seen when the task was made."""
        if offered.server in self._bundled:
            return offered.tool.annotations.get("readOnlyHint") is True
        return offered.id in self.scene.reads

    def witnesses(self, offered: Offered, limit: int) -> list[dict[str, JSON]]:
        """Arguments that ought to succeed now, from the hidden truth; empty for servers without a world."""
        known = self._entries.get(offered.server)
        if known is None or not known.bundled:
            return []
        return self._worlds[known.world].cases(offered.server, offered.tool.name, limit)

    def look(self, offered: Offered, arguments: dict[str, JSON]) -> JSON:
        """What a read of a bundled server would return, without playing it."""
        known = self._entries[offered.server]
        return self._worlds[known.world].call(offered.server, offered.tool.name, arguments).content

    def state_hash(self) -> str:
        """Of the worlds; where a server's state is not known, of the calls made (equal histories have equal hashes)."""
        worlds = [world.state_hash() for world in self._worlds.values()]
        if len(worlds) == 1 and not self._configs:
            return worlds[0]
        unknown = [call for call in self._calls if call[0] in self._configs and len(call) == 3]
        return stable_hash([*worlds, unknown])

    def document(self, source: str) -> JSON:
        """What `state` and `diff` predicates look into. See `WorldState` and `diff`."""
        if source == "diff":
            changes: dict[str, JSON] = {}
            for world in self._worlds.values():
                changes.update(diff(world))
            return changes
        return WorldState(list(self._worlds.values()), ReadBack(self) if self.scene.read_back else None)

    def save(self) -> JSON:
        """The state as JSON: each world's own snapshot, and the calls."""
        worlds = {name: base64.b64encode(world.snapshot()).decode("ascii") for name, world in self._worlds.items()}
        return [worlds, [list(call) for call in self._calls]]

    def load(self, state: JSON) -> None:
        """Inverse of `save`. Servers without a world are started afresh and their calls played again."""
        worlds, calls = state
        self.reset()
        for server, tool, arguments, *_ in calls:
            if server in self._configs:
                # A call that got no answer is part of the history too.
                with contextlib.suppress(ServerError):
                    self._sessions[server].call(tool, arguments)
        for name, snapshot in worlds.items():
            self._worlds[name].restore(base64.b64decode(snapshot))
        self._calls = [list(call) for call in calls]

    def close(self) -> None:
        """End the servers, give up the worlds, remove the folder."""

        self._end(list(self._sessions))
        self._toolset = Toolset(())
        for world in self._worlds.values():
            world.close()
        self._worlds.clear()
        self._starts.clear()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _own_folder(self) -> Path:
        if self._folder is None:
            # Goes away with the interpreter too, if nobody closes the stage.
            self._folder = tempfile.TemporaryDirectory(prefix="toolverse-", ignore_cleanup_errors=True)
        return Path(self._folder.name)


def isolated(config: ServerConfig, folder: Path) -> tuple[ServerConfig, dict[str, str]]:
    """A launch of a server that is not ours, in folders of the episode: working folder, HOME and temporary files.

    Returns the configuration and the variables it is to be launched with. A configuration that sets one of the three
    keeps its own.
    """
    places = {"HOME": folder / "home", "TMPDIR": folder / "tmp"}
    for place in (*places.values(), folder / "work"):
        place.mkdir(parents=True, exist_ok=True)
    if config.transport != "stdio":
        return config, {**os.environ, EPISODE_DIR: str(folder)}
    # What a server writes while it leaves is thrown away with the folder, so it gets no time for it.
    grace = min(config.close_grace_s, HASTY_S) if config.resettable else config.close_grace_s
    changed = config.model_copy(update={"cwd": config.cwd or str(folder / "work"), "close_grace_s": grace})
    return changed, {**os.environ, **{key: str(place) for key, place in places.items()}, EPISODE_DIR: str(folder)}


def diff(world: World) -> dict[str, JSON]:
    """Changes since the start as `{"/table/key/column": value}`; a deleted row as `{"/table/key": None}`."""
    found: dict[str, JSON] = {}
    for change in world.changes():
        place = f"/{change['table']}/{_key(change['key'])}"
        if change["row"] is None:
            found[place] = None
        else:
            found.update({f"{place}/{column}": value for column, value in change["row"].items()})
    return found


def _key(parts: Sequence[JSON]) -> str:
    return ",".join(str(part).replace("~", "~0").replace("/", "~1") for part in parts)


async def _forget(session: Session, reset: ResetTool) -> None:
    result = await session.acall(reset.tool, reset.arguments)
    if result.is_error:
        raise ServerError(
            f"its reset tool failed: {result.text[:300]}",
            where=f"server {session.name!r}, {reset.tool}",
            fix="check toolverse.reset in the configuration",
        )


def document_of(result: ToolResult) -> JSON:
    """What predicates look into: the structured content, else the text decoded as JSON, else `{"text": ...}`."""
    if result.structured is not None:
        return result.structured
    return result.data if result.data is not None else {"text": result.text}


def unfolded(value: JSON, depth: int = 0) -> JSON:
    """A JSON value with every text in it that holds a JSON object or array replaced by that. Fields that are null are left out:
    to be null and to be absent is the same in a row."""
    if depth > MAX_FOLDS:
        return value
    if isinstance(value, str):
        if value[:1] not in ("{", "["):
            return value
        try:
            return unfolded(json.loads(value), depth + 1)
        except (ValueError, RecursionError):
            return value
    if isinstance(value, dict):
        return {key: unfolded(item, depth + 1) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [unfolded(item, depth + 1) for item in value]
    return value


class ReadBack(Mapping[str, Any]):
    """What the scene's read-backs say now; each is called when it is first looked at."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._found: dict[str, JSON] = {}

    def __getitem__(self, key: str) -> Any:
        if key not in self._found:
            self._found[key] = self._stage.look_back(key)
        return self._found[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._stage.scene.read_back)

    def __len__(self) -> int:
        return len(self._stage.scene.read_back)

    def __contains__(self, key: object) -> bool:
        return key in self._stage.scene.read_back


class WorldState(Mapping[str, Any]):
    """The `state` document: `/facts/<predicate>/<subject>` is true while the predicate holds, `/now` is the clock,
    `/<table>/<key>/<column>` are the rows changed since the start, and `/read_back/<name>` is what a server without a world says.

    Nothing is read before it is looked at: a predicate costs one query.
    """

    def __init__(self, worlds: Sequence[World], read_back: ReadBack | None = None) -> None:
        self._worlds = worlds
        self._read_back = read_back
        self._tables: dict[str, Any] | None = None

    def __getitem__(self, key: str) -> Any:
        if key == "read_back" and self._read_back is not None:
            return self._read_back
        if key == "facts":
            return _Facts(self._worlds)
        if key == "now" and self._worlds:
            return self._worlds[0].now
        return self._rows()[key]

    def __iter__(self) -> Iterator[str]:
        yield from self._rows()

    def __len__(self) -> int:
        return len(self._rows())

    def __contains__(self, key: object) -> bool:
        if key == "read_back":
            return self._read_back is not None
        return key == "facts" or (key == "now" and bool(self._worlds)) or key in self._rows()

    def _rows(self) -> dict[str, Any]:
        if self._tables is None:
            self._tables = {}
            for world in self._worlds:
                for change in world.changes():
                    if change["row"] is not None:
                        key = ",".join(map(str, change["key"]))
                        self._tables.setdefault(change["table"], {})[key] = change["row"]
        return self._tables


class _Facts(Mapping[str, Any]):
    """Predicate -> the subjects it holds for, asked one at a time."""

    def __init__(self, worlds: Sequence[World], predicate: str | None = None) -> None:
        self._worlds = worlds
        self._predicate = predicate

    def __getitem__(self, key: str) -> Any:
        if self._predicate is None:
            return _Facts(self._worlds, key)
        if key in self:
            return True
        raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        if self._predicate is None:
            return True
        for world in self._worlds:
            with contextlib.suppress(KeyError):
                if world.holds(self._predicate, str(key)):
                    return True
        return False

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def configured(scene: Scene, given: Mapping[str, ServerConfig], *, trust_launch: bool) -> dict[str, ServerConfig]:
    """The configurations of the scene's servers that are not of the catalogue: the user's own, else the row's.

    Raises:
        InvalidInputError: the row wants to start a program, and nobody said that it may.
    """
    found = {name: given[name] for name in scene.servers if name in given}
    for name, data in scene.launch.items():
        if name in found:
            continue
        config = ServerConfig.parse({**data, "name": name}, where=f"env_config.launch.{name}")
        if not trust_launch:
            what = config.url or config.target or " ".join([config.command, *config.args])
            raise InvalidInputError(
                f"the task wants to reach server {name!r} by {what!r}",
                where="env_config.launch",
                fix="pass config= with your own mcpServers file, or trust_launch=True if you trust where the task is from "
                "(on the command line: --set config=mcp.json, or --set trust_launch=true)",
            )
        found[name] = config
    return found
