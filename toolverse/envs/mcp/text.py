"""What an agent reads in an MCP environment."""

from __future__ import annotations

import difflib

from toolverse.envs.base import Outcome
from toolverse.envs.mcp.types import Toolset
from toolverse.envs.prompts import Prompt, subgoal_line
from toolverse.errors import ServerClosedError, ServerTimeoutError

FINAL = "The answer was taken; the episode is over."

_HOW = {
    "react": 'Answer with a line "Thought: ..." and a line "Action: ...". ',
    "verl_agent": "Think inside <think> </think>, then act inside <action> </action>. ",
    "hiper": (
        "Answer with <switch>KEEP</switch> or <switch>SWITCH</switch>, your present <subgoal>...</subgoal>, and "
        "<action>...</action>. "
    ),
    "bare": "",
}


def prompt(kind: str, *, policy: str = "", toolset: Toolset | None = None) -> Prompt:
    """The chat's templates: the policy as system message, the request as the user's.

    Under "tools" the tools go into the chat's own list; under the other kinds the system message holds what that list would
    say, one tool a line, schema included: names alone do not tell anyone how to call.
    """
    lines = [policy] if policy else []
    if kind != "tools":
        action = 'one tool call, {"name": "...", "arguments": {...}}, or your final answer as plain text'
        lines.append(f"{_HOW[kind]}An action is {action}.")
        if toolset is not None:
            lines.append("The tools, one a line:")
            lines += [tool.line for tool in toolset.tools]
    return Prompt(
        system=_literal("\n\n".join(lines)),
        opening_text="{task}",
        turn_text="{observation}",
        window_text=(
            "The request: {task}\n\nYour last actions, and what you had read before each:\n{history}\n\n"
            + subgoal_line(kind)
            + "What you read now:\n{observation}"
        ),
        # What a tool told is often used many calls later.
        history_length=10,
    )


def _literal(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def unknown_tool(name: str, toolset: Toolset) -> Outcome:
    """A call of a tool that is not offered, with the names it could have meant."""
    shown = name[:80].encode("utf-8", "replace").decode()
    near = difflib.get_close_matches(name[:80], toolset.names(), n=3, cutoff=0.5)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    return Outcome(f"There is no tool named {shown!r}.{hint}", valid=False, error="unknown_tool")


def no_answer(error: ServerTimeoutError | ServerClosedError) -> Outcome:
    """A call without an answer: a late one may have happened; a lost server ends the episode."""
    if isinstance(error, ServerTimeoutError):
        return Outcome(f"The tool gave no answer in time ({error.problem}); it may have been carried out.", valid=False)
    return Outcome("The tool's server is gone.", valid=False, truncation_reason="server_lost")
