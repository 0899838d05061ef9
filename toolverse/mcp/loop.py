"""The event loops that server sessions live on.

An SDK connection must be entered and left in the same task, and a Gymnasium `step` is synchronous. So connections
live in one daemon thread's event loop, started on first use, and both faces of a session hand their coroutines to it. A thread
that episodes share (`toolverse.waiting`) has a loop of its own: what is opened there stays there, and a call costs no change of
threads.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from toolverse import waiting

T = TypeVar("T")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_closers: dict[int, tuple[asyncio.AbstractEventLoop, Callable[[], Awaitable[None]]]] = {}

EXIT_TIMEOUT_S = 10.0
"""How long the exit of the interpreter waits for open sessions; what is left then, the warden ends."""


def background() -> asyncio.AbstractEventLoop:
    """The loop, running; started on the first call in this process."""
    global _loop
    loop = _loop
    if loop is None:
        with _lock:
            loop = _loop
            if loop is None:
                loop = asyncio.new_event_loop()
                threading.Thread(target=_run, args=(loop,), name="toolverse-mcp", daemon=True).start()
                _loop = loop
    return loop


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()


def home() -> asyncio.AbstractEventLoop:
    """The loop for what is opened in this thread: its own if episodes share it, else the background loop."""
    shared = waiting.shared()
    return background() if shared is None else shared.loop


def run(work: Coroutine[Any, Any, T], on: asyncio.AbstractEventLoop | None = None) -> T:
    """Run a coroutine on a loop (default: `home()`) and wait for it, openly (`toolverse.waiting`). Ctrl-C cancels it.

    Raises:
        RuntimeError: called on the loop itself, which would wait for ever.
    """
    loop, shared = on or home(), waiting.shared()
    if shared is not None and shared.loop is loop:
        return shared.run(work)
    if _running() is loop:
        work.close()
        raise RuntimeError("a synchronous call on the session loop would wait for itself; use the asynchronous face")
    done: concurrent.futures.Future[T] = concurrent.futures.Future()

    def deliver(value: Any, error: BaseException | None) -> None:
        if error is None:
            done.set_result(value)
        else:
            done.set_exception(error)

    job = _Job(work, deliver)
    loop.call_soon_threadsafe(job.start)
    try:
        return waiting.result(done)
    except BaseException:
        if not done.done():
            loop.call_soon_threadsafe(job.cancel)
        raise


async def arun(work: Coroutine[Any, Any, T], on: asyncio.AbstractEventLoop | None = None) -> T:
    """Run a coroutine on a loop (default: `home()`) and await it from any asyncio loop. Cancellation reaches it."""
    loop, here = on or home(), asyncio.get_running_loop()
    if here is loop:
        return await work
    done: asyncio.Future[T] = here.create_future()

    def settle(value: Any, error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(value)
        elif isinstance(error, asyncio.CancelledError):
            done.cancel()
        else:
            done.set_exception(error)

    def deliver(value: Any, error: BaseException | None) -> None:
        with contextlib.suppress(RuntimeError):  # the caller's loop is closed: nobody waits any more
            here.call_soon_threadsafe(settle, value, error)

    job = _Job(work, deliver)
    loop.call_soon_threadsafe(job.start)
    try:
        return await done
    except asyncio.CancelledError:
        loop.call_soon_threadsafe(job.cancel)
        raise


class _Job:
    """A coroutine on its way to the background loop and its outcome on the way back.

    `asyncio.run_coroutine_threadsafe` does the same through three futures, and the outcome waits for two more turns of the
    loop; a call of an in-process server takes 0.3 ms, so that is half as much again.
    """

    def __init__(self, work: Coroutine[Any, Any, Any], deliver: Callable[[Any, BaseException | None], None]) -> None:
        self._work = work
        self._deliver = deliver
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            value = await self._work
        except BaseException as error:  # noqa: BLE001 (whoever waits gets it, whatever it is)
            self._deliver(None, error)
        else:
            self._deliver(value, None)


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def close_at_exit(key: int, close: Callable[[], Awaitable[None]]) -> None:
    """Have `close` awaited on the running loop when the interpreter exits, unless `forget(key)` comes first."""
    _closers[key] = asyncio.get_running_loop(), close


def forget(key: int) -> None:
    """Undo `close_at_exit`."""
    _closers.pop(key, None)


async def _close_all(on: asyncio.AbstractEventLoop) -> None:
    closing = [close() for loop, close in list(_closers.values()) if loop is on]
    await asyncio.gather(*closing, return_exceptions=True)


def _at_exit() -> None:
    loops = {loop for loop, _ in _closers.values() if loop.is_running()}
    closing = [asyncio.run_coroutine_threadsafe(_close_all(loop), loop) for loop in loops]
    concurrent.futures.wait(closing, timeout=EXIT_TIMEOUT_S)


def _after_fork() -> None:
    # The thread does not exist in the child, and the sessions belong to the parent.
    global _loop, _lock
    _lock = threading.Lock()
    _loop = None
    _closers.clear()


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
