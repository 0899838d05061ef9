"""One world: a seeded company in one SQLite database, played through the tools of its servers.

The same `call` answers MCP clients and in-process callers: validation, permission, transaction, refusal, journal and hash
are all in here, so there is nothing that a protocol could do differently.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from mcp_servers.kit import clock, founding, mint, witness
from mcp_servers.kit.call import Call
from mcp_servers.kit.founding import Company
from mcp_servers.kit.gate import Gate
from mcp_servers.kit.refusal import Refusal
from mcp_servers.kit.server import Predicate, Table, Tool
from mcp_servers.kit.store import Store, compact
from toolverse.errors import InvalidInputError, SnapshotError

SNAPSHOT_VERSION = 1

_TEXT = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class CallResult:
    """What a call returned: `content` is the structured content, `is_error` whether it is a refusal, `now` the clock."""

    content: dict[str, Any]
    is_error: bool
    now: str

    @property
    def text(self) -> str:
        """The content as compact JSON: what an agent reads."""
        return _TEXT.encode(self.content)


class World:
    """One instance. Not thread-safe: one caller at a time (several processes may share a file, each call is a transaction).

    Laws: a refused call changes nothing, not even the clock; after `restore`, any continuation gives byte-identical results,
    in this process or another; equal (company, seed, size) give equal rows on every platform.
    """

    def __init__(self, company: Company, connection: sqlite3.Connection) -> None:
        self.company = company
        self.tables: dict[str, Table] = {}
        self.predicates: dict[str, Predicate] = {}
        self.owners: dict[str, tuple[str, str]] = {}
        for server in company.servers.values():
            self.tables.update(server.tables)
            self.predicates.update(server.predicates)
            for fact, owner in server.owns.items():
                self.owners.setdefault(fact, owner)
        self.store = Store(connection, self.tables)
        row = self.store.first("SELECT * FROM kit_world")
        if row is None:
            raise InvalidInputError("the database holds no world", expected="a file written by World.create")
        self.seed: int = row["seed"]
        self.size: str = row["size"]
        self.build: str = row["build"]
        self._start_user: str = row["acting_as"]
        self._key = founding.world_key(company, self.seed, self.size)
        self._gates: dict[str, Gate] = {}

    # -- making worlds -------------------------------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        company: Company,
        *,
        seed: int = 0,
        size: str = "small",
        acting_as: str | None = None,
        database: str | os.PathLike[str] | None = None,
    ) -> World:
        """A world at its first minute, in memory or in a file that several server processes can share.

        An existing `database` is opened as it is; seed and size must then agree with it.

        Raises:
            InvalidInputError: unknown size, negative seed, unknown employee, or a file of another world.
        """
        if size not in company.sizes:
            raise InvalidInputError(f"unknown world size {size!r}", expected="one of " + ", ".join(company.sizes))
        if not 0 <= seed < 2**63:
            raise InvalidInputError(f"seed {seed} is out of range", expected="0 <= seed < 2**63")
        if database is not None:
            world = cls(company, founding.in_file(Path(database), company, seed, size))
            if (world.seed, world.size) != (seed, size):
                raise InvalidInputError(
                    f"the file holds the world of seed {world.seed}, size {world.size}", where=str(database),
                    expected=f"seed {seed}, size {size}",
                )  # fmt: skip
        else:
            world = cls(company, founding.in_memory(company, seed, size))
        if acting_as is not None:
            world.act_as(acting_as)
            world._start_user = acting_as
        return world

    def act_as(self, employee_id: str) -> None:
        """Choose the acting user (an active employee) for the calls that follow.

        Raises:
            InvalidInputError: there is no such active employee.
        """
        sql = "SELECT 1 FROM people_contacts WHERE employee_id = ? AND status = 'active'"
        if self.store.value(sql, (employee_id,)) is None:
            raise InvalidInputError(f"no active employee {employee_id!r} in this world")
        self.store.connection.execute("UPDATE kit_world SET acting_as = ?", (employee_id,))

    def fork(self) -> World:
        """An independent world in the same state, in memory."""
        twin = World.create(self.company, seed=self.seed, size=self.size)
        twin.restore(self.snapshot())
        return twin

    def close(self) -> None:
        """Close the database; the world can't be used afterwards."""
        self.store.connection.close()

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- playing -------------------------------------------------------------------------------------------------------

    @property
    def clock(self) -> int:
        """Minutes since the epoch of `mcp_servers.kit.clock`."""
        return int(self.store.value("SELECT clock FROM kit_world"))

    @property
    def now(self) -> str:
        """The clock, ISO 8601 in zone A."""
        return clock.render(self.clock)

    @property
    def acting_as(self) -> str:
        """Employee id of the acting user."""
        return str(self.store.value("SELECT acting_as FROM kit_world"))

    @property
    def briefing(self) -> str:
        """What the acting user is told about himself and the company."""
        return self.company.briefing(self.store, self.acting_as)

    def literals(self) -> dict[str, list[str]]:
        """The words that a user may say in this world, by fact type (names, towns, departments, topics, dates)."""
        return self.company.literals(self.store)

    def call(self, server: str, tool: str, arguments: Mapping[str, Any] | None = None) -> CallResult:
        """Call a tool. What the agent does wrong comes back as a refusal (`is_error`), never as an exception."""
        found = self.company.servers[server].tools.get(tool) if server in self.company.servers else None
        if found is None:
            return self._refused(Refusal("NOT_FOUND", f"there is no tool {tool!r} on the server {server!r}"))
        gate = self._gates.get(found.id)
        if gate is None:
            gate = self._gates[found.id] = Gate(found, self.owners, self.predicates, self.tables)
        try:
            checked = found.check(arguments or {})
        except Refusal as refusal:
            return self._refused(refusal)
        store = self.store
        if not gate.transaction:
            now, user = store.connection.execute("SELECT clock, acting_as FROM kit_world").fetchone()
            try:
                return self._answer(found, gate, Call(store, found, self._key, now, user, checked))
            except Refusal as refusal:
                return CallResult(refusal.content(), True, clock.render(now))
        store.begin()
        now, user = store.connection.execute("SELECT clock, acting_as FROM kit_world").fetchone()
        call = Call(store, found, self._key, now, user, checked)
        try:
            result = self._answer(found, gate, call)
        except Refusal as refusal:
            store.rollback()
            return CallResult(refusal.content(), True, clock.render(now))
        except BaseException:
            store.rollback()
            raise
        if call.now != now:
            store.connection.execute("UPDATE kit_world SET clock = ?", (call.now,))
        entry = None
        if store.wrote or call.now != now:
            digest = blake2b(compact(dict(arguments or {})).encode(), digest_size=8).hexdigest()
            entry = {"clock": call.now, "server": server, "tool": tool, "arguments": digest}
        store.commit(entry)
        return result

    def _answer(self, tool: Tool, gate: Gate, call: Call) -> CallResult:
        arguments = call.arguments
        page = (arguments.pop("limit", 20), arguments.pop("page_token", None)) if tool.shape == "listing" else None
        gate.check(call)
        row = tool.handler(call, **{gate.keyword.get(name, name): value for name, value in arguments.items()})
        if page is None:
            return CallResult(tool.render(row), False, clock.render(call.now))
        return CallResult(self._page(tool, arguments, row, *page), False, clock.render(call.now))

    def _page(
        self, tool: Tool, arguments: dict[str, Any], row: Mapping[str, Any], limit: int, token: str | None
    ) -> dict[str, Any]:
        items = row["items"]
        total = len(items)
        start = 0
        more: dict[str, Any] = {"total": total}
        if token is not None or total > limit:
            digest = mint.number(self._key, tool.id, compact(arguments), compact(items))
            if token is not None:
                start = int(token.split("_")[1])
                if token != _page_token(start, digest) or not 0 < start < total:
                    raise Refusal(
                        "STALE_TOKEN", "the list has changed, or the token belongs to another call",
                        argument="page_token", expected="the first page, asked for again", retry="after_change",
                    )  # fmt: skip
            if start + limit < total:
                more["next_page_token"] = _page_token(start + limit, digest)
        return {**tool.render({**row, "items": items[start : start + limit]}), **more}

    def _refused(self, refusal: Refusal) -> CallResult:
        return CallResult(refusal.content(), True, self.now)

    # -- state -----------------------------------------------------------------------------------------------------

    def state_hash(self, server: str = "") -> str:
        """32 hex digits over all rows and the clock, or over the rows of one server."""
        return self.store.state_hash(f"{server}_" if server else "")

    def changes(self) -> list[dict[str, Any]]:
        """Rows that differ from reset: `{"table", "key", "row"}`, in (table, key) order.

        `row` is an object in stored units: times in minutes, amounts in cents, lists as lists.
        """
        return [
            {"table": name, "key": json.loads(key), "row": self._row(name, row)}
            for name, key, row in self.store.deltas()
            if self.tables[name].hashed
        ]

    def _row(self, name: str, row: str | None) -> dict[str, Any] | None:
        if row is None:
            return None
        table = self.tables[name]
        values = zip(table.columns, json.loads(row), strict=True)
        return {column: json.loads(v) if column in table.lists and v is not None else v for column, v in values}

    @property
    def journal(self) -> list[dict[str, Any]]:
        """Successful writing calls, oldest first: seq, clock, server, tool, digest of the arguments, columns changed."""
        return [json.loads(entry) for entry in self.store.journal()]

    def state(self) -> dict[str, Any]:
        """The content of `world://state`: hash, clock, acting user, and the rows changed since reset."""
        return {
            "world": {
                "company": self.company.name,
                "version": self.company.version,
                "seed": self.seed,
                "size": self.size,
            },
            "hash": self.state_hash(),
            "now": self.now,
            "acting_as": self.acting_as,
            "changes": self.changes(),
        }

    def holds(self, predicate: str, subject: str) -> bool:
        """Whether a published state predicate holds for a subject.

        Raises:
            KeyError: unknown predicate.
        """
        return self.store.value(self.predicates[predicate].holds, (subject,)) is not None

    def facts(self) -> Iterator[tuple[str, str]]:
        """All (predicate, subject) pairs that hold now."""
        for name, predicate in sorted(self.predicates.items()):
            for (subject,) in self.store.connection.execute(predicate.every).fetchall():
                yield name, subject

    def cases(self, server: str, tool: str, limit: int = 50) -> list[dict[str, Any]]:
        """Argument objects that ought to succeed now, from the hidden truth; empty where nothing can succeed.

        They are witnesses for a sampler and for tests, never shown to an agent. A call built from them is still executed
        before anyone relies on it.
        """
        return witness.cases(self.store, self.company.servers[server].tools[tool], self.owners, limit)

    def reset(self, *, acting_as: str | None = None) -> None:
        """Back to the first minute."""
        self._impose(clock.START, acting_as or self._start_user, [], [])

    def snapshot(self) -> bytes:
        """The whole state as bytes: what differs from reset, the clock and the journal. Valid in any process.

        One line of JSON that says which world it is, one line per changed row (table, key, row), one per journal entry;
        the parts of a line are JSON and divided by tabs, which JSON never contains.
        """
        now, acting_as = self.store.connection.execute("SELECT clock, acting_as FROM kit_world").fetchone()
        head = compact({**self._identity(), "clock": now, "acting_as": acting_as})
        rows = [f"{table}\t{key}\t{row or 'null'}" for table, key, row in self.store.deltas()]
        return "\n".join([head, *rows, *self.store.journal()]).encode()

    def restore(self, snapshot: bytes) -> None:
        """Take over the state of a snapshot of the same world.

        Raises:
            SnapshotError: not a snapshot, or one of another company, version, seed or size.
        """
        lines = snapshot.decode(errors="replace").split("\n")
        try:
            head = json.loads(lines[0])
            theirs = {name: head[name] for name in self._identity()}
            now, acting_as = head["clock"], head["acting_as"]
        except (ValueError, TypeError, KeyError) as error:
            raise SnapshotError(f"not a world snapshot ({error!r})") from None
        if theirs != self._identity():
            raise SnapshotError(f"the snapshot belongs to another world: {theirs}", expected=str(self._identity()))
        parts = [line.split("\t") for line in lines[1:]]
        rows = [(part[0], part[1], None if part[2] == "null" else part[2]) for part in parts if len(part) == 3]
        self._impose(now, acting_as, rows, lines[1 + len(rows) :])

    def _identity(self) -> dict[str, Any]:
        """What a snapshot must agree with: the format, and the world down to the hash of its first state."""
        return {
            "snapshot": SNAPSHOT_VERSION, "company": self.company.name, "seed": self.seed, "size": self.size,
            "build": self.build,
        }  # fmt: skip

    def _impose(
        self, now: int, acting_as: str, rows: Sequence[tuple[str, str, str | None]], journal: Sequence[str]
    ) -> None:
        self.store.begin()
        try:
            self.store.impose(now, acting_as, rows, journal)
        except BaseException:
            self.store.rollback()
            raise
        self.store.connection.execute("COMMIT")

    def check_invariants(self) -> list[str]:
        """Names of the declared invariants (and foreign keys) that some row breaks; empty in a sound world."""
        broken = [
            name
            for server in self.company.servers.values()
            for name, sql in server.invariants.items()
            if self.store.value(sql) is not None
        ]
        for table in self.tables.values():
            for column, target in table.fk.items():
                key = self.tables[target].key[0]
                sql = (
                    f"SELECT 1 FROM {table.name} a LEFT JOIN {target} b ON a.{column} = b.{key}"
                    f" WHERE a.{column} IS NOT NULL AND b.{key} IS NULL LIMIT 1"
                )
                if self.store.value(sql) is not None:
                    broken.append(f"{table.name}.{column} -> {target}")
        return broken


def _page_token(start: int, digest: int) -> str:
    return f"pg_{start}_" + mint.identifier("x", digest ^ start)[2:]
