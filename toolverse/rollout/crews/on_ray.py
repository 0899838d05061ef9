"""Episodes on Ray: actors on many machines or on this one, several episodes at a time in each."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any, Final

from toolverse.errors import MissingDependencyError
from toolverse.rollout.crews.pool import Ended, Lost, share_out, shares
from toolverse.rollout.crews.settings import CrewSettings
from toolverse.rollout.crews.workers import Inbox, Outcome, Workers, result_of, settle
from toolverse.rollout.jobs import Failed, Job, PolicyFactory, Result

_MOMENT_S: Final = 0.5


def ray_workers(jobs: Sequence[Job], make_policy: PolicyFactory, settings: CrewSettings) -> Iterator[Result]:
    """Play the jobs on a Ray cluster that is connected already, or on this machine.

    One actor per CPU of the cluster (or `settings.processes`), with as many threads as workers come to it. An actor gets jobs
    once it has started, so that neither a slow start nor a cluster without room costs an episode its time.

    Raises:
        MissingDependencyError: ray is not installed.
        ServerError: actors die while they start.
    """
    try:
        import ray
    except ImportError as error:
        raise MissingDependencyError("ray is not installed", fix="pip install 'toolverse[ray]'") from error
    if not jobs:
        return
    if not ray.is_initialized():
        ray.init(include_dashboard=False, configure_logging=False, log_to_driver=False)
    factory = ray.put(make_policy)
    hands = shares(len(jobs), settings, max(1, int(ray.cluster_resources().get("CPU", 1))))
    yield from share_out(
        jobs,
        settings,
        hands,
        lambda number: _Actor(ray, factory, number, settings),
        lambda crew: _listen(ray, crew, settings.stall_s),
        where="ray",
    )


class _Actor:
    """An actor, seen from outside: `answers` are references to come, each with the index of its job (None: a sign of life)."""

    def __init__(self, ray: Any, factory: Any, hands: int, settings: CrewSettings) -> None:
        self._ray = ray
        # One thread more, for signs of life.
        actor = ray.remote(_Hands).options(num_cpus=1, max_concurrency=hands + 1, max_restarts=0)
        self._handle = actor.remote(factory, hands, settings)
        self.hands = hands
        self.ready = False
        self.jobs: dict[int, Job] = {}
        self.answers: dict[Any, int | None] = {}
        self.heard_at = self.asked_at = time.monotonic()
        self.ask()

    def ask(self) -> None:
        """Ask for a sign of life."""
        self.asked_at = time.monotonic()
        self.answers[self._handle.alive.remote()] = None

    def give(self, job: Job) -> None:
        self.answers[self._handle.play.remote(job)] = job.index

    def kill(self) -> None:
        self._ray.kill(self._handle, no_restart=True)


def _listen(ray: Any, crew: Sequence[_Actor], stall_s: float) -> Iterator[tuple[_Actor, Ended | Lost]]:
    pending = {reference: actor for actor in crew for reference in actor.answers}
    if pending:
        done, _ = ray.wait(list(pending), num_returns=len(pending), timeout=0)
        done = done or ray.wait(list(pending), num_returns=1, timeout=_MOMENT_S)[0]
    else:
        time.sleep(_MOMENT_S)
        done = []
    lost: set[int] = set()
    for reference in done:
        actor = pending[reference]
        index = actor.answers.pop(reference)
        if id(actor) in lost:
            continue
        try:
            said = ray.get(reference)
        except ray.exceptions.RayActorError as error:
            lost.add(id(actor))
            yield actor, Lost("killed", f"the actor died ({_last_line(error)})")
            continue
        except ray.exceptions.RayError as error:
            # The job or its result could not be sent.
            assert index is not None
            yield actor, Ended(Failed(actor.jobs[index], "error", _last_line(error)))
            continue
        actor.ready, actor.heard_at = True, time.monotonic()
        if said is not None:
            yield actor, said
    for actor in crew:
        waits = None in actor.answers.values()
        now = time.monotonic()
        if not waits and now - actor.asked_at >= stall_s / 4:
            actor.ask()
        elif actor.ready and actor.jobs and waits and now - actor.asked_at >= stall_s + 4 * _MOMENT_S:
            yield actor, Lost("timeout", f"no turn within {stall_s:g} s, and the whole actor hangs")


def _last_line(error: Exception) -> str:
    return str(error).strip().splitlines()[-1].strip()


class _Hands:
    """The actor itself. Each call waits for an episode that the actor's workers play; a thread beside them watches them."""

    def __init__(self, make_policy: PolicyFactory, hands: int, settings: CrewSettings) -> None:
        self._inbox = Inbox()
        self._hands, self._reported = hands, itertools.count(1)
        self._ended: dict[int, Future[Ended]] = {}
        self._workers = Workers(hands, self._inbox.get, self._inbox.put, self._report, make_policy, settings)
        threading.Thread(target=self._watch, args=(settings.stall_s,), daemon=True).start()

    def alive(self) -> None:
        return

    def play(self, job: Job) -> Ended:
        ended = self._ended[job.index] = Future()
        self._inbox.put(job)
        return ended.result()

    def _report(self, job: Job, outcome: Outcome) -> None:
        self._ended.pop(job.index).set_result(Ended(result_of(job, outcome)))
        if next(self._reported) == self._hands:
            settle()

    def _watch(self, stall_s: float) -> None:
        while True:
            time.sleep(min(_MOMENT_S, stall_s / 4))
            for ended in self._workers.give_up_late():
                self._ended.pop(ended.result.job.index).set_result(ended)
