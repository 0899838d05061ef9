"""What a tool call brought back, as an agent and a verifier see it.

Whatever a server answers becomes a `ToolResult`: a refusal, a result that breaks the server's own output schema, a
result that breaks the protocol. All of these have happened to the world and are observations, never exceptions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jsonschema
import referencing

from toolverse.types import ToolSpec


@dataclass(frozen=True, slots=True)
class ToolResult:
    """`text` is what the agent reads; `structured` the JSON object beside it, if the server sent one.

    `problems` say what was wrong with the answer itself (not with the call); they are part of `text` too.
    """

    text: str
    structured: dict[str, Any] | None = None
    is_error: bool = False
    problems: tuple[str, ...] = ()
    content: tuple[dict[str, Any], ...] = field(default=(), repr=False)

    @property
    def data(self) -> Any:
        """The result as JSON: `structured`, else the text decoded if it is JSON, else None."""
        if self.structured is not None:
            return self.structured
        try:
            return json.loads(self.text)
        except (ValueError, RecursionError):
            return None


def failed(text: str) -> ToolResult:
    """A call that was refused before or instead of being run."""
    return ToolResult(text=text, is_error=True)


# Kept: `json.dumps` makes an encoder anew for settings that are not its defaults.
_SENDABLE = json.JSONEncoder(allow_nan=False, ensure_ascii=False)


def unsendable(arguments: Mapping[str, Any]) -> ToolResult | None:
    """The refusal of arguments that no wire carries (a lone surrogate, NaN): found there, they end the connection."""
    try:
        _SENDABLE.encode(arguments).encode()
    except (ValueError, TypeError, RecursionError) as error:
        return failed(f"The arguments can't be sent as JSON ({type(error).__name__}).")
    return None


def read_result(raw: dict[str, Any], validator: OutputValidator | None = None) -> ToolResult:
    """Judge a raw `tools/call` result."""
    problems: list[str] = []
    content = raw.get("content")
    if not isinstance(content, list):
        if "structuredContent" not in raw and raw.get("resultType") != "input_required":
            problems.append("it has no list of contents")
        content = []
    blocks = [block for block in content if isinstance(block, dict)]
    if len(blocks) != len(content):
        problems.append("a content block is not an object")
    structured = raw.get("structuredContent")
    if structured is not None and not isinstance(structured, dict):
        problems.append("its structured content is not an object")
        structured = None
    is_error = raw.get("isError") is True
    if raw.get("resultType") == "input_required":
        problems.append("it asks for input from the user, which is not offered here")
        is_error = True
    if validator is not None and not is_error:
        problems.extend(validator.problems(structured))
    texts = [_block_text(block) for block in blocks]
    if not blocks and structured is not None:
        texts = [json.dumps(structured, ensure_ascii=False)]
    texts += [f"[invalid server output: {problem}]" for problem in problems]
    return ToolResult("\n".join(texts), structured, is_error, tuple(problems), tuple(blocks))


def _block_text(block: dict[str, Any]) -> str:
    kind = block.get("type")
    if kind == "text" and isinstance(block.get("text"), str):
        return str(block["text"])
    if kind in ("image", "audio"):
        size = len(block["data"]) * 3 // 4 if isinstance(block.get("data"), str) else 0
        return f"[{kind} {block.get('mimeType', 'of unknown type')}, {size} bytes]"
    if kind == "resource_link":
        return f"[resource {block.get('uri')}]"
    if kind == "resource" and isinstance(resource := block.get("resource"), dict):
        if isinstance(resource.get("text"), str):
            return str(resource["text"])
        return f"[resource {resource.get('uri')}]"
    return f"[content of unknown type {kind!r}]"


class OutputValidator:
    """A tool's output schema, compiled once. References resolve inside the schema only: nothing is ever fetched."""

    def __init__(self, schema: dict[str, Any]) -> None:
        kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
        self._validator = kind(schema, registry=referencing.Registry())

    def problems(self, structured: dict[str, Any] | None) -> list[str]:
        """What is wrong with a result's structured content, at most three sentences."""
        if structured is None:
            return ["its tool declares an output schema, but there is no structured content"]
        found = []
        try:
            for error in self._validator.iter_errors(structured):
                place = "".join(f"/{part}" for part in error.absolute_path) or "/"
                found.append(f"structured content at {place}: {error.message[:300]}")
                if len(found) == 3:
                    break
        except referencing.exceptions.Unresolvable as error:
            found.append(f"the tool's output schema refers to {error.ref!r}, outside of itself")
        except RecursionError:
            found.append("structured content is nested too deeply to be checked")
        return found


def compile_output(tool: ToolSpec | None) -> OutputValidator | None:
    """The validator for a tool's results, if it declares an output schema."""
    return OutputValidator(tool.output_schema) if tool is not None and tool.output_schema is not None else None
