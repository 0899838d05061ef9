"""Episodes in this process."""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Iterator, Sequence

from toolverse.rollout.crews.settings import CrewSettings
from toolverse.rollout.crews.workers import Outcome, Workers, result_of
from toolverse.rollout.jobs import Job, PolicyFactory, Result


def threads(jobs: Sequence[Job], make_policy: PolicyFactory, settings: CrewSettings) -> Iterator[Result]:
    """Play the jobs in threads of this process: one for all episodes that wait openly, one each for the others."""
    todo: deque[Job] = deque(jobs)
    done: queue.SimpleQueue[tuple[Job, Outcome]] = queue.SimpleQueue()

    def take() -> Job | None:
        try:
            return todo.popleft()
        except IndexError:
            return None

    open_jobs = len(jobs)
    workers = Workers(
        min(settings.workers, open_jobs),
        take,
        todo.appendleft,
        lambda job, outcome: done.put((job, outcome)),
        make_policy,
        settings,
        retries=settings.retries,
    )
    try:
        while open_jobs:
            try:
                job, outcome = done.get(timeout=workers.patience())
            except queue.Empty:
                for ended in workers.give_up_late():
                    open_jobs -= 1
                    yield ended.result
                continue
            open_jobs -= 1
            yield result_of(job, outcome)
    finally:
        todo.clear()
        workers.dismiss()
