"""What all crews are told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from toolverse.errors import InvalidInputError
from toolverse.rollout.jobs import Job, PolicyFactory, Result


@dataclass(frozen=True)
class CrewSettings:
    """How many play at a time, and how patient to be.

    Args:
        workers: episodes at a time. Of worlds that wait (tools, endpoints) it can be hundreds.
        stall_s: the longest time without a turn. Longer than a slow answer of a policy with its retries.
        retries: further tries of a job that failed.
        processes: how many processes share the workers, in the crews `processes` and `ray`; None is one per CPU. Python runs
            one thread of a process at a time, so worlds that compute gain nothing from more workers per process, and worlds
            that wait lose nothing.
    """

    workers: int = 8
    stall_s: float = 900.0
    retries: int = 1
    processes: int | None = None

    def __post_init__(self) -> None:
        if self.workers < 1 or self.stall_s <= 0 or self.retries < 0 or (self.processes or 1) < 1:
            raise InvalidInputError(
                f"{self}", where="crew", expected="workers >= 1, stall_s > 0, retries >= 0, processes >= 1"
            )


Crew = Callable[[Sequence[Job], PolicyFactory, CrewSettings], Iterator[Result]]
