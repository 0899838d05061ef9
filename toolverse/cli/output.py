"""What all verbs share: where tables and JSON go, and how `--set key=value` is read."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from toolverse.errors import InvalidInputError

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line of stdout.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="An argument of the environment; VALUE is JSON or plain text. Repeatable."
    ),
]

stderr = Console(stderr=True, highlight=False)


def emit(data: Mapping[str, Any]) -> None:
    """The one JSON object of `--json`."""
    sys.stderr.flush()
    print(json.dumps(data, ensure_ascii=False), flush=True)


def people(*, to_stderr: bool) -> Console:
    """Where things for people go: stdout unless JSON goes there."""
    return stderr if to_stderr else Console(highlight=False)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, to_stderr: bool = False) -> None:
    """A table for people."""
    grid = Table(title=title, title_justify="left", header_style="bold")
    for column in columns:
        grid.add_column(column, overflow="fold")
    for row in rows:
        # Text, not markup: cells may hold square brackets.
        grid.add_row(*(Text(str(cell)) for cell in row))
    people(to_stderr=to_stderr).print(grid)


def settings(pairs: list[str] | None) -> dict[str, Any]:
    """`["max_turns=5", "level=#@$.#"]` -> `{"max_turns": 5, "level": "#@$.#"}`.

    Raises:
        InvalidInputError: an entry without "=".
    """
    out: dict[str, Any] = {}
    for pair in pairs or ():
        key, found, value = pair.partition("=")
        if not found or not key.isidentifier():
            raise InvalidInputError(f"{pair!r}", where="--set", expected="KEY=VALUE, such as max_turns=20")
        try:
            out[key] = json.loads(value)
        except ValueError:
            out[key] = value
    return out
