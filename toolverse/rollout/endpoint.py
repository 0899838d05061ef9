"""Any OpenAI-compatible server as a policy, over httpx.

One `Endpoint` is shared by all episodes: its connections, its limit on requests at a time, its counters. Each episode has an
`EndpointPolicy` of its own. What can go wrong is sorted by whose fault it is:

| what happens | what is done |
|---|---|
| no connection, stall, 408, 409, 425, 429, 5xx, malformed or cut-off response | asked again with back-off, counted |
| the same until the retries are used up, or 401, 403, 404, other 4xx | `ServerError`: an infrastructure failure, never a reward |
| 400 because the context is full | the episode is truncated with reason "context_full" |
| the model ran into `max_tokens` | the episode is truncated with reason "max_tokens" (see `play`) |
| the model wrote a bad tool call | the environment says so: a parse error |
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, get_args

from toolverse.envs.base import ChatEnv, derive_seed
from toolverse.envs.messages import PARSERS, write_calls
from toolverse.errors import InvalidInputError, ServerError
from toolverse.mcp import loop
from toolverse.rollout.episode import Reply
from toolverse.rollout.tokens import TurnTokens, continue_ids
from toolverse.rollout.wire import (
    Answer,
    Dialect,
    NameMap,
    Stream,
    WireError,
    completion_body,
    events,
    read_answer,
    request_body,
)
from toolverse.types import JSON, ToolCall

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")


@dataclass(frozen=True)
class EndpointSettings:
    """Where to ask and how. Picklable: worker processes make their own connections from it.

    Args:
        url: base url up to and including `/v1`.
        model: as the server calls it.
        dialect: which extensions the server has (exact token ids, chiefly); "openai" asks for none.
        api_key_env: name of the environment variable with the key; the key itself is never stored, logged or written.
        temperature, top_p: None leaves the server's default.
        max_tokens: per message. 1,024 is room for a thought and a call.
        sampling: more fields of the request body (`top_k`, `stop`, `chat_template_kwargs`, ...).
        seed: if given, every request carries a seed derived from this, the episode's seed and the turn.
        logprobs: ask for log-probabilities, and for token ids where the dialect has them.
        stream: stream the answers; `stall_s` is then the longest pause between two chunks, else until the response begins.
        timeout_s: for one whole request. 600 is generous: a long thought at 20 tokens a second.
        retries: further tries per message; the waits are 0.5, 1, 2, ... s (with jitter, at most `backoff_max_s`), or what
            the server asks for in Retry-After.
        max_concurrency: requests at a time over all episodes of one process.
    """

    url: str
    model: str
    dialect: Dialect = "openai"
    api_key_env: str = "OPENAI_API_KEY"
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int = 1024
    sampling: Mapping[str, JSON] = field(default_factory=dict)
    seed: int | None = None
    logprobs: bool = False
    stream: bool = False
    connect_s: float = 10.0
    stall_s: float = 120.0
    timeout_s: float = 600.0
    retries: int = 6
    backoff_s: float = 0.5
    backoff_max_s: float = 30.0
    max_concurrency: int = 64

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise InvalidInputError(f"url {self.url!r}", where="endpoint", expected="http://host:port/v1")
        if self.dialect not in get_args(Dialect):
            raise InvalidInputError(
                f"dialect {self.dialect!r}", where="endpoint", expected=f"one of {', '.join(get_args(Dialect))}"
            )


_AGAIN: Final = frozenset({408, 409, 425, 429})
_FULL: Final = (
    "context length",
    "context_length",
    "maximum context",
    "too many tokens",
    "context size",
    "exceed_context",
)

Problem = Literal["connection", "stall", "busy", "server", "malformed"]


class ContextFullError(ServerError):
    """The chat does not fit into the model's context any more."""


class Endpoint:
    """Connections to one server, for any number of threads: requests are made on the background event loop of
    `toolverse.mcp.loop`, and whoever asks waits openly (`toolverse.waiting`).

    `counts` says what happened: `requests`, `answers`, `retries`, `retry_<problem>`, `failures`, `prompt_tokens`,
    `completion_tokens`, `bad_tool_calls`, `cut_messages`.

    Args:
        transport: an httpx transport, for tests and proxies.
        sleep: awaited between tries.
    """

    def __init__(
        self,
        settings: EndpointSettings,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        import httpx

        self.settings = settings
        self.counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._slots = asyncio.BoundedSemaphore(settings.max_concurrency)
        self._sleep = sleep
        key = os.environ.get(settings.api_key_env)
        self._client = httpx.AsyncClient(
            base_url=settings.url.rstrip("/") + "/",
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx.Timeout(settings.stall_s, connect=settings.connect_s, pool=None),
            limits=httpx.Limits(max_connections=settings.max_concurrency, max_keepalive_connections=32),
            transport=transport,
        )

    def count(self, what: str, n: int = 1) -> None:
        with self._lock:
            self.counts[what] += n

    def close(self) -> None:
        self._run(self._client.aclose())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        # Not on the loop of a shared thread: connections are kept from episode to episode, wherever those are played.
        return loop.run(work, loop.background())

    def ask(self, messages: Sequence[Mapping[str, JSON]], tools: Sequence[JSON], *, seed: int | None = None) -> Answer:
        """One chat completion, with retries.

        Raises:
            ContextFullError: the server says that the chat is too long.
            ServerError: the request is refused, or all tries failed.
        """
        chosen = self.settings
        sampling = {
            key: value
            for key, value in (("temperature", chosen.temperature), ("top_p", chosen.top_p), ("seed", seed))
            if value is not None
        }
        body = request_body(
            chosen.dialect,
            model=chosen.model,
            messages=messages,
            tools=tools,
            sampling={**sampling, **chosen.sampling},
            max_tokens=chosen.max_tokens,
            logprobs=chosen.logprobs,
            stream=chosen.stream,
        )
        return self._run(self._send("chat/completions", body, seed))

    def complete(
        self, prompt_ids: Sequence[int], *, model: str = "", stop_ids: Sequence[int] = (), seed: int | None = None
    ) -> Answer:
        """Token ids that continue token ids, with retries: what the server samples is exactly what the caller rendered.

        Args:
            model: another than the settings' (an adapter, say).
            stop_ids: ids that end the completion, and are part of it.

        Raises:
            ContextFullError: the server says that the prompt is too long.
            ServerError: the request is refused, or all tries failed.
        """
        chosen = self.settings
        sampling: dict[str, JSON] = {
            key: value
            for key, value in (("temperature", chosen.temperature), ("top_p", chosen.top_p), ("seed", seed))
            if value is not None
        }
        if stop_ids:
            sampling["stop_token_ids"] = list(stop_ids)
        body = completion_body(
            chosen.dialect,
            model=model or chosen.model,
            prompt_ids=prompt_ids,
            sampling={**sampling, **chosen.sampling},
            max_tokens=chosen.max_tokens,
        )
        return self._run(self._send("completions", body, seed))

    def command(self, path: str, body: Mapping[str, JSON]) -> str:
        """One request that is no question to the model (loading an adapter, say); returns the server's text.

        Raises:
            ServerError: the server can't be reached, or refuses.
        """
        import httpx

        try:
            response = self._run(self._client.post(path, json=dict(body)))
        except httpx.RequestError as error:
            raise ServerError(f"{type(error).__name__}: {error}", where=f"{self.settings.url}/{path}") from error
        if response.status_code != 200:
            raise ServerError(
                f"HTTP {response.status_code}: {response.text[:300]}", where=f"{self.settings.url}/{path}"
            )
        return response.text

    async def _send(self, path: str, body: Mapping[str, JSON], seed: int | None) -> Answer:
        # ensure_ascii: a lone surrogate in what a model said must not fail here.
        content = json.dumps(body).encode("ascii")
        jitter = random.Random(seed if seed is not None else len(content))
        problem: tuple[Problem, str] = ("connection", "")
        for attempt in range(self.settings.retries + 1):
            async with self._slots:
                self.count("requests")
                outcome = await self._try(path, content)
            if isinstance(outcome, Answer):
                self._count_answer(outcome)
                return outcome
            problem, wait = outcome
            if attempt == self.settings.retries:
                break
            self.count("retries")
            self.count(f"retry_{problem[0]}")
            backoff = min(self.settings.backoff_max_s, self.settings.backoff_s * 2**attempt) * (
                0.75 + 0.5 * jitter.random()
            )
            await self._sleep(backoff if wait is None else min(wait, self.settings.backoff_max_s))
        self.count("failures")
        raise ServerError(
            f"no usable answer in {self.settings.retries + 1} tries; the last problem: {problem[1]}",
            where=self.settings.url,
            fix="check that the server runs and that max_concurrency is not above what it can take",
        )

    def _count_answer(self, answer: Answer) -> None:
        with self._lock:
            self.counts["answers"] += 1
            if answer.usage is not None:
                self.counts["prompt_tokens"] += answer.usage.prompt
                self.counts["completion_tokens"] += answer.usage.completion

    async def _try(self, path: str, content: bytes) -> Answer | tuple[tuple[Problem, str], float | None]:
        """One request: an answer, or what was wrong and how long the server wants us to wait."""
        import httpx

        deadline = time.monotonic() + self.settings.timeout_s
        headers = {"Content-Type": "application/json"}
        try:
            async with self._client.stream("POST", path, content=content, headers=headers) as response:
                if response.status_code != 200:
                    return await self._refused(response)
                kind = response.headers.get("content-type", "")
                if "text/event-stream" in kind:
                    stream = Stream()
                    async for data in events(response.aiter_lines()):
                        stream.feed(data)
                        if time.monotonic() > deadline:
                            return ("stall", f"no end after {self.settings.timeout_s:.0f} s"), None
                    return stream.answer()
                chunks: list[bytes] = []
                async for chunk in response.aiter_bytes():
                    chunks.append(chunk)
                    if time.monotonic() > deadline:
                        return ("stall", f"no end after {self.settings.timeout_s:.0f} s"), None
                return read_answer(b"".join(chunks))
        except WireError as error:
            return ("malformed", error.problem), None
        except httpx.TimeoutException as error:
            return ("stall", f"{type(error).__name__} ({self.settings.stall_s:.0f} s)"), None
        except httpx.RequestError as error:
            return ("connection", f"{type(error).__name__}: {error}"), None

    async def _refused(self, response: httpx.Response) -> tuple[tuple[Problem, str], float | None]:
        text = (await response.aread())[:2000].decode("utf-8", "replace")
        status = response.status_code
        said = f"HTTP {status}: {text[:300]}"
        if status in _AGAIN or status >= 500:
            return ("busy" if status == 429 else "server", said), _retry_after(response.headers.get("retry-after"))
        if status in (400, 413, 422) and any(phrase in text.lower() for phrase in _FULL):
            raise ContextFullError(said, where=self.settings.url)
        self.count("failures")
        fix = {
            401: f"put the key into ${self.settings.api_key_env}",
            403: f"put the key into ${self.settings.api_key_env}",
            404: "check the url (it ends with /v1) and the model's name",
        }.get(status)
        raise ServerError(said, where=self.settings.url, fix=fix)


def _retry_after(value: str | None) -> float | None:
    try:
        return max(0.0, float(value)) if value is not None else None
    except ValueError:
        return None  # an HTTP date: the back-off will do


def served_models(settings: EndpointSettings) -> list[str]:
    """Names of the models that the server lists; [] where it lists none. One request, not repeated: a quick look before a run.

    Raises:
        ServerError: nothing answers there, or the key is refused.
    """
    import httpx

    key = os.environ.get(settings.api_key_env)
    url = settings.url.rstrip("/")
    try:
        response = httpx.get(
            f"{url}/models",
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx.Timeout(settings.connect_s),
        )
    except httpx.ConnectError as error:
        raise ServerError("nothing answers", where=url, fix="start the server, or check the url") from error
    except httpx.HTTPError:
        return []  # it is there, but slow or odd; whether it answers chats shows soon enough
    if response.status_code in (401, 403):
        fix = f"put the key into ${settings.api_key_env}"
        raise ServerError(f"HTTP {response.status_code} without a valid key", where=url, fix=fix)
    try:
        listed = response.json()["data"]
        return [str(entry["id"]) for entry in listed]
    except (ValueError, KeyError, TypeError):
        return []


class EndpointPolicy:
    """One episode's side of an `Endpoint`. `name` is the model.

    Tool calls become what the environment's `tools` prompt reads, with their ids, so that results are matched to calls; a call
    that the model wrote as text counts too. Reasoning stays in the message as `reasoning_content` and is not sent back.
    """

    waits_openly = True

    def __init__(self, endpoint: Endpoint, *, name: str | None = None, version: str = "") -> None:
        self.name = name or endpoint.settings.model
        self.version = version
        self._endpoint = endpoint

    def begin(self, env: ChatEnv, seed: int) -> None:
        self._kind = env.prompt_kind
        self._tools: list[dict[str, JSON]] = []
        self._names = NameMap([])
        self._seed = seed
        self._turn = 0
        self._ids: tuple[int, ...] = ()
        self._first = True

    def act(self, messages: list[dict[str, JSON]], info: dict[str, Any]) -> str | None:
        if info["tools"] is not None:
            self._tools = info["tools"]
            self._names = NameMap(self._tools)
        fixed = self._endpoint.settings.seed
        seed = None if fixed is None else derive_seed(derive_seed(fixed, self._seed), self._turn) % 2**31
        try:
            answer = self._endpoint.ask(
                self._names.messages_out(messages), self._names.tools_out(self._tools), seed=seed
            )
        except ContextFullError:
            return Reply("", give_up="context_full")
        self._turn += 1
        return self._reply(answer)

    def _reply(self, answer: Answer) -> Reply:
        text, message = self._message(answer)
        if answer.finish == "length":
            self._endpoint.count("cut_messages")
        return Reply(text, message=message, tokens=self._tokens(answer), usage=answer.usage, finish=answer.finish)

    def _message(self, answer: Answer) -> tuple[str, dict[str, JSON] | None]:
        """What the environment is stepped with, and the history's message where it is more than that."""
        calls: list[ToolCall] = []
        broken: list[str] = []
        for index, (call_id, name, arguments) in enumerate(answer.calls):
            name = self._names.back(name)
            try:
                parsed = json.loads(arguments or "{}")
                if not isinstance(parsed, dict) or not name:
                    raise ValueError("not an object, or no name")
                calls.append(ToolCall(name=name, arguments=parsed, id=call_id or f"call_{self._turn}_{index}"))
            except (ValueError, RecursionError):
                broken.append(f'<tool_call>\n{{"name": {json.dumps(name)}, "arguments": {arguments}}}\n</tool_call>')
        if broken:
            self._endpoint.count("bad_tool_calls", len(broken))
            # The whole message goes to the environment as text: it refuses it and tells the model why.
            good = [write_calls([call]) for call in calls]
            return "\n".join(filter(None, [answer.content, *good, *broken])), None
        if not calls and answer.content and self._kind == "tools":
            found = PARSERS["tools"](answer.content)
            calls = [
                call if call.id is not None else call.model_copy(update={"id": f"call_{self._turn}_{index}"})
                for index, call in enumerate(found.calls)
            ]
            content = found.thought or ""
        else:
            content = answer.content
        reasoning = {"reasoning_content": answer.reasoning} if answer.reasoning else {}
        if not calls:
            message = {"role": "assistant", "content": answer.content, **reasoning} if reasoning else None
            return answer.content, message
        entries = [call.to_openai() for call in calls]
        full: dict[str, JSON] = {"role": "assistant", "content": content, "tool_calls": entries, **reasoning}
        return json.dumps({"content": content, "tool_calls": entries}, ensure_ascii=False), full

    def _tokens(self, answer: Answer) -> TurnTokens | None:
        """Exact ids where the server told both the prompt's and the answer's."""
        if not answer.prompt_ids or not answer.token_ids:
            return None
        logprobs = answer.logprobs if len(answer.logprobs) == len(answer.token_ids) else ()
        tokens = continue_ids(self._ids, answer.prompt_ids, answer.token_ids, logprobs)
        self._ids = answer.prompt_ids + answer.token_ids
        return tokens
