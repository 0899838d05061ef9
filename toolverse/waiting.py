"""Waiting that lets others go on.

An environment is stepped by a plain call, and somewhere below it a tool is waited for. That blocks the thread, which is all right
until hundreds of episodes wait in a thread each: the threads then spend more time on handing the interpreter to one another than
on the episodes. So whoever waits for something that happens elsewhere does it here or in `toolverse.mcp.loop`. In an ordinary
thread that blocks; in a thread that several episodes share, the others go on meanwhile.

A class whose instances wait in no other way (or never) says so by `waits_openly = True`. The statement is not inherited: a
subclass may wait in ways of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


class Shared(Protocol):
    """Who runs the episodes of a thread in turns, and an event loop between them."""

    loop: asyncio.AbstractEventLoop

    def until(self, done: Future[Any]) -> None:
        """Let others go on until `done` is done."""
        ...

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on `loop`, and let others go on until it has ended.

        Raises:
            RuntimeError: called on the loop itself, which would wait for ever.
        """
        ...


class _Here(threading.local):
    shared: Shared | None = None


_here = _Here()


def share(shared: Shared) -> None:
    """From now on this thread is shared."""
    _here.shared = shared


def shared() -> Shared | None:
    """Who runs this thread, if it is a shared one."""
    return _here.shared


def result(done: Future[T]) -> T:
    """`done.result()`, however long it takes."""
    if _here.shared is not None and not done.done():
        _here.shared.until(done)
    return done.result()


def waits_openly(thing: object) -> bool:
    """Whether a thing's own class says so."""
    return vars(type(thing)).get("waits_openly") is True
