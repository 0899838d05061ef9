"""Keys and values of running episodes in buffers that stay where they are, and the step that decodes one token for all of them.

Every episode has a row, every row a slot of fixed capacity and a length of its own, so that episodes come and go without the
others noticing. transformers' `StaticCache` writes all rows at one shared column: a row that starts later would begin behind the
longest. Two things read and write the slots:

- `feed` appends any number of tokens to any rows: they are laid end to end, and neither padding nor what a row already holds is
  computed. In an append-only episode that is the environment's answer; the prefix is never read again.
- `step` appends one token to each of some rows. Its shapes depend on two numbers only, how many slots and how many columns it
  looks at. Rounded up (`fixed`: slots to powers of two, columns by a quarter at most), they are few; on a GPU each pair is
  captured as a CUDA graph once it has been used a few times, and replayed: one launch instead of some thousand.

Rows that are done would be computed in vain, so a step of few rows first moves them to the front. Slots between them are computed
along: what is written there is behind the row's length, and is overwritten before anyone reads it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

BLOCK = 256
"""Capacities are multiples of this."""
FEED = 32_768
"""Tokens that are fed at a time: their activations are what sampling takes besides keys and values."""
USES = 3
"""A shape is captured at its next use after so many."""

Trunk = Callable[..., Tensor]
"""(ids, positions, mask, cache, row lengths or None), the first two int64 [b, n] -> hidden states [b, n, width]. A captured step
reads the weights where they were when it was captured."""


class SlotCache:
    """Keys and values, [slots, key heads, capacity, size] per layer.

    Args:
        trunk: the model, without its head.
        rows: how many rows, and slots.
        capacity: tokens of a row that there is room for at first; it grows where that is not enough.
        dtype: of the buffers; that of the first keys if None.
        fixed: step with few shapes. capture: replay them as CUDA graphs.

    Attributes:
        counts: cached tokens of each row.
        fed, stepped: tokens that `feed` has read, and rows that `step` was asked for. graphs: captured shapes.
    """

    def __init__(
        self,
        trunk: Trunk,
        rows: int,
        capacity: int,
        device: torch.device,
        *,
        dtype: torch.dtype | None = None,
        fixed: bool = False,
        capture: bool = False,
    ) -> None:
        self.trunk, self.capacity = trunk, _up(max(capacity, 1), BLOCK)
        self.counts = [0] * rows
        self.fed = self.stepped = 0
        self.graphs: dict[tuple[int, int], tuple[Any, Tensor]] = {}
        self._slots = list(range(rows))
        self._device, self._dtype, self._fixed, self._capture = device, dtype, fixed or capture, capture
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []
        self._tokens = torch.zeros(rows, 1, dtype=torch.long, device=device)
        self._lengths = torch.zeros(rows, 1, dtype=torch.long, device=device)
        self._range = torch.arange(rows, device=device)
        self._uses: dict[tuple[int, int], int] = {}
        self._pool: Any = None
        # Where the next keys go, and what attention is given in return.
        self._at: tuple[Tensor, Tensor] = (self._range, self._range)
        self._reading: list[tuple[int, int]] = []
        self._span = 0

    @property
    def rows(self) -> int:
        return len(self.counts)

    def forget(self, rows: Tensor) -> None:
        """These rows start anew."""
        for row in rows.tolist():
            self.counts[row] = 0

    # what a model of transformers calls ---------------------------------------------------------------------------------

    @torch.compiler.disable  # type: ignore[untyped-decorator, unused-ignore]
    def update(self, key: Tensor, value: Tensor, layer: int, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        """Write the new keys and values of a layer, [b, key heads, n, size]; give back all that attention reads: one view per
        row while feeding, one for all slots of a step."""
        if layer == len(self._keys):
            for buffers, new in ((self._keys, key), (self._values, value)):
                shape = (self.rows, new.shape[1], self.capacity, new.shape[3])
                buffers.append(torch.zeros(shape, dtype=self._dtype or new.dtype, device=new.device))
        slots, places = self._at
        found: list[Any] = []
        for buffer, new in ((self._keys[layer], key), (self._values[layer], value)):
            # [1, heads, tokens, size] while feeding and [slots, heads, 1, size] in a step: one entry per token either way.
            entries = new[0].transpose(0, 1) if self._reading else new[:, :, 0]
            buffer[slots, :, places] = entries.to(buffer.dtype)
            found.append(
                [buffer[slot : slot + 1, :, :n] for slot, n in self._reading]
                if self._reading
                else buffer[: len(slots), :, : self._span]
            )
        return found[0], found[1]

    # feeding ------------------------------------------------------------------------------------------------------------

    def feed(self, rows: Sequence[int], texts: Sequence[Tensor]) -> Tensor:
        """Append texts (int64 [n], n at least 1) to rows; returns the states at their last tokens, [rows, width]."""
        out, first = [], 0
        while first < len(rows):
            last, total = first + 1, len(texts[first])
            while last < len(rows) and total + len(texts[last]) <= FEED:
                total += len(texts[last])
                last += 1
            out.append(self._feed(rows[first:last], texts[first:last]))
            first = last
        return torch.cat(out)

    def _feed(self, rows: Sequence[int], texts: Sequence[Tensor]) -> Tensor:
        sizes = [len(text) for text in texts]
        before = [self.counts[row] for row in rows]
        slots = [self._slots[row] for row in rows]
        after = [b + n for b, n in zip(before, sizes, strict=True)]
        self._grow(max(after))
        lengths = torch.tensor(sizes)
        ends = lengths.cumsum(0) - 1
        starts = torch.tensor(before) - (ends + 1 - lengths)
        places = (torch.arange(sum(sizes)) + starts.repeat_interleave(lengths)).to(self._device)
        self._at = (torch.tensor(slots).repeat_interleave(lengths).to(self._device), places)
        self._reading = list(zip(slots, after, strict=True))
        # A mask of four dimensions is taken as it is; attention row by row has no use for one.
        mask = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=self._device)
        ids = torch.cat([text.to(self._device) for text in texts]).unsqueeze(0)
        states = self.trunk(ids, places.unsqueeze(0), mask, self, sizes)
        self._reading = []
        for row, n in zip(rows, after, strict=True):
            self.counts[row] = n
        self.fed += sum(sizes)
        return states[0, ends.to(self._device)]

    def _grow(self, capacity: int) -> None:
        if capacity <= self.capacity:
            return
        # By half at least: a growing chat is copied a few times in its life, and captured steps with it.
        capacity = _up(max(capacity, self.capacity * 3 // 2), BLOCK)
        for buffers in (self._keys, self._values):
            for layer, buffer in enumerate(buffers):
                buffers[layer] = F.pad(buffer, (0, 0, 0, capacity - self.capacity))
        self.capacity = capacity
        self.graphs.clear()
        self._uses.clear()
        self._pool = None  # its memory goes with the last graph in it

    # stepping -----------------------------------------------------------------------------------------------------------

    def step(self, rows: Sequence[int], tokens: Tensor) -> Tensor:
        """Append one token (int64 [b]) to each of some rows that hold some; returns the states at them, [b, width]."""
        self._to_the_front(rows)
        slots = [self._slots[row] for row in rows]
        reach = max(slots) + 1
        if self._fixed:
            reach = min(_power(reach), self.rows)
        counts = [0] * reach
        for row, slot in enumerate(self._slots):
            if slot < reach:
                counts[slot] = self.counts[row]
        span = max(counts) + 1
        self._grow(span)
        if self._fixed:
            span = min(_up(span, max(_power(span) // 8, BLOCK)), self.capacity)
        ids = torch.zeros(reach, 1, dtype=torch.long)
        ids[slots, 0] = tokens.cpu()
        self._tokens[:reach].copy_(ids, non_blocking=True)
        self._lengths[:reach].copy_(torch.tensor(counts).unsqueeze(1), non_blocking=True)
        states = self._replayed(reach, span)
        for row in rows:
            self.counts[row] += 1
        self.stepped += len(rows)
        # Taken out of the slots: a graph writes its next states where these are.
        return states[torch.tensor(slots, device=self._device), 0]

    def _to_the_front(self, rows: Sequence[int]) -> None:
        """Exchange slots, where that halves the step at least."""
        if 2 * len(rows) > max(self._slots[row] for row in rows) + 1:
            return
        wanted = set(rows)
        front: list[int] = []
        back: list[int] = []
        for row, slot in enumerate(self._slots):
            if (row in wanted) != (slot < len(rows)):
                (back if row in wanted else front).append(row)
        here = torch.tensor([self._slots[row] for row in front + back], device=self._device)
        there = torch.tensor([self._slots[row] for row in back + front], device=self._device)
        most = max(self.counts[row] for row in front + back)
        for buffer in (*self._keys, *self._values):
            buffer[here, :, :most] = buffer[there, :, :most]
        for one, other in zip(front, back, strict=True):
            self._slots[one], self._slots[other] = self._slots[other], self._slots[one]

    def _run(self, reach: int, span: int) -> Tensor:
        lengths = self._lengths[:reach]
        self._at, self._span = (self._range[:reach], lengths[:, 0]), span
        mask = (torch.arange(span, device=self._device) <= lengths)[:, None, None]
        return self.trunk(self._tokens[:reach], lengths, mask, self, None)

    def _replayed(self, reach: int, span: int) -> Tensor:
        shape = reach, span
        if shape not in self.graphs:
            self._uses[shape] = self._uses.get(shape, 0) + 1
            if not self._capture or self._uses[shape] <= USES:
                return self._run(reach, span)
            try:
                self.graphs[shape] = self._captured(reach, span)
            except RuntimeError as error:
                # The model waits for a value on the CPU, say; the step itself never does.
                self._capture = False
                torch.cuda.synchronize(self._device)
                warnings.warn(f"sampling without CUDA graphs: {str(error).splitlines()[0][:200]}", stacklevel=2)
                return self._run(reach, span)
        graph, states = self.graphs[shape]
        graph.replay()
        return states

    def _captured(self, reach: int, span: int) -> tuple[Any, Tensor]:
        """The step as a CUDA graph. Capturing computes nothing; the uses before it were the warm-up."""
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        torch.cuda.synchronize(self._device)
        graph = torch.cuda.CUDAGraph()
        # Graphs are replayed one after the other and their states taken out at once, so they can share their memory.
        with torch.cuda.graph(graph, pool=self._pool):
            states = self._run(reach, span)
        return graph, states


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float | None) -> Tensor:
    """Attention of [b, heads, n, size] to keys [b, key heads, total, size] that may be fewer in heads.

    Args:
        mask: bool, what each query sees: [n, total], or [b, 1, 1, total] for one query per row; None is causal, and n = total.

    Returns:
        [b, heads, n, size].
    """
    b, heads, n, size = query.shape
    shared = heads // key.shape[1]
    if mask is None:
        return F.scaled_dot_product_attention(query, key, value, scale=scaling, is_causal=True, enable_gqa=shared > 1)
    if shared == 1:
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scaling)
    # Heads that share keys are further queries to them: kernels that take a mask would copy the keys for each head instead.
    folded = query.reshape(b, key.shape[1], shared * n, size)
    seen = mask.repeat(shared, 1) if n > 1 else mask
    return F.scaled_dot_product_attention(folded, key, value, attn_mask=seen, scale=scaling).reshape(query.shape)


def _up(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple


def _power(count: int) -> int:
    return 1 << (count - 1).bit_length()
