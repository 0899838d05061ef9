"""What a run will take, before it runs: tokens, arithmetic, memory and hours, per kind of device. Arithmetic only.

The counts are those of `update.update`: sampling and one reading pass forwards (2 FLOP per parameter and token), `epochs` passes
forwards and backwards (6; 4 where the trunk is frozen under adapters), one more forwards for the KL to a reference, the language
model's head at policy tokens only. A step of sampling also takes the time of reading all weights and keys once. Memory is
weights, gradients and AdamW's two moments in float32 (16 bytes per trained parameter, 4 or 2 per frozen one), activations of one
micro batch, the logits of one part of it, and the sampler's keys and values. Speeds are fractions of ceilings measured on the
named device; on others, scale them.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from toolverse.errors import InvalidInputError, NotFoundError, ToolverseError
from toolverse.learner.policy import LOGITS
from toolverse.learner.recipe import Recipe

MEMORY: Final = "this machine's memory"
CPU: Final = "one core of this machine (float32)"
DEVICES: Final[dict[str, float]] = {CPU: 25e9, "H200 (bfloat16)": 0.35 * 790e12}
"""FLOP/s that the update reaches. The CPU figure is measured with the tiny policy on an AVX2 core."""
BANDWIDTHS: Final[dict[str, float]] = {CPU: 8e9, "H200 (bfloat16)": 0.4 * 4.3e12}
"""Bytes/s at which a step of sampling reads weights and keys: shares of what a copy reaches. Not measured for the GPU."""
H200_BYTES: Final = 141e9

_VOCABULARY, _TOKENS_PER_TURN, _WORDS_PER_TURN = 512, 24, 4
_PRETRAINED_TOKENS_PER_TURN, _PRETRAINED_WORDS = 100, 40
# Floats that a block keeps for its backward pass, per token and per unit of width (an MLP three to four times as wide).
_KEPT, _KEPT_INPUT = 34, 1


class DoesNotFitError(ToolverseError, MemoryError):
    """A run needs more memory than its device has."""


@dataclass(frozen=True)
class Estimate:
    """Counts of one update and of the whole run.

    Attributes:
        trunk, head: parameters of the transformer blocks, and of the head.
        trained: parameters with an optimiser state.
        update_tokens, policy_tokens: tokens that one update reads, and those of them that are trained on (at most).
        update_flop, run_flop: of one update and of all.
        run_steps: steps of sampling of all updates. step_bytes: what one reads on each device.
        parts: bytes by what they are for, on this machine. gpu_parts: on a GPU, where activations take two bytes.
        device, capacity: what the run would use here, and how many bytes it has.
    """

    trunk: int
    head: int
    trained: int
    update_tokens: int
    policy_tokens: int
    update_flop: float
    run_flop: float
    run_steps: int
    step_bytes: dict[str, float]
    parts: dict[str, float]
    gpu_parts: dict[str, float]
    device: str
    capacity: float

    @property
    def memory(self) -> float:
        """Bytes in all."""
        return sum(self.parts.values())

    def hours(self, device: str) -> float:
        sampling = self.run_steps * self.step_bytes[device] / BANDWIDTHS[device]
        return (self.run_flop / DEVICES[device] + sampling) / 3600

    def fits(self, device: str) -> bool:
        """A tenth is left for what is not counted."""
        if device == CPU:
            return self.memory < 0.9 * self.capacity
        return sum(self.gpu_parts.values()) < 0.9 * H200_BYTES

    def lines(self) -> list[str]:
        """For people."""
        out = [
            f"{self.trunk + self.head:,} parameters, {self.trained:,} of them trained",
            f"at most {self.update_tokens:,} tokens an update, {self.policy_tokens:,} of them the policy's",
        ]
        for device, sizes in zip(DEVICES, (self.parts, self.gpu_parts), strict=True):
            parts = ", ".join(f"{name} {size / 1e9:.2f}" for name, size in sizes.items())
            fit = "" if self.fits(device) else "; it does not fit into the memory"
            out.append(
                f"{device}: about {self.hours(device):.2g} hours, {sum(sizes.values()) / 1e9:.2f} GB ({parts}){fit}"
            )
        return out

    def as_json(self) -> dict[str, Any]:
        devices = {name: {"hours": self.hours(name), "fits": self.fits(name)} for name in DEVICES}
        return {**self.__dict__, "memory": self.memory, "devices": devices}

    def refuse(self) -> None:
        """
        Raises:
            DoesNotFitError: the run needs more memory than the device that it would use here has.
        """
        if self.memory < 0.9 * self.capacity:
            return
        largest = max(self.parts, key=lambda name: self.parts[name])
        fix = {
            "activations": "lower update.microbatch_tokens, or set update.recompute = true",
            "weights": "take a smaller model",
            "gradients and moments": "train adapters (policy.lora = 16), or shard over processes (update.shard = true)",
            "logits": "take a model with a smaller vocabulary",
            "sampler": "set policy.slots below the number of episodes, or sample on a server (policy.sampler)",
        }[largest]
        raise DoesNotFitError(
            f"the run needs {self.memory / 1e9:.1f} GB, most of it for {largest} ({self.parts[largest] / 1e9:.1f} GB)",
            where=self.device,
            expected=f"at most 90 % of {self.capacity / 1e9:.1f} GB",
            fix=fix,
        )


def device_here(settings_device: str, tiny: bool) -> tuple[str, float]:
    """What a run would use on this machine, and its memory in bytes."""
    import torch

    if settings_device.startswith("cuda") or (settings_device == "auto" and not tiny and torch.cuda.is_available()):
        if not torch.cuda.is_available():
            raise InvalidInputError("there is no GPU", where=f"policy.device = {settings_device!r}")
        found = torch.cuda.get_device_properties(0)
        return str(found.name), float(found.total_memory)
    return MEMORY, float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def estimate_run(recipe: Recipe) -> Estimate:
    """The upper bound: every episode runs to its turn limit.

    Raises:
        NotFoundError: the model's config.json is not there.
        InvalidInputError: it lacks a size.
    """
    policy, settings = recipe.policy, recipe.update
    tiny = policy.model == "tiny"
    if tiny:
        width, keys, layers = policy.width, policy.width, policy.layers
        trunk, head = 12 * layers * width**2, _VOCABULARY * width
    else:
        from toolverse.learner.models import model_path

        trunk, head, width, keys, layers = _sizes(Path(model_path(policy.model)))
    longest_episode = int(str(recipe.env.settings.get("max_turns", 50)))
    turns = recipe.episodes * longest_episode
    context, words = (_TOKENS_PER_TURN, _WORDS_PER_TURN) if tiny else (_PRETRAINED_TOKENS_PER_TURN, _PRETRAINED_WORDS)
    tokens, said = turns * context, turns * words
    if policy.rendering == "windowed" and not tiny:
        tokens *= 8  # a windowed prompt repeats its instructions: about 800 tokens for 100 new ones
    passes = 2 * (2 + (settings.kl_coefficient > 0)) + settings.epochs * (4 if policy.lora else 6)
    critic = 2 if policy.critic == "separate" else 1
    update_flop = float(passes * (critic * trunk * tokens + head * said))
    weights = critic * trunk + head
    trained = weights if not policy.lora else 2 * 7 * layers * policy.lora * width
    kept = _KEPT_INPUT * layers + _KEPT if settings.recompute else _KEPT * layers
    reference = weights if settings.kl_coefficient and not policy.lora else 0
    # Between turns the keys of a windowed episode are thrown away: one prompt of about a thousand tokens is the most. A chat's
    # slot grows by half whenever it is full.
    longest = 1024.0
    if policy.rendering == "append_only":
        longest = (1.0 if tiny else 1.5) * context * longest_episode
    slots = min(policy.slots or recipe.episodes, recipe.episodes)
    steps = -(-recipe.episodes // slots) * longest_episode * words
    device, capacity = device_here(policy.device, tiny)

    def step_bytes(size: int) -> float:
        # Half of what an append-only episode holds at its end, on average; most of a windowed prompt.
        held = context * longest_episode / 2 if policy.rendering == "append_only" else 800.0
        return float((trunk + head) * size + slots * held * 2 * keys * layers * size)

    def parts(size: int) -> dict[str, float]:
        return {
            "weights": float((weights if policy.lora else 0) * size + (trained + reference) * 4),
            "gradients and moments": 12.0 * trained,
            "activations": float(settings.microbatch_tokens * width * kept * size),
            "logits": 3.0 * 4 * min(LOGITS, settings.microbatch_tokens * (head // width)),
            "sampler": slots * longest * 2 * keys * layers * size,
        }

    return Estimate(
        trunk=trunk,
        head=head,
        trained=trained,
        update_tokens=tokens,
        policy_tokens=said,
        update_flop=update_flop,
        run_flop=update_flop * recipe.updates,
        run_steps=steps * recipe.updates,
        step_bytes={name: step_bytes(4 if tiny or name == CPU else 2) for name in DEVICES},
        parts=parts(4 if tiny or device == MEMORY else 2),
        gpu_parts=parts(4 if tiny else 2),
        device=device,
        capacity=capacity,
    )


def _sizes(folder: Path) -> tuple[int, int, int, int, int]:
    """Parameters of trunk and head, width, width of the keys, and layers of a model folder."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except OSError as error:
        raise NotFoundError("there is no config.json", where=str(folder), expected="the folder of a model") from error
    try:
        d, layers, inner, words = (
            int(config[key]) for key in ("hidden_size", "num_hidden_layers", "intermediate_size", "vocab_size")
        )
        heads = int(config["num_attention_heads"])
    except KeyError as error:
        raise InvalidInputError(f"config.json lacks {error}", where=str(folder)) from error
    size = int(config.get("head_dim") or d // heads)
    keys = int(config.get("num_key_value_heads") or heads)
    return layers * (2 * d * size * (heads + keys) + 3 * d * inner), words * d, d, size * keys, layers
