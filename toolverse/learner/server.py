"""A server samples: vLLM, or whatever else completes token ids over `/v1/completions` and returns the ids it sampled.

The learner renders and tokenises; ids go out, ids and their log-probabilities come back, so that what is trained on is what was
sampled. A server that returns text only can't be used: text tokenised again is not what the policy said. After each update
the adapters are written to a folder that the server can read, and loaded there under a new name (`/v1/load_lora_adapter`).
"""

from __future__ import annotations

import functools
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from toolverse.envs.base import ChatEnv, derive_seed
from toolverse.envs.messages import PARSERS
from toolverse.envs.prompts import Prompt
from toolverse.errors import InvalidInputError, ServerError
from toolverse.learner.policy import PolicyModel
from toolverse.learner.pretrained import PretrainedModel, PretrainedTokenizer
from toolverse.learner.render import ChatTokenizer, RenderingKind, View, views
from toolverse.learner.sampler import uniforms
from toolverse.rollout.endpoint import ContextFullError, Endpoint
from toolverse.rollout.episode import Reply
from toolverse.rollout.policies import EndpointFactory
from toolverse.rollout.tokens import TurnTokens
from toolverse.rollout.wire import Answer
from toolverse.types import JSON


class Adapters:
    """The server's copy of the policy: one adapter at a time, named after the update that made it.

    Args:
        folder: where adapters are written; the server must see the same folder.
    """

    def __init__(self, endpoint: Endpoint, folder: Path) -> None:
        self.endpoint, self.folder = endpoint, folder.resolve()
        self.name = ""

    def swap(self, model: PolicyModel, update: int) -> None:
        """Load the present adapters, and unload those before.

        Raises:
            InvalidInputError: the model has no adapters.
            ServerError: the server refuses; it must run with `--enable-lora` and runtime updating allowed.
        """
        backbone = model.backbone
        if not isinstance(backbone, PretrainedModel) or not hasattr(backbone.model, "peft_config"):
            raise InvalidInputError(
                "a server can take adapters only, not whole models", where="policy.sampler", fix="set policy.lora = 16"
            )
        name = f"update-{update:06d}"
        if name == self.name:
            return
        backbone.save_adapters(self.folder / name)
        if not self.name:
            self._unload(name)  # of a run that was killed, and may be other weights
        try:
            self.endpoint.command("load_lora_adapter", {"lora_name": name, "lora_path": str(self.folder / name)})
        except ServerError as error:
            raise ServerError(
                error.problem,
                where=error.where,
                fix="start vLLM with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True, on a shared file system",
            ) from error
        if self.name:
            self._unload(self.name)
            shutil.rmtree(self.folder / self.name, ignore_errors=True)
        self.name = name

    def _unload(self, name: str) -> None:
        try:
            self.endpoint.command("unload_lora_adapter", {"lora_name": name})
        except ServerError:
            return  # it was not loaded; loading says what is really wrong


class ServerSampler:
    """Samples messages for many episodes on a server, all running episodes at the same time; see `sampler.Sampler`.

    Args:
        model: what the server calls the policy: the adapter's name, or "" for the endpoint's model.
        seed, first: each request's seed is a function of these, of the episode's number and of the turn.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        tokenizer: ChatTokenizer,
        rendering: RenderingKind,
        *,
        template: Prompt | None = None,
        model: str = "",
        seed: int = 0,
        first: int = 0,
        name: str = "policy",
    ) -> None:
        self.name = name
        self.endpoint, self.tokenizer, self.rendering, self.template = endpoint, tokenizer, rendering, template
        self.model, self.seed, self._next = model, seed, first
        self._views: list[View] = []
        self._paths: list[list[int]] = []

    def begin_batch(self, envs: Sequence[ChatEnv], seeds: Sequence[int]) -> None:
        self._views = views(envs, self.rendering, self.tokenizer, self.template)
        self._paths = [[] for _ in envs]
        self._episodes = np.arange(self._next, self._next + len(envs))
        self._turns = np.zeros(len(envs), np.int64)
        self._next += len(envs)

    def act_batch(
        self, indices: Sequence[int], messages: Sequence[list[dict[str, JSON]]], infos: Sequence[dict[str, Any]]
    ) -> list[Reply | None]:
        contexts = [self._views[i].context(chat, info) for i, chat, info in zip(indices, messages, infos, strict=True)]
        for i, (ids, restart) in zip(indices, contexts, strict=True):
            self._paths[i] = ids if restart else [*self._paths[i], *ids]
        drawn = uniforms(self.seed, self._episodes[list(indices)], self._turns[list(indices)])
        seeds = (drawn * 2**31).astype(np.int64).tolist()
        self._turns[list(indices)] += 1
        paths = [self._paths[i] for i in indices]
        if len(paths) == 1:
            # Asked from here, so that whoever else plays in this thread goes on.
            answers = [self._ask(paths[0], seeds[0])]
        else:
            with ThreadPoolExecutor(min(len(paths), self.endpoint.settings.max_concurrency)) as pool:
                answers = list(pool.map(self._ask, paths, seeds))
        return [
            self._reply(i, context, restart, answer)
            for i, (context, restart), answer in zip(indices, contexts, answers, strict=True)
        ]

    def closing(self, index: int, messages: Sequence[dict[str, JSON]], info: dict[str, Any]) -> tuple[list[int], bool]:
        """See `sampler.Sampler.closing`."""
        return self._views[index].context(messages, info)

    def _ask(self, path: list[int], seed: int) -> Answer | None:
        try:
            return self.endpoint.complete(path, model=self.model, stop_ids=[self.tokenizer.end], seed=seed)
        except ContextFullError:
            return None

    def _reply(self, i: int, context: list[int], restart: bool, answer: Answer | None) -> Reply | None:
        where = self.endpoint.settings.url
        if answer is None:
            if self._turns[i] == 1:
                raise ServerError(
                    f"the opening of {len(context)} tokens does not fit into the context of the server's model",
                    where=where,
                )
            return None
        ids = list(answer.token_ids)
        if not ids or len(answer.logprobs) != len(ids):
            raise ServerError(
                "the server returns no token ids"
                if not ids
                else "the server returns no log-probabilities of its tokens",
                where=where,
                expected="`token_ids` and `logprobs` in /v1/completions (vLLM 0.10.2 or later, with return_token_ids)",
                fix="use such a server, or policy.sampler = 'local'",
            )
        ended = ids[-1] == self.tokenizer.end
        if answer.finish == "stop" and not ended:
            raise ServerError(
                f"a message ends with token {ids[-1]}",
                where=where,
                expected=f"the end token {self.tokenizer.end}, among the ids that are returned",
            )
        view = self._views[i]
        text = self.tokenizer.decode(ids)
        parsed = PARSERS[view.core.prompt_kind](text)
        view.said(text, parsed.command, parsed.subgoal)
        self._paths[i] = [*self._paths[i], *ids]
        tokens = TurnTokens(
            context_ids=tuple(context),
            sampled_ids=tuple(ids),
            logprobs=tuple(min(value, 0.0) for value in answer.logprobs),
            restart=restart,
        )
        return Reply(text, tokens=tokens, finish="stop" if ended else "length")


class ServerPolicy:
    """One episode's side of a server, for the crews of `rollout`: threads, processes, Ray workers.

    What an episode draws is a function of the sampler's seed and the episode's own: the worker that plays it does not matter.
    """

    waits_openly = True

    def __init__(self, factory: ServerPolicies) -> None:
        self.name, self._factory = "policy", factory

    def begin(self, env: ChatEnv, seed: int) -> None:
        made = self._factory
        self._sampler = ServerSampler(
            made.endpoints.endpoint,
            _tokenizer(made.tokenizer),
            made.rendering,
            template=made.template,
            model=made.model,
            seed=derive_seed(made.seed, seed),
        )
        self._sampler.begin_batch([env], [seed])

    def act(self, messages: list[dict[str, JSON]], info: dict[str, Any]) -> str | None:
        return self._sampler.act_batch([0], [messages], [info])[0]


@dataclass(frozen=True)
class ServerPolicies:
    """Makes `ServerPolicy`s; pickles, so that workers elsewhere make their own connections.

    Args:
        tokenizer: folder or name of the transformers tokenizer.
        model, seed: see `ServerSampler`.
    """

    endpoints: EndpointFactory
    tokenizer: str
    rendering: RenderingKind
    template: Prompt | None
    model: str
    seed: int

    def __call__(self) -> ServerPolicy:
        return ServerPolicy(self)


@functools.lru_cache(maxsize=4)
def _tokenizer(path: str) -> ChatTokenizer:
    return PretrainedTokenizer(path)
