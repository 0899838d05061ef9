"""Any causal language model of transformers as a backbone, whole or with LoRA adapters, and its tokenizer.

Rows of different lengths are not padded: they are laid end to end, positions start anew with each, and attention runs row by
row (`rows_apart`, registered as an attention implementation), so neither padding nor foreign rows are computed. The language
model's head is applied by the caller, at the positions that are read.

While sampling, keys and values live in `slots.SlotCache`: between the turns of an append-only episode a row keeps them, and only
what is new is read.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.func import functional_call

from toolverse.errors import InvalidInputError, MissingDependencyError, NotFoundError
from toolverse.learner.slots import SlotCache, attend
from toolverse.rollout.templates import ChatTemplate, following
from toolverse.types import JSON

ATTENTION = "toolverse_rows_apart"


@torch.compiler.disable  # type: ignore[untyped-decorator, unused-ignore]
def rows_apart(
    module: nn.Module,
    query: Tensor,
    key: Tensor | list[Tensor],
    value: Tensor | list[Tensor],
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Causal attention inside each row of a packed sequence.

    Args:
        query: [1, heads, n, size]. key, value: the same with as many heads or fewer (grouped queries), or, where rows hold
            something already, one [1, key heads, total, size] per row.
        kwargs: `row_lengths`, the lengths of the rows that follow one another. Absent in a sampling step of one query for each
            of b rows: attention is then under `attention_mask` [b, 1, 1, total].

    Returns:
        [1, n, heads, size] (or [b, 1, heads, size]).

    Raises:
        InvalidInputError: the model wants something else of its attention.
    """
    lengths = kwargs.get("row_lengths")
    if window := kwargs.get("sliding_window"):
        seen = lengths if isinstance(key, Tensor) and lengths else [k.shape[-2] for k in key]
        if max(seen) > window:
            raise _unlike(f"there is a row of {max(seen)} tokens, and its attention sees {window}")
    for name in ("softcap", "s_aux"):
        if kwargs.get(name) is not None:
            raise _unlike(f"its attention has `{name}`")
    if lengths is None:
        assert isinstance(key, Tensor)
        assert isinstance(value, Tensor)
        return attend(query, key, value, attention_mask, scaling).transpose(1, 2), None
    keys, values = (torch.split(x, lengths, dim=2) if isinstance(x, Tensor) else x for x in (key, value))
    parts = [
        attend(q, k, v, _later(q.shape[2], k), scaling)
        for q, k, v in zip(torch.split(query, lengths, dim=2), keys, values, strict=True)
    ]
    return torch.cat(parts, dim=2).transpose(1, 2), None


def _unlike(what: str) -> InvalidInputError:
    return InvalidInputError(
        what, where="a transformers policy", expected="causal attention to all earlier tokens", fix="take another model"
    )


def _later(n: int, key: Tensor) -> Tensor | None:
    """What the last n of a row's tokens see, bool [n, total]; None if they are all of it."""
    total = key.shape[2]
    if n == total:
        return None
    return torch.ones(n, total, dtype=torch.bool, device=key.device).tril(total - n)


BUCKET = 256
"""Compiled models see packed lengths that are multiples of this: a few shapes instead of one per micro batch."""


class PretrainedModel(nn.Module):
    """A `policy.Backbone` over a transformers model with a `get_base_model`-like trunk (`.model`) and `.lm_head`.

    Args:
        autocast: what matrix products are computed in, while weights stay what they are; None computes in the weights' type.
    """

    def __init__(self, model: Any, autocast: torch.dtype | None = None) -> None:
        super().__init__()
        self.model = model
        self.autocast = autocast
        self._bucket = 1
        # transformers 5.24 has renamed it.
        named = inspect.signature(self._trunk.forward).parameters
        self._cache_name = "cache" if "cache" in named else "past_key_values"

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        lora: int = 0,
        dtype: torch.dtype | None = None,
        autocast: torch.dtype | None = None,
    ) -> Self:
        """Weights from a folder, or by name from the local cache of transformers.

        Args:
            lora: see `wrap`.
            dtype: of the weights, float32 if None.
            autocast: see the class.

        Raises:
            MissingDependencyError: transformers (or peft, with `lora`) is not installed.
            NotFoundError: there are no such weights.
        """
        try:
            from transformers import AutoModelForCausalLM
        except ImportError as error:
            raise _missing("transformers") from error
        try:
            model = AutoModelForCausalLM.from_pretrained(str(path), dtype=dtype or torch.float32)
        except (OSError, ValueError) as error:
            raise _no_weights(path, error) from error
        return cls.wrap(model, lora=lora, autocast=autocast)

    @classmethod
    def wrap(cls, model: Any, *, lora: int = 0, autocast: torch.dtype | None = None) -> Self:
        """A loaded model; `lora` > 0 freezes it and adds adapters of that rank to every linear layer of the trunk.

        Raises:
            InvalidInputError: it is more than causal attention and a linear head.
        """
        from transformers import AttentionInterface, AttentionMaskInterface

        config = model.config
        if other := sorted(set(getattr(config, "layer_types", None) or ()) - {"full_attention", "sliding_attention"}):
            raise _unlike(f"the model has layers of {other[0]}")
        if getattr(config, "final_logit_softcapping", None):
            raise _unlike("the model squeezes its logits")
        AttentionInterface.register(ATTENTION, rows_apart)
        AttentionMaskInterface.register(ATTENTION, _mask_for_sampling)
        model.set_attn_implementation(ATTENTION)
        model.config.use_cache = False
        if lora:
            try:
                from peft import LoraConfig, get_peft_model
            except ImportError as error:
                raise _missing("peft") from error
            settings = LoraConfig(r=lora, lora_alpha=2 * lora, target_modules="all-linear", task_type="CAUSAL_LM")
            model = get_peft_model(model, settings)
        return cls(model, autocast)

    @property
    def width(self) -> int:
        return int(self.model.config.hidden_size)

    @property
    def vocabulary(self) -> int:
        return int(self.model.config.vocab_size)

    @property
    def device(self) -> torch.device:
        weights: Tensor = next(self.model.parameters())
        return weights.device

    @property
    def _trunk(self) -> Any:
        inner = self.model.get_base_model() if hasattr(self.model, "get_base_model") else self.model
        return inner.get_decoder() if hasattr(inner, "get_decoder") else inner.model

    @property
    def blocks(self) -> nn.ModuleList:
        """The transformer's layers."""
        layers: nn.ModuleList = self._trunk.layers
        return layers

    def recompute(self) -> None:
        """From now on keep only each block's input for the backward pass, and compute the rest again."""
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

        layers = self.blocks
        for place, block in enumerate(layers):
            # Nothing in a block is random: states of generators need not be kept.
            layers[place] = checkpoint_wrapper(block, preserve_rng_state=False)

    def compile_blocks(self, backend: str = "inductor") -> None:
        """Compile each block; attention over rows of changing lengths stays as it is."""
        self._bucket = BUCKET
        for block in self.blocks:
            block.compile(backend=backend, dynamic=True)

    def hidden(self, ids: Tensor, rows: Tensor, columns: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Final hidden states at (row, column); see `tiny.TinyModel.hidden`. `lengths` is needed: padding is never computed."""
        assert lengths is not None
        ids, rows, columns, lengths = (x.to(self.device) for x in (ids, rows, columns, lengths))
        sizes: list[int] = lengths.tolist()
        texts = [ids[r, :n] for r, n in enumerate(sizes)]
        if missing := -sum(sizes) % self._bucket:
            texts.append(ids.new_zeros(missing))
            sizes.append(missing)
        positions = torch.cat([torch.arange(n, device=self.device) for n in sizes]).unsqueeze(0)
        with self._computing():
            states = self._trunk(
                input_ids=torch.cat(texts).unsqueeze(0),
                position_ids=positions,
                attention_mask=None,
                use_cache=False,
                row_lengths=sizes,
            ).last_hidden_state[0]
        starts = lengths.cumsum(0) - lengths
        out: Tensor = states[starts[rows] + columns]
        return out

    def logits(self, hidden: Tensor) -> Tensor:
        """[P, width] -> [P, vocabulary]."""
        with self._computing():
            out: Tensor = self.model.get_output_embeddings()(hidden)
        return out

    def _computing(self) -> Any:
        return torch.autocast(self.device.type, self.autocast, enabled=self.autocast is not None)

    @contextmanager
    def without_adapters(self) -> Iterator[None]:
        """The model as it was before training, if it trains adapters only."""
        with self.model.disable_adapter():
            yield

    def save_adapters(self, folder: Path) -> None:
        """Write the adapters in peft's layout, which servers load."""
        self.model.save_pretrained(str(folder))

    # sampling -----------------------------------------------------------------------------------------------------------

    def cache(self, rows: int, capacity: int) -> SlotCache:
        """Slots for sampling with the present weights: steps of few shapes, captured as graphs, where the model is on a GPU."""
        trunk = partial(self._states, weights=self._cast_weights())
        gpu = self.device.type == "cuda"
        return SlotCache(trunk, rows, capacity, self.device, dtype=self.autocast, fixed=gpu, capture=gpu)

    @torch.no_grad()
    def extend(self, cache: SlotCache, rows: Tensor, ids: Tensor, lengths: Tensor) -> Tensor:
        """Append tokens to rows and return the hidden state at each row's last one, [b, width]."""
        chosen, sizes = rows.tolist(), lengths.tolist()
        if ids.shape[1] == 1 and all(cache.counts[row] for row in chosen):
            return cache.step(chosen, ids[:, 0])
        return cache.feed(chosen, [ids[k, :n] for k, n in enumerate(sizes)])

    @torch.no_grad()
    def _cast_weights(self) -> dict[str, Tensor]:
        """Matrices as autocast would cast them, at every token anew: a step of sampling is bound by reading them."""
        modules = dict(self._trunk.named_modules())
        if self.autocast is None or any(hasattr(m, "set_reshard_after_forward") for m in modules.values()):
            return {}  # sharded blocks look after their weights themselves
        linear = [(name, m) for name, m in modules.items() if isinstance(m, nn.Linear)]
        used = {f"{name}.{part}": p for name, m in linear for part, p in m.named_parameters(recurse=False)}
        return {name: p.to(self.autocast) for name, p in used.items() if p.dtype != self.autocast}

    def _states(
        self,
        ids: Tensor,
        positions: Tensor,
        mask: Tensor,
        cache: SlotCache,
        row_lengths: list[int] | None,
        *,
        weights: dict[str, Tensor],
    ) -> Tensor:
        given = {"input_ids": ids, "position_ids": positions, "attention_mask": mask, "use_cache": True}
        given[self._cache_name] = cache
        if (
            row_lengths is not None
        ):  # what is not given reaches no attention function; some models pass on what is, even None
            given["row_lengths"] = row_lengths
        # Compiled, a block that writes to a cache is another function for each layer: too many, and those of the learner's own
        # passes would be given up with them.
        eager = torch.compiler.set_stance("force_eager") if self._bucket > 1 else nullcontext()
        with eager, self._computing():
            out: Tensor = functional_call(self._trunk, weights, (), given).last_hidden_state
        return out


def _mask_for_sampling(*args: Any, attention_mask: Tensor | None = None, **kwargs: Any) -> Tensor | None:
    """The mask as it was passed in; None for packed rows."""
    return attention_mask


class PretrainedTokenizer:
    """A `render.ChatTokenizer` over a tokenizer of transformers and its chat template.

    Args:
        path: folder or name.
        tokenizer: a loaded one instead.

    Raises:
        NotFoundError: there is no such tokenizer.
        InvalidInputError: it has no chat template, or no end-of-turn token.
    """

    def __init__(self, path: str | Path = "", *, tokenizer: Any = None) -> None:
        self.path = str(path)
        if tokenizer is None:
            try:
                from transformers import AutoTokenizer
            except ImportError as error:
                raise _missing("transformers") from error
            try:
                tokenizer = AutoTokenizer.from_pretrained(self.path)
            except (OSError, ValueError) as error:
                raise _no_weights(path, error) from error
        if not tokenizer.chat_template:
            raise InvalidInputError(
                "the tokenizer has no chat template", where=self.path, fix="use a chat or instruct model"
            )
        if tokenizer.eos_token_id is None:
            raise InvalidInputError("the tokenizer has no end token", where=self.path, expected="eos_token")
        self._tokenizer = tokenizer
        special = {name: value for name, value in tokenizer.special_tokens_map.items() if isinstance(value, str)}
        self._template = ChatTemplate(tokenizer.chat_template, special)

    @property
    def end(self) -> int:
        return int(self._tokenizer.eos_token_id)

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode([i for i in ids if i != self.end], skip_special_tokens=False))

    def offsets(self, ids: Sequence[int]) -> list[int]:
        """n + 1 positions in the decoded text, by decoding every prefix: exact also where a character is several tokens."""
        return [len(self.decode(ids[:k])) for k in range(len(ids) + 1)]

    def opening(self, messages: Sequence[Mapping[str, JSON]], tools: Sequence[JSON] = ()) -> list[int]:
        return self.encode(self._template.render(messages, tools))

    def continuation(
        self,
        before: Sequence[Mapping[str, JSON]],
        said: str,
        delta: Sequence[Mapping[str, JSON]],
        tools: Sequence[JSON] = (),
    ) -> list[int] | None:
        tail = following(self._template, before, said, delta, tools)
        # The sampled end token is in the path already.
        return None if tail is None else self.encode(tail.removeprefix(self._tokenizer.decode([self.end])))

    def spoken(
        self, before: Sequence[Mapping[str, JSON]], message: Mapping[str, JSON], tools: Sequence[JSON] = ()
    ) -> list[int]:
        """See `render.ChatTokenizer`: what the template writes of the message after the generation prompt, up to the end token.

        Raises:
            InvalidInputError: the template writes a message otherwise than after its generation prompt.
        """
        prompt = self._template.render(before, tools)
        whole = self._template.render([*before, message], tools, generation=False)
        if not whole.startswith(prompt):
            raise InvalidInputError(
                "the chat template rewrites the prompt once it is answered",
                where=self.path,
                fix="clone with a template that only appends",
            )
        text, _, _ = whole[len(prompt) :].partition(self._tokenizer.decode([self.end]))
        return [*self.encode(text), self.end]

    def freeze(self) -> Self:
        return self

    def to_json(self) -> dict[str, JSON]:
        return {"path": self.path}


def _missing(package: str) -> MissingDependencyError:
    return MissingDependencyError(
        f"{package} is not installed", where="a transformers policy", fix="pip install 'toolverse[learner]'"
    )


def _no_weights(path: str | Path, error: Exception) -> NotFoundError:
    return NotFoundError(
        f"no usable model there ({str(error).splitlines()[0][:160]})",
        where=str(path),
        expected="a folder with config.json and safetensors, or a name in the local cache of transformers",
    )
