"""One thread for many episodes: whenever one waits, another goes on.

Two hundred threads that wake up twenty times a second each, and let go of the interpreter at every statement of a database, cost
ten times what their episodes cost: the operating system hands the interpreter from one to another some eighty times a turn. Here
it stays in one thread. An episode is a greenlet, so environments are the same plain code as everywhere; it gives way where it
waits (`toolverse.waiting`), and nowhere else.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from greenlet import getcurrent, greenlet

from toolverse import waiting


class Stopped(BaseException):
    """Raised in a piece of work where it waits: nobody wants it any more."""


class Piece:
    """A piece of work that a `Juggler` has in hand."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._run: greenlet | None = None
        self._unwanted = False

    def stop(self) -> None:
        """Have `Stopped` raised where it waits, once; heard at its next turn."""
        self._unwanted = True

    def go_on(self) -> bool:
        """On the juggler's thread: go on until it waits or ends. Says whether there is more to do."""
        if self._run is None:
            if self._unwanted:
                return False
            self._run = greenlet(self._do)
        if not self._run.dead:
            self._run.switch()
        return not self._run.dead

    def wake(self) -> None:
        """On its own turn, after it has waited: is it still wanted?

        Raises:
            Stopped: it is not.
        """
        if self._unwanted:
            self._unwanted = False
            raise Stopped

    def _do(self) -> None:
        try:
            self._work()
        except Stopped:
            return
        except BaseException:  # noqa: BLE001 (it ends this piece alone, and is shown, as in a thread of its own)
            threading.excepthook(threading.ExceptHookArgs([*sys.exc_info(), threading.current_thread()]))


class Juggler:
    """A thread that does pieces of work in turns. It ends when it is closed and has no work left."""

    def __init__(self) -> None:
        self.turn: tuple[Piece, float] | None = None
        """Whose turn it is, and since when (`time.monotonic`)."""
        self._ready: queue.SimpleQueue[Piece | None] = queue.SimpleQueue()
        # Daemonic: work that hangs must not keep the process from ending.
        threading.Thread(target=self._work, name="rollout", daemon=True).start()

    def start(self, work: Callable[[], None]) -> Piece:
        """Have `work` done in turns with all other."""
        piece = Piece(work)
        self._ready.put(piece)
        return piece

    def stop(self, piece: Piece) -> None:
        """End a piece where it waits."""
        piece.stop()
        self._ready.put(piece)

    def close(self) -> None:
        """No more work will come."""
        self._ready.put(None)

    def until(self, done: Future[Any]) -> None:
        """See `waiting.Shared`; called by the piece whose turn it is."""
        assert self.turn is not None
        piece, _ = self.turn
        done.add_done_callback(lambda _: self._ready.put(piece))
        # It may be woken by less than what it waits for.
        while not done.done():
            self._between.switch()
            piece.wake()

    def _work(self) -> None:
        waiting.share(self)
        self._between = getcurrent()
        unfinished: set[Piece] = set()
        closing = False
        while unfinished or not closing:
            piece = self._ready.get()
            if piece is None:
                closing = True
                continue
            self.turn = piece, time.monotonic()
            if piece.go_on():
                unfinished.add(piece)
            else:
                unfinished.discard(piece)
            self.turn = None
