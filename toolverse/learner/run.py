"""A run in progress: what its updates read and change, and how its seeds, samplers and checkpoints follow from that."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from toolverse.envs.base import derive_seed
from toolverse.errors import ServerError
from toolverse.learner import checkpoint
from toolverse.learner.distributed import ALONE, World, gathered
from toolverse.learner.models import model_path
from toolverse.learner.play import Arena, Success, panel_seeds, success_of
from toolverse.learner.policy import PolicyModel
from toolverse.learner.recipe import Recipe
from toolverse.learner.record import Record
from toolverse.learner.render import ChatTokenizer
from toolverse.learner.sampler import Sampler
from toolverse.learner.server import Adapters, ServerPolicies, ServerSampler
from toolverse.rollout.collect import collect
from toolverse.rollout.crews import CrewSettings, crew_of
from toolverse.rollout.endpoint import Endpoint, EndpointSettings
from toolverse.rollout.jobs import Job
from toolverse.rollout.policies import EndpointFactory
from toolverse.rollout.tokens import TokenTrajectory

# What a seed is used for; each use gets a stream of its own.
EXPERT, WEIGHTS, CLONE, PLAY, ORDER, PANEL = range(6)


@dataclass
class Run:
    """A run in progress: everything that an update reads or changes.

    Attributes:
        updates_done: the number of the last finished update.
        kl_coefficient: state of the adaptive KL controller.
        start: success of the warm start on the held-out panel, as JSON.
        cpu_before: CPU-seconds of earlier processes of this run.
        world: the processes that run it together.
        adapters: the server that samples, if one does.
    """

    recipe: Recipe
    out: Path
    tokenizer: ChatTokenizer
    model: PolicyModel
    optimizer: torch.optim.Optimizer
    reference: Any = None
    updates_done: int = 0
    kl_coefficient: float = 0.0
    start: dict[str, Any] = field(default_factory=dict)
    cpu_before: float = 0.0
    world: World = ALONE
    adapters: Adapters | None = None

    def cpu_s(self) -> float:
        """CPU-seconds of the whole run so far, all threads."""
        return self.cpu_before + time.process_time()

    def seed(self, use: int, number: int = 0) -> int:
        return derive_seed(derive_seed(self.recipe.seed, use), number)

    def __post_init__(self) -> None:
        policy = self.recipe.policy
        if policy.sampler != "local":
            endpoint = Endpoint(
                EndpointSettings(
                    url=policy.sampler,
                    model=policy.served_model or policy.model,
                    dialect="vllm",
                    temperature=policy.temperature,
                    max_tokens=policy.max_new_tokens,
                    logprobs=True,
                )
            )
            self.adapters = Adapters(endpoint, self.out / "adapters")

    def close(self) -> None:
        """Close connections to a server."""
        if self.adapters is not None:
            self.adapters.endpoint.close()

    def sampler(self, seed: int, first: int = 0) -> Sampler | ServerSampler:
        """A sampler of the present weights, whose first episode has the number `first`."""
        policy = self.recipe.policy
        if self.adapters is not None:
            if self.world.first:
                self.adapters.swap(self.model, self.updates_done)
            name = self.world.tell(self.adapters.name)
            return ServerSampler(
                self.adapters.endpoint,
                self.tokenizer,
                policy.rendering,
                template=self.recipe.prompt.template(),
                model=name,
                seed=seed,
                first=first,
            )
        return Sampler(
            self.model,
            self.tokenizer,
            policy.rendering,
            template=self.recipe.prompt.template(),
            temperature=policy.temperature,
            max_new_tokens=policy.max_new_tokens,
            seed=seed,
            first=first,
            streams=policy.model != "tiny",
        )

    def width(self, episodes: int) -> int:
        """How many of so many episodes play here at the same time."""
        slots = self.recipe.policy.slots
        return min(slots, episodes) if slots and self.adapters is None else episodes

    def measure(self, panel: Arena, episodes: int, record: Record | None = None) -> Success:
        """Success of the present weights on the first instances of the panel, each process playing its share; the same number
        after the same update."""
        seeds, share = panel_seeds(episodes), self.world.share(episodes)
        seed = self.seed(PANEL, self.updates_done)
        if self.recipe.policy.workers != "local":
            played = self.play_elsewhere(seeds, share, seed, held_out=True)
        else:
            sampler = self.sampler(seed, share.start)
            with gathered(self.model):
                played = panel.play_many(sampler, seeds[share.start : share.stop])
        if record is not None and self.world.first:
            record.evaluation(self.updates_done, played)
        return success_of(played, episodes, self.world)

    def play_elsewhere(
        self, seeds: Sequence[int], share: range, seed: int, *, held_out: bool = False, group_size: int = 1
    ) -> list[TokenTrajectory]:
        """Episodes of a crew, whose workers step the environments and ask the server.

        Args:
            seeds: of all instances, of which `share` are this process's; `group_size` equal ones in a row are a group.
            seed: decides, with the instance's seed and the attempt, what is drawn.

        Raises:
            ServerError: some episode could not be played; that is no outcome of the policy, and a group without it is no group.
        """
        policy, env = self.recipe.policy, self.recipe.env
        assert self.adapters is not None
        if self.world.first:
            self.adapters.swap(self.model, self.updates_done)
        endpoints = EndpointFactory(self.adapters.endpoint.settings)
        factory = ServerPolicies(
            endpoints,
            model_path(policy.model),
            policy.rendering,
            self.recipe.prompt.template(),
            self.world.tell(self.adapters.name),
            seed,
        )
        settings = env.on_side(held_out=held_out)
        jobs = [Job(i, env.id, seeds[i], settings, attempt=i % group_size, group_id=str(seeds[i])) for i in share]
        try:
            found = collect(jobs, factory, crew=crew_of(policy.workers), settings=CrewSettings(workers=policy.parallel))
        finally:
            endpoints.close()
        if found.failures:
            failed = found.failures[0]
            raise ServerError(
                f"{len(found.failures)} of {len(jobs)} episodes could not be played; the first: {failed.detail}",
                where=f"workers {policy.workers}",
                fix="the run can go on with --resume once the cause is gone",
            )
        return found.trajectories

    def save(self) -> None:
        """Write a checkpoint of the present state."""
        state = {
            "recipe": self.recipe.model_dump(mode="json"),
            "tokenizer": self.tokenizer.to_json(),
            "kl_coefficient": self.kl_coefficient,
            "start": self.start,
            "cpu_s": round(self.cpu_s(), 3),
        }
        folder = self.out / "checkpoints"
        # Putting sharded tensors together takes all processes.
        weights, moments = checkpoint.whole_state(self.model, self.optimizer)
        if self.world.first:
            checkpoint.save(folder, self.updates_done, weights, moments, state)
            checkpoint.prune(folder, keep=2)
