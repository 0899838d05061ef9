"""The OpenAI chat wire format: requests out, responses in, whole or as a stream of server-sent events.

Pure functions and one accumulator; no sockets. What a server says wrongly is told apart by whose fault it is: `WireError` means
that the response is unusable and may be asked for again; a tool call that the *model* wrote badly, or was cut in, is the
policy's outcome and goes to the environment, which says so.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from toolverse.errors import ServerError
from toolverse.rollout.tokens import Finish, Usage
from toolverse.types import JSON

Dialect = Literal["openai", "vllm", "sglang", "llamacpp"]


class WireError(ServerError):
    """A response that is not what the protocol says (malformed JSON, a stream that was cut off): worth another try."""


@dataclass(slots=True)
class Answer:
    """What a server said. `calls` are (id, name, arguments as the text the model wrote).

    prompt_ids, token_ids: exact ids where the server tells them, else (). logprobs: one per token, else ().
    """

    content: str = ""
    reasoning: str = ""
    calls: list[tuple[str, str, str]] = field(default_factory=list)
    finish: Finish = "unknown"
    usage: Usage | None = None
    prompt_ids: tuple[int, ...] = ()
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()


_FINISH: Final[dict[str, Finish]] = {
    "stop": "stop",
    "eos": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
}

_TOKEN_FIELDS: Final[dict[str, dict[str, JSON]]] = {
    "openai": {},
    "vllm": {"return_token_ids": True},
    # SGLang refuses these while streaming; `request_body` leaves them out there.
    "sglang": {"return_token_ids": True, "return_prompt_token_ids": True},
    "llamacpp": {"return_tokens": True, "cache_prompt": True},
}


def request_body(
    dialect: Dialect,
    *,
    model: str,
    messages: Sequence[Mapping[str, JSON]],
    tools: Sequence[JSON],
    sampling: Mapping[str, JSON],
    max_tokens: int,
    logprobs: bool,
    stream: bool,
) -> dict[str, JSON]:
    """The JSON body of a chat request.

    Arguments of earlier tool calls become JSON strings, which is what the wire wants and what no other place holds.
    """
    body: dict[str, JSON] = {"model": model, "messages": [_message_out(message) for message in messages], **sampling}
    body["max_completion_tokens" if dialect == "openai" else "max_tokens"] = max_tokens
    if tools:
        body["tools"] = list(tools)
    if logprobs:
        body["logprobs"] = True
        if not (dialect == "sglang" and stream):
            body |= _TOKEN_FIELDS[dialect]
    if stream:
        body["stream"] = True
        body["stream_options"] = {"include_usage": True}
    return body


def completion_body(
    dialect: Dialect, *, model: str, prompt_ids: Sequence[int], sampling: Mapping[str, JSON], max_tokens: int
) -> dict[str, JSON]:
    """The JSON body of a completion of token ids: nothing is rendered or tokenised by the server."""
    return {
        "model": model,
        "prompt": list(prompt_ids),
        **sampling,
        "max_tokens": max_tokens,
        "logprobs": 1,
        **_TOKEN_FIELDS[dialect],
    }


def _message_out(message: Mapping[str, JSON]) -> dict[str, JSON]:
    out = {key: value for key, value in message.items() if key != "reasoning_content"}
    if calls := out.get("tool_calls"):
        out["tool_calls"] = [
            {
                **call,
                "function": {
                    **call["function"],
                    "arguments": json.dumps(call["function"]["arguments"], ensure_ascii=False),
                },
            }
            for call in calls
        ]
    if out.get("role") == "tool" and "tool_call_id" not in out:
        # The wire has no tool message without a call; this one answers a call that was written as text.
        return {"role": "user", "content": f"[{out.get('name', 'tool')}] {out['content']}"}
    return out


def read_answer(body: bytes | str) -> Answer:
    """A whole (not streamed) response.

    Raises:
        WireError: it is not JSON, or has no choices.
    """
    try:
        data = json.loads(body)
        choice = data["choices"][0]
        message = choice.get("message") or {}
        answer = Answer(
            content=message.get("content") or choice.get("text") or "",
            reasoning=message.get("reasoning_content") or message.get("reasoning") or "",
            calls=[
                (str(call.get("id") or ""), call["function"]["name"], _as_text(call["function"].get("arguments")))
                for call in message.get("tool_calls") or ()
            ],
            finish=_FINISH.get(choice.get("finish_reason") or "", "unknown"),
            usage=_usage(data.get("usage")),
        )
        _tokens_in(answer, data, choice)
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError) as error:
        raise WireError(
            f"the response is no chat completion ({type(error).__name__}: {error})", expected="JSON with choices"
        ) from error
    return answer


def _as_text(arguments: Any) -> str:
    # Some servers send the object instead of its text.
    return arguments if isinstance(arguments, str) else json.dumps(arguments if arguments is not None else {})


def _usage(data: Any) -> Usage | None:
    if not isinstance(data, Mapping):
        return None
    return Usage(prompt=data.get("prompt_tokens") or 0, completion=data.get("completion_tokens") or 0)


def _tokens_in(answer: Answer, data: Mapping[str, Any], choice: Mapping[str, Any]) -> None:
    """Ids and log-probabilities, wherever the dialects put them."""
    told = choice.get("logprobs") or {}
    entries = told.get("content") or []
    answer.logprobs += tuple(float(entry["logprob"]) for entry in entries)
    answer.logprobs += tuple(float(value) for value in told.get("token_logprobs") or ())  # of text completions
    ids = choice.get("token_ids") or choice.get("tokens")
    if not ids and entries and all(isinstance(entry.get("id"), int) for entry in entries):
        ids = [entry["id"] for entry in entries]  # llama.cpp
    meta = choice.get("meta_info") or {}
    if not ids and (triples := meta.get("output_token_logprobs")):
        ids = [triple[1] for triple in triples]  # SGLang: (log-probability, id, text)
        answer.logprobs = tuple(float(triple[0]) for triple in triples)
    answer.token_ids += tuple(ids or ())
    prompt = choice.get("prompt_token_ids") or data.get("prompt_token_ids")
    if prompt:
        answer.prompt_ids = tuple(prompt)


class Stream:
    """Accumulates the chunks of a streamed response; `answer()` once it has ended."""

    def __init__(self) -> None:
        self._answer = Answer()
        self._calls: dict[int, list[str]] = {}
        self._ended = False

    def feed(self, data: str) -> None:
        """The `data:` of one event.

        Raises:
            WireError: it is not JSON of the shape of a chunk, or reports an error.
        """
        if data.strip() == "[DONE]":
            self._ended = True
            return
        try:
            chunk = json.loads(data)
            if "error" in chunk:
                raise WireError(f"the stream reports an error: {str(chunk['error'])[:200]}")
            if usage := _usage(chunk.get("usage")):
                self._answer.usage = usage
            for choice in chunk.get("choices") or ():
                self._choice(chunk, choice)
        except (ValueError, RecursionError, LookupError, TypeError, AttributeError) as error:
            if isinstance(error, WireError):
                raise
            raise WireError(f"a chunk of the stream is malformed ({type(error).__name__}: {error})") from error

    def _choice(self, chunk: Mapping[str, Any], choice: Mapping[str, Any]) -> None:
        delta = choice.get("delta") or {}
        self._answer.content += delta.get("content") or ""
        self._answer.reasoning += delta.get("reasoning_content") or delta.get("reasoning") or ""
        for part in delta.get("tool_calls") or ():
            call = self._calls.setdefault(int(part.get("index") or 0), ["", "", ""])
            function = part.get("function") or {}
            call[0] = call[0] or part.get("id") or ""
            call[1] = call[1] or function.get("name") or ""
            call[2] += function.get("arguments") or ""
        _tokens_in(self._answer, chunk, choice)
        if choice.get("finish_reason"):
            self._answer.finish = _FINISH.get(choice["finish_reason"], "unknown")
            self._ended = True

    def answer(self) -> Answer:
        """
        Raises:
            WireError: the stream ended before its last event.
        """
        if not self._ended:
            raise WireError("the stream ended before its last event", expected="a finish_reason or [DONE]")
        self._answer.calls = [(c[0], c[1], c[2]) for _, c in sorted(self._calls.items())]
        return self._answer


async def events(lines: AsyncIterable[str]) -> AsyncIterator[str]:
    """`data:` of each server-sent event; comments and other fields are skipped, lines of one event are joined."""
    data: list[str] = []
    async for line in lines:
        if line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif not line and data:
            yield "\n".join(data)
            data = []
    if data:
        yield "\n".join(data)


_SAFE_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


class NameMap:
    """Tool names as servers accept them (`[A-Za-z0-9_-]`, at most 64 characters), and back.

    A name that is fine stays as it is; another gets its bad characters replaced and a hash of the whole name, so two tools
    never share a name.
    """

    def __init__(self, tools: Sequence[Mapping[str, Any]]) -> None:
        self._out: dict[str, str] = {}
        taken = {name for tool in tools if _SAFE_NAME.fullmatch(name := tool["function"]["name"])}
        for tool in tools:
            name = tool["function"]["name"]
            safe = name
            if name not in taken:
                digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=5).hexdigest()
                safe = f"{re.sub(r'[^A-Za-z0-9_-]', '_', name)[:53]}_{digest}"
                if safe in taken:
                    raise ServerError(f"the tool names {name!r} and {safe!r} can't be told apart on the wire")
                taken.add(safe)
            self._out[name] = safe
        self._back = {safe: name for name, safe in self._out.items()}

    def out(self, name: str) -> str:
        return self._out.get(name, name)

    def back(self, name: str) -> str:
        return self._back.get(name, name)

    def tools_out(self, tools: Sequence[Mapping[str, Any]]) -> list[dict[str, JSON]]:
        return [
            {**tool, "function": {**tool["function"], "name": self.out(tool["function"]["name"])}} for tool in tools
        ]

    def messages_out(self, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, JSON]]:
        """Messages with the wire's tool names."""
        if all(name == safe for name, safe in self._out.items()):
            return [dict(message) for message in messages]
        renamed: list[dict[str, JSON]] = []
        for message in messages:
            out = dict(message)
            if calls := out.get("tool_calls"):
                out["tool_calls"] = [
                    {**call, "function": {**call["function"], "name": self.out(call["function"]["name"])}}
                    for call in calls
                ]
            if out.get("role") == "tool" and "name" in out:
                out["name"] = self.out(out["name"])
            renamed.append(out)
        return renamed
