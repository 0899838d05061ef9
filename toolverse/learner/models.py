"""From a recipe to a tokenizer and a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from toolverse.errors import InvalidInputError
from toolverse.learner.distributed import World, shard
from toolverse.learner.policy import PolicyModel
from toolverse.learner.recipe import PolicySettings
from toolverse.learner.render import ChatTokenizer
from toolverse.learner.rows import switch_position
from toolverse.learner.tiny import TinyModel
from toolverse.learner.tokenizer import WordTokenizer
from toolverse.learner.update import UpdateSettings
from toolverse.types import JSON


def open_tokenizer(settings: PolicySettings) -> ChatTokenizer:
    """The tokenizer of a recipe; the tiny policy's is empty and learns from the expert's episodes."""
    if settings.model == "tiny":
        return WordTokenizer(settings.patterns, left_out=settings.left_out, uncased=settings.uncased)
    from toolverse.learner.pretrained import PretrainedTokenizer

    return PretrainedTokenizer(model_path(settings.model))


def model_path(name: str) -> str:
    """Where a model is: the folder of one that `toolverse models add` fetched, else the name itself."""
    from toolverse.learner.zoo import fetched

    folder = fetched(name)
    return str(folder) if folder is not None else name


def saved_tokenizer(settings: PolicySettings, data: Mapping[str, JSON]) -> ChatTokenizer:
    """The tokenizer that a checkpoint describes."""
    if settings.model == "tiny":
        return WordTokenizer.from_json(data)
    return open_tokenizer(settings)


def build_model(settings: PolicySettings, tokenizer: ChatTokenizer) -> PolicyModel:
    """A model with fresh (tiny) or pretrained weights and fresh critic heads.

    Raises:
        InvalidInputError: no words are known to the tiny policy (nothing was cloned).
        NotFoundError: the pretrained weights are not there.
    """
    backbone: Any
    if settings.model == "tiny":
        assert isinstance(tokenizer, WordTokenizer)
        if not tokenizer.frozen:
            raise InvalidInputError(
                "the tiny policy has no words yet",
                where="clone.episodes",
                expected="at least 1: it learns them from the expert",
            )
        parts = tokenizer.parts() if settings.composed else ()
        backbone = TinyModel(settings.tiny(len(tokenizer)), parts)
    else:
        from toolverse.learner.pretrained import PretrainedModel

        # Half precision only where it is fast: without AVX512 or AMX, bfloat16 on a CPU is six times slower than float32.
        # Weights that are trained stay float32: steps of 1e-6 vanish in bfloat16.
        half = torch.bfloat16 if _device(settings).type == "cuda" else None
        frozen = half if settings.lora else None
        backbone = PretrainedModel.load(model_path(settings.model), lora=settings.lora, dtype=frozen, autocast=half)
    return PolicyModel(backbone, settings.critic).to(_device(settings))


def equip(model: PolicyModel, settings: UpdateSettings, world: World) -> PolicyModel:
    """Recomputation, compilation and sharding as the recipe wants them; call it once the weights are in place.

    Raises:
        InvalidInputError: they are wanted of the tiny policy, which has no use for them.
    """
    wanted = [name for name in ("recompute", "compile", "shard") if getattr(settings, name)]
    for backbone in (model.backbone, model.critic_backbone) if wanted else ():
        if backbone is None:
            continue
        if isinstance(backbone, TinyModel):
            raise InvalidInputError(
                f"update.{wanted[0]} with the tiny policy", where="recipe", expected="a transformers model"
            )
        if settings.recompute:
            backbone.recompute()
        if settings.compile:
            backbone.compile_blocks()
        if settings.shard and world.size > 1:
            shard(backbone.blocks)
    return model


def _device(settings: PolicySettings) -> torch.device:
    """A small model is faster on the CPU that also runs its environments."""
    if settings.device != "auto":
        return torch.device(settings.device)
    return torch.device("cuda" if settings.model != "tiny" and torch.cuda.is_available() else "cpu")


def switch_words(tokenizer: ChatTokenizer) -> tuple[int, int]:
    """Ids of KEEP and SWITCH as they stand in a switch block: their first differing token."""
    texts = [tokenizer.encode(f"<switch>{word}</switch>") for word in ("KEEP", "SWITCH")]
    at = switch_position(tokenizer, texts[0])
    keep, switch = (ids[at] for ids in texts)
    if keep == switch:
        raise InvalidInputError("KEEP and SWITCH begin with the same token", where="tokenizer")
    return keep, switch
