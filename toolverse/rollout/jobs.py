"""What collectors pass around: an episode to be played, and what became of it. Everything here pickles."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import gymnasium

from toolverse.envs.lookup import make_chat_env
from toolverse.rollout.episode import Policy, Recorder, play
from toolverse.rollout.tokens import TokenTrajectory
from toolverse.types import JSON

PolicyFactory = Callable[[], Policy]


@dataclass(frozen=True)
class Job:
    """One episode to be played.

    Args:
        index: position in the list of jobs; results are filed under it, exactly once.
        env_id, settings: what `gymnasium.make` gets.
        seed, options: what `reset` gets. Equal seeds and options are the same instance: a group.
        attempt: the policy draws from seed and attempt: the same instance, played anew.
        group_id: episodes of one instance share it.
        metadata: copied into the trajectory (`type`, `depth`, `attempt`, ...).
    """

    index: int
    env_id: str
    seed: int = 0
    settings: dict[str, JSON] = field(default_factory=dict)
    options: dict[str, JSON] | None = None
    attempt: int = 0
    group_id: str = ""
    metadata: dict[str, JSON] = field(default_factory=dict)
    token_budget: int | None = None


@dataclass(frozen=True)
class Played:
    """An episode that was played to its end, or cut with a reason."""

    job: Job
    trajectory: TokenTrajectory


@dataclass(frozen=True)
class Failed:
    """An episode that could not be played: an infrastructure failure, which is never a reward of zero.

    `kind` is "error" (the world or the server raised), "timeout" (no turn for too long, and nothing to keep) or "killed" (the
    worker process died), each after the last retry.
    """

    job: Job
    kind: Literal["error", "timeout", "killed"]
    detail: str


Result = Played | Failed


def jobs_sha256(jobs: Sequence[Job]) -> str:
    """Names a list of jobs: equal lists have equal hashes on every machine."""
    rows = [
        [
            job.index,
            job.env_id,
            job.seed,
            job.settings,
            job.options,
            job.attempt,
            job.group_id,
            job.metadata,
            job.token_budget,
        ]
        for job in jobs
    ]
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()


class Worlds:
    """The environments of one worker, kept from episode to episode (a start may launch servers)."""

    def __init__(self) -> None:
        self._envs: dict[str, gymnasium.Env[str, str]] = {}

    def __contains__(self, job: Job) -> bool:
        """Whether the environment for a job has been made."""
        return _world_of(job) in self._envs

    def env(self, job: Job) -> gymnasium.Env[str, str]:
        """The environment for a job, made if there is none."""
        key = _world_of(job)
        if key not in self._envs:
            self._envs[key] = make_chat_env(job.env_id, **job.settings)
        return self._envs[key]

    def close(self) -> None:
        """Close all of them; the next episode starts fresh ones."""
        envs, self._envs = list(self._envs.values()), {}
        for env in envs:
            env.close()

    def play(
        self, job: Job, policy: Policy, watch: Callable[[Recorder], Callable[[], None]] | None = None
    ) -> TokenTrajectory:
        """Play a job in this worker's environment for it."""
        return play(
            self.env(job),
            policy,
            seed=job.seed,
            options=job.options,
            attempt=job.attempt,
            group_id=job.group_id,
            metadata={"job": job.index, "attempt": job.attempt, **job.metadata},
            token_budget=job.token_budget,
            watch=watch,
        )


def _world_of(job: Job) -> str:
    return json.dumps([job.env_id, job.settings], sort_keys=True)
