"""An open connection to one server, with a synchronous and an asynchronous face.

A connection of the SDK must be entered and left by the same task, so each session has one: an actor on the background
loop that opens the connection, reports, waits to be told to stop, and closes. Calls are separate tasks of the same
loop; each has a timeout. What the server does wrong inside an answer is part of the result (`ToolResult.problems`);
only a missing answer is an exception.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

import anyio

from toolverse._version import __version__
from toolverse.errors import InvalidInputError, NotFoundError, ServerClosedError, ServerError, ServerTimeoutError
from toolverse.mcp import loop, sdk
from toolverse.mcp.catalog import resolve
from toolverse.mcp.config import Launch, ServerConfig
from toolverse.mcp.listing import Listing, clean_text, list_all
from toolverse.mcp.pipe import Child, stdio_streams
from toolverse.mcp.redact import Redactor, mask_logs
from toolverse.mcp.results import OutputValidator, ToolResult, compile_output, failed, read_result, unsendable

logger = logging.getLogger("toolverse.mcp")

T = TypeVar("T")

_LATE_S = 1.0
"""How much longer than the SDK's own timeout we wait: it does not cover a request that can't even be written."""

_METHOD_NOT_FOUND = -32601
_CREDENTIALS = "check the address, and the headers if the server wants credentials"
_learnt_eras: dict[str, sdk.Era] = {}


class Session:
    """One server, connected. Open with `Session.open(config)` or `await Session.aopen(config)`; close, or use `with`.

    Methods come in pairs: `call` blocks, `acall` is awaited, from any asyncio loop. A session belongs to the process
    that opened it.
    """

    def __init__(self, config: ServerConfig, server: Any = None, *, environ: Mapping[str, str] | None = None) -> None:
        self.config = config
        self.name = config.name
        self._server = server
        self._environ = environ
        self._redact = Redactor()
        self._peer: sdk.Peer | None = None
        self._child: Child | None = None
        self._actor: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._failure = ""
        self._listing: Listing | None = None
        self._validators: dict[str, OutputValidator | None] = {}
        self._pid = os.getpid()
        self._opened_on = loop.home()

    @classmethod
    def open(cls, config: ServerConfig, server: Any = None, *, environ: Mapping[str, str] | None = None) -> Self:
        """Connect; `server` is a live server object to be used in process instead of what the configuration names.

        `environ` is where the configuration's references are looked up and what a process inherits from (default:
        ours).

        Raises:
            InvalidInputError: a secret that the configuration refers to is not set.
            NotFoundError: the in-process target does not exist.
            ServerError: the server can't be started or reached, or botches the opening exchange.
            ServerTimeoutError: it does not answer within `start_timeout_s`.
        """
        session = cls(config, server, environ=environ)
        return loop.run(session._open(), session._home)

    @classmethod
    async def aopen(cls, config: ServerConfig, server: Any = None, *, environ: Mapping[str, str] | None = None) -> Self:
        """`open`, awaited."""
        session = cls(config, server, environ=environ)
        return await loop.arun(session._open(), session._home)

    def call(
        self, tool: str, arguments: Mapping[str, Any] | None = None, *, timeout_s: float | None = None
    ) -> ToolResult:
        """Call a tool. A refusal by the server is a result with `is_error`, not an exception.

        Raises:
            ServerTimeoutError: no answer within `timeout_s` (default: the configuration's); the session stays usable.
            ServerClosedError: the connection is gone.
        """
        return loop.run(self._call(tool, arguments, timeout_s), self._home)

    async def acall(
        self, tool: str, arguments: Mapping[str, Any] | None = None, *, timeout_s: float | None = None
    ) -> ToolResult:
        """`call`, awaited."""
        return await loop.arun(self._call(tool, arguments, timeout_s), self._home)

    def tools(self, *, refresh: bool = False) -> Listing:
        """What the server offers; asked once, and again after the server said that its list has changed."""
        return loop.run(self._list(refresh), self._home)

    async def atools(self, *, refresh: bool = False) -> Listing:
        """`tools`, awaited."""
        return await loop.arun(self._list(refresh), self._home)

    def read(self, uri: str) -> str:
        """The text of a resource.

        Raises:
            ServerError: there is no such resource, or it holds no text.
        """
        return loop.run(self._read(uri), self._home)

    async def aread(self, uri: str) -> str:
        """`read`, awaited."""
        return await loop.arun(self._read(uri), self._home)

    def close(self) -> None:
        """End the connection and, for stdio, the server with everything in its process group. Twice is fine."""
        if self._pid == os.getpid():
            loop.run(self._close(), self._home)

    async def aclose(self) -> None:
        """`close`, awaited."""
        if self._pid == os.getpid():
            await loop.arun(self._close(), self._home)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.aclose()

    @property
    def closed(self) -> bool:
        """Whether the session was closed (a server that died by itself is noticed by the next call)."""
        return self._peer is None

    @property
    def pid(self) -> int | None:
        """The process id of a stdio server, which is also its process group."""
        return self._child.process.pid if self._child is not None else None

    @property
    def peer(self) -> sdk.Peer:
        """What the server said about itself when the connection was opened.

        Raises:
            ServerClosedError: the session is closed.
        """
        return self._require_peer()

    @property
    def instructions(self) -> str:
        """The server's own instructions: untrusted text, without invisible characters and secrets."""
        return self._redact.text(clean_text(self._require_peer().instructions))

    @property
    def _home(self) -> asyncio.AbstractEventLoop:
        # After a fork the loop is another process's; the error about that is raised on one of ours.
        return self._opened_on if self._pid == os.getpid() else loop.home()

    # --- on the session's loop -------------------------------------------------------------------------------------

    async def _open(self) -> Self:
        launch = self.config.launch(self._environ)
        self._redact = Redactor(launch.secrets)
        mask_logs(self._redact)
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._actor = asyncio.create_task(self._live(launch, ready), name=f"mcp:{self.name}")
        loop.close_at_exit(id(self), self._close)
        try:
            await asyncio.shield(ready)
        except BaseException:
            await self._close()
            raise
        return self

    async def _live(self, launch: Launch, ready: asyncio.Future[None]) -> None:
        """The actor: owns the connection from its opening to its end."""
        eras = self._eras()
        for position, era in enumerate(eras):
            self._child = None
            try:
                async with self._connect(launch, era) as peer:
                    self._peer = peer
                    _learnt_eras[self.config.fingerprint()] = era
                    ready.set_result(None)
                    await self._stop.wait()
                return
            except asyncio.CancelledError:
                if not ready.done():
                    ready.cancel()
                raise
            except BaseException as raised:  # noqa: BLE001 (whatever ends a connection is reported by whoever uses it)
                error = _innermost(raised)
                self._peer = None
                if ready.done():
                    self._failure = self._redact.text(f"{type(error).__name__}: {error}")
                    return
                if position + 1 < len(eras) and _refuses_era(error):
                    continue
                ready.set_exception(self._opening_error(error))
                return

    def _eras(self) -> tuple[sdk.Era, ...]:
        if not sdk.SUPPORTS_MODERN:
            return ("legacy",)
        if self.config.transport == "in_process" or self._server is not None:
            return (self.config.era or "modern",)
        known = self.config.era or _learnt_eras.get(self.config.fingerprint())
        # Asking a legacy server for the modern era costs ten seconds or its life; the other way round costs one error.
        return (known,) if known else ("legacy", "modern")

    @asynccontextmanager
    async def _connect(self, launch: Launch, era: sdk.Era) -> AsyncIterator[sdk.Peer]:
        config = self.config
        opening = sdk.Opening(era, config.start_timeout_s, self._notice, client_version=__version__)
        async with AsyncExitStack() as stack:
            if self._server is not None or config.transport == "in_process":
                server = self._server if self._server is not None else load_target(config)
                yield await stack.enter_async_context(sdk.open_in_process(server, opening))
                return
            if config.transport == "stdio":
                incoming, outgoing, self._child = await stack.enter_async_context(
                    stdio_streams(
                        self.name,
                        launch,
                        self._redact,
                        max_message_bytes=config.max_message_bytes,
                        close_grace_s=config.close_grace_s,
                    )
                )
                streams = (incoming, outgoing)
            else:
                streams = await stack.enter_async_context(sdk.http_streams(launch.url, launch.headers))
            yield await stack.enter_async_context(sdk.open_streams(streams, opening))

    def _notice(self, method: str) -> None:
        if method == "notifications/tools/list_changed":
            self._listing = None

    def _opening_error(self, error: BaseException) -> Exception:
        if isinstance(error, InvalidInputError | NotFoundError | ServerError):
            return error
        where = f"server {self.name!r}"
        timed_out = isinstance(error, TimeoutError) or (isinstance(error, sdk.ProtocolError) and sdk.is_timeout(error))
        if timed_out:
            return ServerTimeoutError(
                f"no answer to the opening exchange within {self.config.start_timeout_s:g} s{self._ending()}",
                where=where,
                fix="check that the command speaks MCP, or raise start_timeout_s",
            )
        if isinstance(error, sdk.ProtocolError) and not sdk.is_closed(error):
            code, message = sdk.error_parts(error)
            return ServerError(
                self._redact.text(f"refused the opening exchange: {message} ({code})"),
                where=where,
                fix=_CREDENTIALS if self.config.transport == "http" else None,
            )
        if self._child is not None and isinstance(error, sdk.ProtocolError | anyio.BrokenResourceError):
            return ServerError(
                f"ended before it had answered{self._ending()}",
                where=where,
                fix="run the command by hand to see why",
            )
        return ServerError(
            self._redact.text(f"the opening exchange failed ({type(error).__name__}: {_short(error)}){self._ending()}"),
            where=where,
            fix=_CREDENTIALS if self.config.transport == "http" else None,
        )

    def _ending(self) -> str:
        """How the server's process ended and what it said last, as an addition to a sentence."""
        if self._child is None:
            return ""
        code = self._child.process.poll()
        text = f" ({self._child.ended_because})" if self._child.ended_because else ""
        if code is not None:
            text += f" (exit code {code})"
        words = self._child.last_words()
        return f"{text}; it wrote to stderr: {words[-1000:]}" if words else text

    def _require_peer(self) -> sdk.Peer:
        if self._pid != os.getpid():
            raise ServerClosedError(
                "the session was opened in another process",
                where=f"server {self.name!r}",
                fix="open one in this process; sessions do not survive a fork",
            )
        if self._peer is None:
            raise ServerClosedError(
                f"the session is closed{f' ({self._failure})' if self._failure else ''}", where=f"server {self.name!r}"
            )
        return self._peer

    async def _request(self, method: str, params: dict[str, Any], timeout_s: float | None = None) -> dict[str, Any]:
        peer = self._require_peer()
        limit = self.config.call_timeout_s if timeout_s is None else timeout_s
        try:
            if self._child is None and self.config.transport == "in_process":
                raw = await peer.request(method, params, limit)
            else:
                async with asyncio.timeout(limit + _LATE_S):
                    raw = await peer.request(method, params, limit)
        except TimeoutError:
            raise self._late(method, params, limit) from None
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            raise self._gone(method, params) from None
        except sdk.ProtocolError as error:
            if sdk.is_timeout(error):
                raise self._late(method, params, limit) from None
            if sdk.is_closed(error):
                raise self._gone(method, params) from None
            raise
        return self._redact.value(raw) if self._redact else raw

    def _late(self, method: str, params: dict[str, Any], limit: float) -> ServerTimeoutError:
        return ServerTimeoutError(
            f"no answer within {limit:g} s", where=f"server {self.name!r}, {params.get('name') or method}"
        )

    def _gone(self, method: str, params: dict[str, Any]) -> ServerClosedError:
        return ServerClosedError(
            f"the connection is gone{self._ending()}",
            where=f"server {self.name!r}, {params.get('name') or method}",
        )

    async def _call(self, tool: str, arguments: Mapping[str, Any] | None, timeout_s: float | None) -> ToolResult:
        params = {"name": tool, "arguments": dict(arguments or {})}
        if refused := unsendable(params):
            return refused
        try:
            raw = await self._request("tools/call", params, timeout_s)
        except sdk.ProtocolError as error:
            return failed(self._redact.text(sdk.error_parts(error)[1]))
        return read_result(raw, self._validator(tool))

    def _validator(self, tool: str) -> OutputValidator | None:
        if self.config.trusted or self._listing is None:
            return None
        if tool not in self._validators:
            self._validators[tool] = compile_output(self._listing.tool(tool))
        return self._validators[tool]

    async def _list(self, refresh: bool) -> Listing:
        if self._listing is None or refresh:
            listing = await self._server_error(
                "tools/list", list_all(self._request, self.name, trusted=self.config.trusted)
            )
            self._listing = listing
            self._validators = {}
        return self._listing

    async def _read(self, uri: str) -> str:
        raw = await self._server_error("resources/read", self._request("resources/read", {"uri": uri}))
        contents = raw.get("contents")
        for content in contents if isinstance(contents, list) else []:
            if isinstance(content, dict) and isinstance(content.get("text"), str):
                return str(content["text"])
        raise ServerError(f"resource {uri!r} holds no text", where=f"server {self.name!r}")

    async def _server_error(self, what: str, work: Awaitable[T]) -> T:
        try:
            return await work
        except sdk.ProtocolError as error:
            message = self._redact.text(sdk.error_parts(error)[1])
            raise ServerError(f"refused {what}: {message}", where=f"server {self.name!r}") from None

    async def _close(self) -> None:
        loop.forget(id(self))
        self._stop.set()
        if self._actor is not None:
            # The actor reports failures through the session, so its end is all there is to wait for.
            await asyncio.wait([self._actor])
        self._peer = None


def load_target(config: ServerConfig) -> Any:
    """The server object that an in-process configuration names; a function is called with the configuration's options.

    Raises:
        NotFoundError: the module or the attribute does not exist.
        InvalidInputError: the target is not `module:attribute`.
    """
    found = resolve(config.target, where=f"server {config.name!r}")
    return found(**config.options) if callable(found) and not hasattr(found, "run") else found


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _refuses_era(error: BaseException) -> bool:
    if not isinstance(error, sdk.ProtocolError):
        return False
    return sdk.error_parts(error)[0] in (sdk.UNSUPPORTED_PROTOCOL_VERSION, _METHOD_NOT_FOUND)


def _short(error: BaseException) -> str:
    # Validation errors of the SDK print the whole value over many lines.
    return str(error).split("\n", 1)[0][:300]
