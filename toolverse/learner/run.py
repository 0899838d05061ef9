"""A run in progress: what its updates read and change, and how its seeds, samplers and checkpoints follow from that."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from toolverse.envs.base import derive_seed
from toolverse.learner import checkpoint
from toolverse.learner.distributed import ALONE, World, gathered
from toolverse.learner.play import Arena, Success, measure
from toolverse.learner.policy import PolicyModel
from toolverse.learner.recipe import Recipe
from toolverse.learner.record import Record
from toolverse.learner.render import ChatTokenizer
from toolverse.learner.sampler import Sampler
from toolverse.learner.server import Adapters, ServerSampler
from toolverse.rollout.endpoint import Endpoint, EndpointSettings

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
        """Success of the present weights on the first instances of the panel; the same number after the same update."""
        sampler = self.sampler(self.seed(PANEL, self.updates_done), self.world.share(episodes).start)
        keep = None if record is None or not self.world.first else record.evaluation
        with gathered(self.model):
            return measure(
                panel,
                sampler,
                episodes,
                world=self.world,
                seen=None if keep is None else lambda played: keep(self.updates_done, played),
            )

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
