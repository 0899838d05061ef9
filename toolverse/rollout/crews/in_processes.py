"""Episodes in processes of this machine, several at a time in each."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import threading
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Final

from toolverse.rollout.crews.pool import Ended, Lost, share_out, shares
from toolverse.rollout.crews.settings import CrewSettings
from toolverse.rollout.crews.workers import Inbox, Outcome, Workers, result_of, settle
from toolverse.rollout.jobs import Job, PolicyFactory, Result

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

_SIGN_OF_LIFE_S: Final = 0.5


def processes(jobs: Sequence[Job], make_policy: PolicyFactory, settings: CrewSettings) -> Iterator[Result]:
    """Play the jobs in spawned processes; `make_policy` has to pickle.

    Raises:
        ServerError: worker processes die while they start.
    """
    if jobs:
        hands = shares(len(jobs), settings, os.cpu_count() or 1)
        yield from share_out(
            jobs,
            settings,
            hands,
            lambda number: _Process(make_policy, number, settings),
            lambda crew: _listen(crew, settings.stall_s),
            where="processes",
        )


class _Process:
    """A worker process, seen from outside."""

    def __init__(self, make_policy: PolicyFactory, hands: int, settings: CrewSettings) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        arguments = (theirs, make_policy, hands, settings)
        self._process: SpawnProcess = context.Process(target=_body, args=arguments, daemon=True)
        self._process.start()
        theirs.close()
        self.hands = hands
        self.ready = False
        self.jobs: dict[int, Job] = {}
        self.heard_at = time.monotonic()

    def give(self, job: Job) -> None:
        try:
            self.connection.send(job)
        except OSError:
            return  # it has just died; whoever listens learns it

    def hear(self) -> Ended | Lost | None:
        """What it says; None for a sign of life."""
        try:
            said: Ended | None = self.connection.recv()
        except (EOFError, OSError):
            self._process.join()
            return Lost("killed", f"the worker process died (exit code {self._process.exitcode})")
        self.ready, self.heard_at = True, time.monotonic()
        return said

    def kill(self) -> None:
        self._process.kill()
        self._process.join()
        self.connection.close()


def _listen(crew: Sequence[_Process], stall_s: float) -> Iterator[tuple[_Process, Ended | Lost]]:
    by_connection = {process.connection: process for process in crew}
    for connection in wait(list(by_connection), timeout=_SIGN_OF_LIFE_S):
        process = by_connection[connection]  # type: ignore[index]  # wait() returns what it was given
        if (said := process.hear()) is not None:
            yield process, said
    for process in crew:
        if process.ready and process.jobs and time.monotonic() - process.heard_at >= stall_s + 4 * _SIGN_OF_LIFE_S:
            yield process, Lost("timeout", f"no turn within {stall_s:g} s, and the whole process hangs")


def _body(connection: Connection, make_policy: PolicyFactory, hands: int, settings: CrewSettings) -> None:
    """Body of a process: says None when it is ready and every half second, takes jobs, and says what became of each.

    This thread does nothing but receive, so that the parent never waits to be heard.
    """
    import signal

    # Ctrl-C goes to the whole terminal group; the parent decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    inbox = Inbox()
    speaking = threading.Lock()

    def say(what: Ended | None) -> None:
        with speaking:
            connection.send(what)

    reported = itertools.count(1)

    def report(job: Job, outcome: Outcome) -> None:
        say(Ended(result_of(job, outcome)))
        if next(reported) == hands:
            settle()

    def watch() -> None:
        while True:
            say(None)
            for ended in workers.give_up_late():
                say(ended)
            time.sleep(min(_SIGN_OF_LIFE_S, settings.stall_s / 4))

    workers = Workers(hands, inbox.get, inbox.put, report, make_policy, settings)
    threading.Thread(target=watch, daemon=True).start()
    try:
        while True:
            inbox.put(connection.recv())
    except EOFError:
        return  # the parent is gone
