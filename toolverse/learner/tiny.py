"""The bundled tiny policy: a decoder-only transformer of 0.4 to 2 M parameters, written out.

Pre-norm blocks with RMSNorm, rotary positions, scaled-dot-product attention and an MLP with squared ReLU (So et al.
2021, arXiv:2109.08668: a quarter of GELU's time on a CPU); input and output embeddings are tied.
The first `places` positions also have learned embeddings: where a prompt has a fixed layout (a grid, say), "which square" is then
one lookup instead of a sum of relative distances.

Where what is said must be *copied* from what was read (an id, the name of a thing), some options learn in seconds what a plain
transformer of this size does not:

- `recent`: each position also sees the embeddings of the tokens just before it, each through a matrix of its own (a short causal
  convolution, as in Fu et al. 2023, arXiv:2212.14052). "What came after this, earlier?" is then one attention instead of two.
- `copies`: a last attention over the whole context whose values are the embeddings of the tokens themselves, added to the hidden
  state by a gate that is learned. With tied embeddings that raises the logits of the tokens it looks at: a pointer (Vinyals et
  al. 2015, arXiv:1506.03134; See et al. 2017, arXiv:1704.04368), and which token stands there need not be learned.
- `matches`: that attention begins as one that goes on with what it has begun to say. A place scores higher for each of the last
  `matches` tokens that is the very token that stood as far before that place, counted as long as all nearer ones are equal too
  (n-gram heads: Akyürek et al. 2024, arXiv:2401.12973). Copying to the end is then known from the start, of tokens too that
  training has hardly seen; what is learned is where to begin and when to stop.

- `alike`: attention begins as likeness: keys start as what queries are, so that a token looks at the same token elsewhere, and
  only one pair in four is turned by positions, so that it does so over any distance. "Is what I look for among these, and have I
  been there?" is asked by comparing.
- `parts`: the embedding of a token is its own plus those of the words in it (as in Bojanowski et al. 2017, arXiv:1607.04606), so
  that the "desk" of a task is part of "go to desk 1" before anything is learned, and a piece that is rare shares what is known.

Two things make it fast on one CPU core:

- The last block is evaluated only at the positions that are read (`read`: the tokens that are trained on, the positions of
  values). With two blocks and a tenth of the tokens read, that is 40 % less arithmetic, and the LM head never sees the rest.
- Rows are padded on the right, so causal attention needs no mask at all; sampling keeps a key-value cache with a length per
  row.

Hidden states are float32 [.., width].
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from toolverse.errors import InvalidInputError

MATCH = 4.0
"""Score of one equal token at the start: two of them outweigh a context of a thousand places (e^8 = 3000)."""


@dataclass(frozen=True)
class TinyConfig:
    """Sizes. `width` is divisible by `heads`, and the head size is even (rotary pairs). Positions from `places` on share the
    last learned embedding; 0 has none of them. `recent`, `copies` and `matches` (which needs `copies`) and `alike`: see the
    module."""

    vocabulary: int
    width: int = 128
    layers: int = 2
    heads: int = 4
    expansion: int = 4
    places: int = 128
    recent: int = 0
    copies: bool = False
    matches: int = 0
    alike: bool = False
    base: float = 10_000.0

    def __post_init__(self) -> None:
        if self.width % self.heads or (self.width // self.heads) % 2:
            raise InvalidInputError(
                f"width {self.width} with {self.heads} heads", where="policy", expected="an even size per head"
            )
        if self.matches and not self.copies:
            raise InvalidInputError(
                f"matches={self.matches} without copies",
                where="policy",
                expected="copies=true: they are scores of the pointer",
            )


class Cache:
    """Of running rows: `ids`, int64 [rows, capacity], their `lengths`, int64 [rows], and keys and values of each layer,
    [rows, heads, capacity, head size]; a model that copies has one more list of keys."""

    def __init__(self, config: TinyConfig, rows: int, capacity: int, device: torch.device) -> None:
        shape = (rows, config.heads, capacity, config.width // config.heads)
        self.keys = [torch.zeros(shape, device=device) for _ in range(config.layers + config.copies)]
        self.values = [torch.zeros(shape, device=device) for _ in range(config.layers)]
        self.ids = torch.zeros(rows, capacity, dtype=torch.long, device=device)
        self.lengths = torch.zeros(rows, dtype=torch.long, device=device)
        self.capacity = capacity

    def forget(self, rows: Tensor) -> None:
        """These rows start anew."""
        self.lengths[rows.to(self.lengths.device)] = 0

    def grow(self, capacity: int) -> None:
        """Room for `capacity` positions per row."""
        if capacity > self.capacity:
            more = capacity - self.capacity
            self.keys = [F.pad(x, (0, 0, 0, more)) for x in self.keys]
            self.values = [F.pad(x, (0, 0, 0, more)) for x in self.values]
            self.ids = F.pad(self.ids, (0, more))
            self.capacity = capacity


class Block(nn.Module):
    """Attention, then MLP, each behind a norm and a residual."""

    def __init__(self, config: TinyConfig) -> None:
        super().__init__()
        d = config.width
        self.heads = config.heads
        self.norm1, self.norm2 = nn.RMSNorm(d, eps=1e-5), nn.RMSNorm(d, eps=1e-5)
        self.q, self.kv = nn.Linear(d, d, bias=False), nn.Linear(d, 2 * d, bias=False)
        self.out = nn.Linear(d, d, bias=False)
        self.up, self.down = nn.Linear(d, config.expansion * d), nn.Linear(config.expansion * d, d)

    def split(self, x: Tensor) -> Tensor:
        """[rows, n, width] -> [rows, heads, n, head size]."""
        return x.view(*x.shape[:-1], self.heads, -1).transpose(1, 2)

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """The residual stream [.., width] after attention and MLP."""
        x = x + self.out(attended)
        out: Tensor = x + self.down(F.relu(self.up(self.norm2(x))).square())
        return out


class Pointer(nn.Module):
    """Attention whose values are the embeddings of the tokens of the context; see the module.

    Queries come from the last block's output, keys from its input, both normed. `match`, float32 [heads, matches]: what each
    further equal token adds to a place's score.
    """

    def __init__(self, config: TinyConfig) -> None:
        super().__init__()
        d = config.width
        self.heads = config.heads
        self.norm1, self.norm2 = nn.RMSNorm(d, eps=1e-5), nn.RMSNorm(d, eps=1e-5)
        self.q, self.k = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)
        self.gate = nn.Linear(d, config.heads)
        self.match = nn.Parameter(torch.zeros(config.heads, config.matches)) if config.matches else None

    def keys(self, x: Tensor) -> Tensor:
        """[rows, n, width] -> [rows, heads, n, head size]."""
        out: Tensor = self.k(self.norm1(x)).view(*x.shape[:-1], self.heads, -1).transpose(1, 2)
        return out

    def seen(self, ids: Tensor, at: Tensor) -> Tensor:
        """Which places are looked at, and what they have to begin with: bool [rows, 1, Q, n], or with matches float32
        [rows, heads, Q, n].

        Args:
            ids: int64 [rows, n]. at: int64 [rows, Q], the places that look: none sees a later one.
        """
        n = ids.shape[1]
        run = torch.arange(n, device=ids.device) <= at.unsqueeze(-1)
        hidden = ~run.unsqueeze(1)
        if self.match is None:
            return ~hidden
        scores = self.match.new_zeros(1)
        for back, more in enumerate(self.match.unbind(1)):
            said = ids.gather(1, (at - back).clamp_min(0)).masked_fill(at < back, -1)
            stood = F.pad(ids, (back + 1, 0), value=-2)[:, :n]
            run = run & (said.unsqueeze(2) == stood.unsqueeze(1))
            scores = scores + more.view(-1, 1, 1) * run.unsqueeze(1)
        return scores.masked_fill(hidden, -math.inf)

    def forward(self, hidden: Tensor, keys: Tensor, tokens: Tensor, seen: Tensor) -> Tensor:
        """What is copied, [rows, Q, width].

        Args:
            hidden: [rows, Q, width]. keys: see `keys`. tokens: [rows, n, width], embeddings. seen: see `seen`.
        """
        hidden = self.norm2(hidden)
        q = self.q(hidden).view(*hidden.shape[:-1], self.heads, -1).transpose(1, 2)
        values = F.normalize(tokens, dim=-1).unsqueeze(1).expand(-1, self.heads, -1, -1)
        looked = F.scaled_dot_product_attention(q, keys, values, attn_mask=seen)
        out: Tensor = (looked * self.gate(hidden).transpose(1, 2).unsqueeze(-1)).sum(1)
        return out


class TinyModel(nn.Module):
    """See the module.

    Args:
        parts: of each token of the vocabulary, the numbers of the words in it; none if embeddings are not composed.
    """

    _flat: Tensor
    _starts: Tensor

    def __init__(self, config: TinyConfig, parts: Sequence[Sequence[int]] = ()) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        self.words: nn.Embedding | None = None
        if parts:
            flat = [word for some in parts for word in some]
            self.words = nn.Embedding(max(flat, default=0) + 1, config.width)
            starts = itertools.accumulate(map(len, parts[:-1]), initial=0)
            self.register_buffer("_flat", torch.tensor(flat, dtype=torch.long), persistent=False)
            self.register_buffer("_starts", torch.tensor(list(starts)), persistent=False)
        self.places = nn.Embedding(config.places, config.width) if config.places else None
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.before = nn.ModuleList(nn.Linear(config.width, config.width, bias=False) for _ in range(config.recent))
        self.pointer = Pointer(config) if config.copies else None
        self.norm = nn.RMSNorm(config.width, eps=1e-5)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                table = name.startswith(("embedding", "places", "words"))
                nn.init.normal_(parameter, std=0.02 if table else 1.0 / math.sqrt(parameter.shape[1]))
        for block in self.blocks:  # residual branches start small, so that the first steps see the embeddings
            assert isinstance(block, Block)
            for layer in (block.out, block.down):
                with torch.no_grad():
                    layer.weight.mul_(1.0 / math.sqrt(2 * config.layers))
            if config.alike:
                with torch.no_grad():
                    block.kv.weight[: config.width].copy_(block.q.weight)
        if self.pointer is not None:
            # Copying starts at work: an attention that is not heard does not learn where to look.
            nn.init.zeros_(self.pointer.gate.weight)
            nn.init.constant_(self.pointer.gate.bias, math.sqrt(config.width))
            if self.pointer.match is not None:
                nn.init.constant_(self.pointer.match, MATCH)

    @property
    def width(self) -> int:
        return self.config.width

    @property
    def vocabulary(self) -> int:
        return self.config.vocabulary

    @property
    def device(self) -> torch.device:
        return self.embedding.weight.device

    def hidden(self, ids: Tensor, rows: Tensor, columns: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Final hidden states at some positions.

        Args:
            ids: int64 [R, T], padded on the right (whatever the padding holds, it reaches no real position).
            rows, columns: int64 [P], the positions that are read.
            lengths: unused; models that need a mask of the padding get it here.

        Returns:
            float32 [P, width].
        """
        ids, rows, columns = (x.to(self.device) for x in (ids, rows, columns))
        positions = torch.arange(ids.shape[1], device=self.device)
        tokens = F.embedding(ids, self.table())
        x = self._placed(tokens, positions, F.pad(tokens, (0, 0, self.config.recent, 0)))
        turn = self._turns(positions)
        for block in list(self.blocks)[:-1]:
            assert isinstance(block, Block)
            y = block.norm1(x)
            q = rotate(block.split(block.q(y)), turn)
            k, v = (block.split(part) for part in block.kv(y).chunk(2, dim=-1))
            attended = F.scaled_dot_product_attention(q, rotate(k, turn), v, is_causal=True)
            x = block.finish(x, attended.transpose(1, 2).flatten(2))
        return self._last_block(x, ids, tokens, rows, columns, turn)

    def _last_block(
        self, x: Tensor, ids: Tensor, tokens: Tensor, rows: Tensor, columns: Tensor, turn: Tensor
    ) -> Tensor:
        """The last block at the read positions: they are laid out as [R, Q] with Q the most reads of one row."""
        block = self.blocks[-1]
        assert isinstance(block, Block)
        y = block.norm1(x)
        k, v = (block.split(part) for part in block.kv(y).chunk(2, dim=-1))
        slot, most = slots(rows, x.shape[0])
        at = torch.zeros(x.shape[0], most, dtype=torch.long, device=x.device)
        at[rows, slot] = columns
        gather = at.unsqueeze(-1).expand(-1, -1, x.shape[2])
        q = block.split(block.q(y.gather(1, gather)))
        mask = torch.arange(x.shape[1], device=x.device) <= at.unsqueeze(-1)
        attended = F.scaled_dot_product_attention(
            rotate(q, turn[at].unsqueeze(1)), rotate(k, turn), v, attn_mask=mask.unsqueeze(1)
        )
        read = attended.transpose(1, 2).flatten(2)[rows, slot]
        found = block.finish(x[rows, columns], read)
        out: Tensor = self.norm(found)
        if self.pointer is not None:
            laid = found.new_zeros(*at.shape, found.shape[-1])
            laid[rows, slot] = found
            out = out + self.pointer(laid, self.pointer.keys(x), tokens, self.pointer.seen(ids, at))[rows, slot]
        return out

    def table(self) -> Tensor:
        """The embeddings of all tokens, [vocabulary, width]."""
        if self.words is None:
            return self.embedding.weight
        return self.embedding.weight + F.embedding_bag(self._flat, self.words.weight, self._starts, mode="sum")

    def logits(self, hidden: Tensor) -> Tensor:
        """[P, width] -> [P, vocabulary]."""
        return F.linear(hidden, self.table())

    # sampling -----------------------------------------------------------------------------------------------------------

    def cache(self, rows: int, capacity: int) -> Cache:
        return Cache(self.config, rows, capacity, self.device)

    @torch.no_grad()
    def extend(self, cache: Cache, rows: Tensor, ids: Tensor, lengths: Tensor) -> Tensor:
        """Append tokens to cached rows and return the hidden state at each row's last one.

        Args:
            rows: int64 [b], which rows of the cache.
            ids: int64 [b, n], padded on the right.
            lengths: int64 [b], 1..n real tokens.

        Returns:
            float32 [b, width].
        """
        rows, ids, lengths = (x.to(self.device) for x in (rows, ids, lengths))
        n = ids.shape[1]
        before = cache.lengths[rows]
        total = int((before + lengths).max())
        cache.grow(max(total, int(before.max()) + n))
        places = before.unsqueeze(1) + torch.arange(n, device=self.device)
        turn = self._turns(places).unsqueeze(1)
        seen = int(places.max()) + 1
        mask = (torch.arange(seen, device=self.device) <= places.unsqueeze(-1)).unsqueeze(1)
        cache.ids[rows.unsqueeze(1), places] = ids
        table = self.table()
        tokens = F.embedding(ids, table)
        recent = self.config.recent
        earlier = before.unsqueeze(1) + torch.arange(-recent, 0, device=self.device)
        past = F.embedding(cache.ids[rows.unsqueeze(1), earlier.clamp_min(0)], table) * (earlier >= 0).unsqueeze(-1)
        x = self._placed(tokens, places, torch.cat([past, tokens], dim=1))
        ends = lengths - 1
        pick = torch.arange(len(rows), device=self.device)
        for layer, block in enumerate(self.blocks):
            assert isinstance(block, Block)
            y = block.norm1(x)
            k, v = (block.split(part) for part in block.kv(y).chunk(2, dim=-1))
            cache.keys[layer][rows.unsqueeze(1), :, places] = rotate(k, turn).transpose(1, 2)
            cache.values[layer][rows.unsqueeze(1), :, places] = v.transpose(1, 2)
            q = rotate(block.split(block.q(y)), turn)
            keys, values = cache.keys[layer][rows, :, :seen], cache.values[layer][rows, :, :seen]
            if layer == len(self.blocks) - 1:
                if self.pointer is not None:
                    cache.keys[-1][rows.unsqueeze(1), :, places] = self.pointer.keys(x).transpose(1, 2)
                # only the last token of each row is read
                q, mask, x = q[pick, :, ends].unsqueeze(2), mask[pick, :, ends].unsqueeze(2), x[pick, ends].unsqueeze(1)
            attended = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
            x = block.finish(x, attended.transpose(1, 2).flatten(2))
        cache.lengths[rows] = before + lengths
        out: Tensor = self.norm(x)
        if self.pointer is not None:
            known, at = cache.ids[rows, :seen], (before + ends).unsqueeze(1)
            keys = cache.keys[-1][rows, :, :seen]
            out = out + self.pointer(x, keys, F.embedding(known, table), self.pointer.seen(known, at))
        return out.squeeze(1)

    def _placed(self, tokens: Tensor, positions: Tensor, longer: Tensor) -> Tensor:
        """What the first block sees, [rows, n, width]: the tokens' embeddings, where they stand, and what stands just before:
        `longer` are the embeddings with the `recent` ones before them (zero where there is none)."""
        x = tokens if self.places is None else tokens + self.places(positions.clamp_max(self.config.places - 1))
        for back, layer in enumerate(self.before, start=1):
            first = self.config.recent - back
            x = x + layer(longer[:, first : first + tokens.shape[1]])
        return x

    def _turns(self, positions: Tensor) -> Tensor:
        """complex64 [.., head size / 2]: by how much each position turns each pair."""
        half = self.config.width // self.config.heads // 2
        frequency = self.config.base ** (-torch.arange(half, device=positions.device) / half)
        if self.config.alike:
            frequency[(half + 3) // 4 :] = 0.0
        angle = positions.unsqueeze(-1) * frequency
        return torch.polar(torch.ones_like(angle), angle)


def rotate(x: Tensor, turn: Tensor) -> Tensor:
    """Rotary positions (Su et al. 2021, arXiv:2104.09864): neighbouring entries of [.., n, head size] as complex numbers, times
    `turn`, complex64 [.., n, head size / 2]. One kernel instead of seven."""
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turn).flatten(-2)


def slots(rows: Tensor, count: int) -> tuple[Tensor, int]:
    """For reads listed in any order: which of its row's reads each one is, and the most reads of one row (at least 1)."""
    order = torch.argsort(rows, stable=True)
    per_row = torch.bincount(rows, minlength=count)
    first = per_row.cumsum(0) - per_row
    slot = torch.empty_like(rows)
    slot[order] = torch.arange(len(rows), device=rows.device) - first[rows[order]]
    return slot, max(int(per_row.max()), 1)
