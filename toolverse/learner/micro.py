"""Micro batches: as many rows as go through a model at a time. How they are cut is memory and speed, never mathematics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from toolverse.learner.distributed import ALONE, World
from toolverse.learner.rows import Ints, Rows


def micro_batches(rows: Rows, members: Ints, most_tokens: int) -> Iterator[Ints]:
    """Some rows, sorted by length and cut so that no padded micro batch exceeds `most_tokens` (one row always fits)."""
    lengths = rows.lengths[members]
    order = members[np.argsort(lengths, kind="stable")]
    start = 0
    for stop in range(1, len(order) + 1):
        if stop == len(order) or len(rows.ids[order[stop]]) * (stop + 1 - start) > most_tokens:
            yield order[start:stop]
            start = stop


def shares(rows: Rows, members: Ints, most_tokens: int, world: World = ALONE) -> Iterator[tuple[Ints, bool]]:
    """This process's micro batches of some rows, which are dealt out by length. All processes get the same number (sharded
    models compute in lockstep); what fills up is one row that does not count (False)."""
    ordered = members[np.argsort(rows.lengths[members], kind="stable")]
    each = [list(micro_batches(rows, ordered[rank :: world.size], most_tokens)) for rank in range(world.size)]
    mine = each[world.rank]
    yield from ((some, True) for some in mine)
    for _ in range(max(map(len, each)) - len(mine)):
        yield ordered[:1], False


class MicroBatch:
    """Padded ids, and global rows renumbered to local ones."""

    def __init__(self, rows: Rows, some: Ints) -> None:
        lengths = rows.lengths[some]
        ids = np.zeros((len(some), int(lengths.max())), np.int64)
        for k, r in enumerate(some):
            ids[k, : lengths[k]] = rows.ids[r]
        self.ids, self.lengths = torch.from_numpy(ids), torch.from_numpy(lengths)
        self._place = np.full(len(rows.ids), -1, np.int64)
        self._place[some] = np.arange(len(some))
        self.tokens = np.flatnonzero(self.holds(rows.row))
        self.turns = np.flatnonzero(self.holds(rows.turn_row))

    def holds(self, row: Ints) -> NDArray[np.bool_]:
        """bool: entries whose row is in this micro batch."""
        return np.asarray(self._place[row] >= 0)

    def hidden(self, backbone: Any, row: Ints, column: Ints) -> Tensor:
        """Hidden states at (global row, column) positions."""
        local = torch.from_numpy(self._place[row])
        out: Tensor = backbone.hidden(self.ids, local, torch.from_numpy(column), self.lengths)
        return out
