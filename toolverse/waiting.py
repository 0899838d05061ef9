"""Waiting that lets others go on.

An environment is stepped by a plain call, and somewhere below it a tool is waited for. That blocks the thread, which is all right
until hundreds of episodes wait in a thread each: the threads then spend more time on handing the interpreter to one another than
on the episodes. So whoever waits for something that happens elsewhere says so here. In an ordinary thread `result` blocks; in a
thread that several episodes share, the others go on meanwhile.

A class whose instances wait in no other way than this one (or never) says so by `waits_openly = True`. The statement is not
inherited: a subclass may wait in ways of its own.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Shared(Protocol):
    """Who runs the episodes of a thread in turns."""

    def until(self, done: Future[Any]) -> None:
        """Let others go on until `done` is done."""
        ...


class _Here(threading.local):
    shared: Shared | None = None


_here = _Here()


def share(shared: Shared) -> None:
    """From now on, whoever waits in this thread gives way to others of it."""
    _here.shared = shared


def result(done: Future[T]) -> T:
    """`done.result()`, however long it takes."""
    if _here.shared is not None and not done.done():
        _here.shared.until(done)
    return done.result()


def waits_openly(thing: object) -> bool:
    """Whether a thing's own class says that it waits in no other way than by `result`."""
    return vars(type(thing)).get("waits_openly") is True
