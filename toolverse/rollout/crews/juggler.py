"""One thread for many episodes: whenever one waits, another goes on.

Two hundred threads that wake up twenty times a second each, and let go of the interpreter at every statement of a database, cost
ten times what their episodes cost: the operating system hands the interpreter from one to another some eighty times a turn. Here
it stays in one thread. An episode is a greenlet, so environments are the same plain code as everywhere; it gives way where it
waits (`toolverse.waiting`), and nowhere else.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from greenlet import getcurrent, greenlet

from toolverse import waiting

T = TypeVar("T")

BETWEEN_S = 0.001
"""How long pieces of work go on before the event loop has its turn."""


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
    """A thread that does pieces of work in turns, and runs an event loop between them. It ends when it is closed and has no work
    left."""

    def __init__(self) -> None:
        self.turn: tuple[Piece, float] | None = None
        """Whose turn it is, and since when (`time.monotonic`)."""
        self.loop = asyncio.new_event_loop()
        self._unfinished: set[Piece] = set()
        self._ready: deque[Piece] = deque()
        self._going = False
        self._closing = False
        # Daemonic: work that hangs must not keep the process from ending.
        threading.Thread(target=self._work, name="rollout", daemon=True).start()

    def start(self, work: Callable[[], None]) -> Piece:
        """Have `work` done in turns with all other."""
        piece = Piece(work)
        self._unfinished.add(piece)
        self.loop.call_soon_threadsafe(self._go_on, piece)
        return piece

    def stop(self, piece: Piece) -> None:
        """End a piece where it waits."""
        piece.stop()
        self.loop.call_soon_threadsafe(self._go_on, piece)

    def close(self) -> None:
        """No more work will come."""
        self.loop.call_soon_threadsafe(self._close)

    def until(self, done: Future[Any]) -> None:
        """See `waiting.Shared`."""
        piece = self._present()
        done.add_done_callback(lambda _: self.loop.call_soon_threadsafe(self._go_on, piece))
        # It may be woken by less than what it waits for.
        while not done.done():
            self._between.switch()
            piece.wake()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """See `waiting.Shared`."""
        try:
            piece = self._present()
        except RuntimeError:
            work.close()
            raise
        task = self.loop.create_task(work)
        task.add_done_callback(lambda _: self._go_on(piece))
        try:
            while not task.done():
                self._between.switch()
                piece.wake()
        except Stopped:
            task.cancel()
            raise
        return task.result()

    def _present(self) -> Piece:
        """The piece whose turn it is."""
        if self.turn is None:
            raise RuntimeError("a synchronous call on the event loop would wait for itself; use the asynchronous face")
        return self.turn[0]

    def _go_on(self, piece: Piece) -> None:
        self._ready.append(piece)
        if not self._going:
            self._going = True
            self.loop.call_soon(self._next)

    def _next(self) -> None:
        """A few pieces' turns, then the loop's. If all that are ready went on at once, the loop would send what they ask for
        only when the last of them waits again: they would all wait from then on, and the thread with them."""
        until = time.monotonic() + BETWEEN_S
        while self._going:
            piece = self._ready.popleft()
            self.turn = piece, time.monotonic()
            if not piece.go_on():
                self._unfinished.discard(piece)
            self.turn = None
            self._going = bool(self._ready)
            if time.monotonic() >= until:
                break
        if self._going:
            self.loop.call_soon(self._next)
        if self._closing and not self._unfinished:
            self.loop.stop()

    def _close(self) -> None:
        self._closing = True
        if not self._unfinished:
            self.loop.stop()

    def _work(self) -> None:
        waiting.share(self)
        self._between = getcurrent()
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.get_loop().run_forever()
