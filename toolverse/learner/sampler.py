"""Whoever plays for the learner: the model itself, sampled in batches, and the expert whose episodes it copies.

Both are batch policies of `rollout`, and both keep the exact ids they produced: behaviour cloning and PPO read the same kind of
trajectory, and nothing is ever tokenised a second time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from toolverse.envs.base import ChatEnv
from toolverse.envs.messages import PARSERS
from toolverse.envs.prompts import Prompt
from toolverse.learner.policy import PolicyModel
from toolverse.learner.render import ChatTokenizer, RenderingKind, View, views
from toolverse.rollout.episode import Reply
from toolverse.rollout.tokens import TurnTokens
from toolverse.types import JSON


@dataclass
class _Episode:
    """One that is being played: its number (with the seed, what it draws from), its row of the cache, and its next message."""

    view: View
    number: int
    row: int
    drawn: int = 0
    pending: int = 0  # the last sampled id, which the cache has not seen
    context: list[int] = field(default_factory=list)
    restart: bool = True
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


class Sampler:
    """Samples messages for many episodes at once. What an episode draws is a function of the seed, the episode's number and how
    much it has drawn: it does not matter which others run beside it, or in which process.

    A batch policy, whose episodes wait for one another, and a stream policy, whose episodes don't: there, tokens are sampled for
    all that are in the middle of a message, and contexts are read when there are enough of them to be worth a pass.

    Args:
        temperature: of the distribution that is sampled and whose log-probabilities are kept; 0 takes the likeliest token.
        max_new_tokens: a message that is not ended by then is cut, and its episode is truncated.
        seed: decides all random choices, together with the episodes' numbers.
        first: number of the first episode; the others are counted from it in playing order.
        streams: what `Arena` plays it as.
    """

    def __init__(
        self,
        model: PolicyModel,
        tokenizer: ChatTokenizer,
        rendering: RenderingKind,
        *,
        template: Prompt | None = None,
        temperature: float = 1.0,
        max_new_tokens: int = 16,
        seed: int = 0,
        first: int = 0,
        name: str = "policy",
        streams: bool = False,
    ) -> None:
        self.name = name
        self.model, self.tokenizer, self.rendering, self.template = model, tokenizer, rendering, template
        self.temperature, self.max_new_tokens = temperature, max_new_tokens
        self.seed, self._next, self.streams = seed, first, streams
        self._episodes: list[_Episode] = []
        self._free: list[int] = []
        self._asked: list[int] = []
        self._running: list[int] = []
        self._cache: Any = None
        self.tokens = 0

    def begin_batch(self, envs: Sequence[ChatEnv], seeds: Sequence[int]) -> None:
        self.begin_stream(len(envs))
        for i, (env, seed) in enumerate(zip(envs, seeds, strict=True)):
            self.begin(i, env, seed)

    def act_batch(
        self, indices: Sequence[int], messages: Sequence[list[dict[str, JSON]]], infos: Sequence[dict[str, Any]]
    ) -> list[Reply]:
        for i, chat, info in zip(indices, messages, infos, strict=True):
            self.ask(i, chat, info)
        said: dict[int, Reply] = {}
        while len(said) < len(indices):
            said.update(self.answers())
        return [said[i] for i in indices]

    def begin_stream(self, width: int) -> None:
        self._episodes, self._asked, self._running = [], [], []
        self._free = list(range(width))
        self._cache = self.model.backbone.cache(width, 64)

    def begin(self, index: int, env: ChatEnv, seed: int) -> None:
        (view,) = views([env], self.rendering, self.tokenizer, self.template)
        row = self._free.pop(0)
        self._cache.forget(torch.tensor([row]))
        self._episodes.append(_Episode(view, self._next, row))
        self._next += 1

    def end(self, index: int) -> None:
        self._free.append(self._episodes[index].row)

    def ask(self, index: int, messages: list[dict[str, JSON]], info: dict[str, Any]) -> None:
        episode = self._episodes[index]
        episode.context, episode.restart = episode.view.context(messages, info)
        episode.ids, episode.logprobs = [], []
        self._asked.append(index)

    def answers(self) -> list[tuple[int, Reply]]:
        done: list[int] = []
        while not done:
            worth_it = WORTH * len(self._asked) >= len(self._asked) + len(self._running)
            done = self._read() if worth_it else self._step()
        return [(i, self._reply(self._episodes[i])) for i in done]

    def closing(self, index: int, messages: Sequence[dict[str, JSON]], info: dict[str, Any]) -> tuple[list[int], bool]:
        """The context that would come next after an episode's last observation: where a truncated episode's value is read."""
        return self._episodes[index].view.context(messages, info)

    @torch.no_grad()
    def _read(self) -> list[int]:
        """Read the contexts of all that ask, and sample their first tokens."""
        asked, self._asked = self._asked, []
        episodes = [self._episodes[i] for i in asked]
        fresh = [e.row for e in episodes if e.restart]
        self._cache.forget(torch.tensor(fresh, dtype=torch.long))
        chunks = [e.context if e.restart else [e.pending, *e.context] for e in episodes]
        rows, lengths = torch.tensor([e.row for e in episodes]), torch.tensor([len(chunk) for chunk in chunks])
        hidden = self.model.backbone.extend(self._cache, rows, pad(chunks), lengths)
        return self._choose(asked, hidden)

    @torch.no_grad()
    def _step(self) -> list[int]:
        """One more token for all that are in the middle of a message."""
        running, self._running = self._running, []
        episodes = [self._episodes[i] for i in running]
        rows, ids = (torch.tensor([getattr(e, name) for e in episodes]) for name in ("row", "pending"))
        hidden = self.model.backbone.extend(self._cache, rows, ids.unsqueeze(1), torch.ones_like(rows))
        return self._choose(running, hidden)

    def _choose(self, indices: Sequence[int], hidden: Tensor) -> list[int]:
        """One token for each; those whose message goes on are running, and those whose message is done are returned."""
        episodes = [self._episodes[i] for i in indices]
        uniform = None
        if self.temperature:
            numbers, drawn = (np.array([getattr(e, name) for e in episodes]) for name in ("number", "drawn"))
            uniform = torch.from_numpy(uniforms(self.seed, numbers, drawn))
        chosen, logp = choose(self.model.backbone.logits(hidden).float(), self.temperature, uniform)
        done: list[int] = []
        for i, e, token, value in zip(indices, episodes, chosen.tolist(), logp.tolist(), strict=True):
            e.drawn += 1
            e.pending = token
            e.ids.append(token)
            e.logprobs.append(value)
            over = token == self.tokenizer.end or len(e.ids) >= self.max_new_tokens
            (done if over else self._running).append(i)
        self.tokens += len(indices)
        return done

    def _reply(self, episode: _Episode) -> Reply:
        text = self.tokenizer.decode(episode.ids)
        parsed = PARSERS[episode.view.core.prompt_kind](text)
        episode.view.said(text, parsed.command, parsed.subgoal)
        tokens = TurnTokens(
            context_ids=tuple(episode.context),
            sampled_ids=tuple(episode.ids),
            logprobs=tuple(episode.logprobs),
            restart=episode.restart,
        )
        return Reply(text, tokens=tokens, finish="stop" if episode.pending == self.tokenizer.end else "length")


WORTH = 8
"""Contexts are read once they are one in so many of the episodes that wait or are in the middle of a message."""


def choose(logits: Tensor, temperature: float, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
    """One token per row and its log-probability under the distribution that was sampled (under the model's own if greedy).

    Args:
        logits: float32 [b, vocabulary].
        uniform: float64 [b] in [0, 1), what each row draws; None takes the likeliest.
    """
    logp = torch.log_softmax(logits / (temperature or 1.0), dim=-1)
    if uniform is None:
        chosen = logp.argmax(-1)
    else:
        reached = logp.exp().cumsum(-1, dtype=torch.float64)
        # The first token whose cumulative probability is above the number; the sum is not exactly 1.
        wanted = uniform.to(logp.device) * reached[:, -1]
        chosen = torch.searchsorted(reached, wanted.unsqueeze(1), right=True).squeeze(1)
        chosen = chosen.clamp_max(logp.shape[1] - 1)
    return chosen, logp.gather(1, chosen.unsqueeze(1)).squeeze(1).clamp_max(0.0)


def uniforms(seed: int, episodes: NDArray[np.int64], drawn: NDArray[np.int64]) -> NDArray[np.float64]:
    """float64 in [0, 1): one number per (seed, episode, how many it has drawn), by SplitMix64 over counters."""
    with np.errstate(over="ignore"):
        stream = _mix(np.uint64(seed % 2**64) + _mix(episodes.astype(np.uint64)))
        return np.asarray(_mix(stream + drawn.astype(np.uint64)) >> np.uint64(11)) / 2.0**53


def _mix(x: Any) -> Any:
    """The output function of SplitMix64 (Steele, Lea and Flood 2014, doi:10.1145/2660193.2660195), with its increment."""
    x = (x + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


class Demonstrator:
    """The environment's expert, with the ids that a policy would have had to sample to say the same."""

    name = "reference"

    def __init__(self, tokenizer: ChatTokenizer, rendering: RenderingKind, *, template: Prompt | None = None) -> None:
        self.tokenizer, self.rendering, self.template = tokenizer, rendering, template

    def begin_batch(self, envs: Sequence[ChatEnv], seeds: Sequence[int]) -> None:
        self._views = views(envs, self.rendering, self.tokenizer, self.template)

    def act_batch(
        self, indices: Sequence[int], messages: Sequence[list[dict[str, JSON]]], infos: Sequence[dict[str, Any]]
    ) -> list[Reply | None]:
        out: list[Reply | None] = []
        for i, chat, info in zip(indices, messages, infos, strict=True):
            view = self._views[i]
            text = view.core.expert_action()
            if text is None:
                out.append(None)
                continue
            context, restart = view.context(chat, info)
            parsed = PARSERS[view.core.prompt_kind](text)
            view.said(text, parsed.command, parsed.subgoal)
            ids = (*self.tokenizer.encode(text), self.tokenizer.end)
            out.append(Reply(text, tokens=TurnTokens(context_ids=tuple(context), sampled_ids=ids, restart=restart)))
        return out


def pad(rows: Sequence[Sequence[int]]) -> Tensor:
    """int64 [R, T]: rows of ids, filled up with 0 on the right."""
    width = max(map(len, rows))
    return torch.tensor([[*row, *[0] * (width - len(row))] for row in rows])
