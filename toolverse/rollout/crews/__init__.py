"""Crews play jobs side by side: threads, processes, or Ray workers. Whole episodes cross, never steps.

All of them give results as they come, one per job, and keep these promises:

- an episode in which nothing happens for `stall_s` is given up and never holds back the others. The turns that were played
  are kept (truncated, reason "timeout"). Where it waits openly (`toolverse.waiting`), its tool call is cancelled; else a fresh
  thread takes the hung one's place, and a process (or actor) with a hung thread is replaced once its other episodes have ended;
- a job whose world, server or worker process fails is played again from the start, in a fresh world, `retries` times;
- leaving the iteration early (Ctrl-C, an error in the caller) starts no further episode and waits for none.
"""

from __future__ import annotations

from toolverse.errors import InvalidInputError
from toolverse.rollout.crews.in_processes import processes
from toolverse.rollout.crews.in_threads import threads
from toolverse.rollout.crews.on_ray import ray_workers
from toolverse.rollout.crews.settings import Crew, CrewSettings

__all__ = ["CREWS", "Crew", "CrewSettings", "crew_of", "processes", "ray_workers", "threads"]

CREWS: dict[str, Crew] = {"threads": threads, "processes": processes, "ray": ray_workers}


def crew_of(name: str) -> Crew:
    """The crew of a name in `CREWS`.

    Raises:
        InvalidInputError: no such crew.
    """
    if name not in CREWS:
        raise InvalidInputError(f"unknown workers {name!r}", expected=" or ".join(CREWS))
    return CREWS[name]
