"""How a world comes into being: the schema, the company that fills it, and the database it lives in."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import tempfile
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Protocol

from mcp_servers.kit import clock
from mcp_servers.kit.server import Server
from mcp_servers.kit.store import KIT_TABLES, Store


class Company(Protocol):
    """Who lives in a world: its servers, and the generator that fills their tables."""

    name: str
    version: str
    sizes: Sequence[str]
    servers: Mapping[str, Server]

    def build(self, store: Store, key: bytes, size: str) -> str:
        """Fill empty tables; returns the employee id of the acting user."""
        ...

    def briefing(self, store: Store, acting_as: str) -> str:
        """What the acting user is told about himself and the company (a system prompt)."""
        ...

    def literals(self, store: Store) -> dict[str, list[str]]:
        """The words that a user may say, by fact type."""
        ...


def world_key(company: Company, seed: int, size: str) -> bytes:
    """The secret of a world: ids and choices are keyed with it."""
    return blake2b(f"{company.name}\x1f{company.version}\x1f{seed}\x1f{size}".encode(), digest_size=32).digest()


def in_memory(company: Company, seed: int, size: str) -> sqlite3.Connection:
    """A fresh world in memory."""
    connection = _connect(":memory:")
    connection.deserialize(_template(company, seed, size))
    return connection


def _connect(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, isolation_level=None, cached_statements=1024, check_same_thread=False, timeout=30
    )
    connection.execute("PRAGMA synchronous = OFF")
    return connection


_TEMPLATES: OrderedDict[tuple[str, str, int, str], bytes] = OrderedDict()
_TEMPLATE_BYTES = 64 * 2**20
"""What templates may take in memory: 150 worlds of the smallest size, a handful of the largest."""


def _template(company: Company, seed: int, size: str) -> bytes:
    """The database of a fresh world, built once per process and kept while it is one of the last `_TEMPLATE_BYTES`."""
    name = (company.name, company.version, seed, size)
    if name not in _TEMPLATES:
        connection = _connect(":memory:")
        write_world(company, connection, seed, size)
        _TEMPLATES[name] = connection.serialize()
        connection.close()
        while sum(map(len, _TEMPLATES.values())) > _TEMPLATE_BYTES and len(_TEMPLATES) > 4:
            _TEMPLATES.popitem(last=False)
    _TEMPLATES.move_to_end(name)
    return _TEMPLATES[name]


def write_world(company: Company, connection: sqlite3.Connection, seed: int, size: str) -> None:
    """Create the schema in an empty database and let the company fill it."""
    connection.execute("BEGIN")
    tables = {name: table for server in company.servers.values() for name, table in server.tables.items()}
    for statement in KIT_TABLES:
        connection.execute(statement)
    for table in tables.values():
        for statement in table.ddl():
            connection.execute(statement)
    for server in company.servers.values():
        for name, sql in server.views.items():
            connection.execute(f"CREATE VIEW {name} AS {sql}")
    store = Store(connection, tables)
    acting_as = company.build(store, world_key(company, seed, size), size)
    store.seal()
    connection.execute("INSERT INTO kit_world VALUES (1, ?, ?, '', ?, ?, 0)", (seed, size, acting_as, clock.START))
    connection.execute("UPDATE kit_world SET build = ?", (store.state_hash(),))
    connection.execute("COMMIT")


def in_file(path: Path, company: Company, seed: int, size: str) -> sqlite3.Connection:
    """Open a shared world file; the first process to come writes it, in one atomic step."""
    if not path.exists():
        handle, draft = tempfile.mkstemp(prefix=path.name, dir=path.parent or Path())
        os.close(handle)
        try:
            Path(draft).write_bytes(_template(company, seed, size))
            with contextlib.suppress(FileExistsError):  # another server of this world was faster: use its file
                os.link(draft, path)
        finally:
            os.unlink(draft)
    return _connect(str(path))
