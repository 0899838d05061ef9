"""Small tasks made from a seed: one fact to be found with one read, so that an environment without a dataset has tasks.

Not a benchmark: certified tasks come from `toolverse tasks generate`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

from toolverse.checks import AnswerSpec
from toolverse.envs.mcp.engine import Stage
from toolverse.envs.mcp.types import Offered
from toolverse.errors import InvalidInputError
from toolverse.types import Milestone, ReferenceCall, Task

WITNESSES = 20
"""How many argument sets of a tool are considered; more add nothing to a warm-up."""


def warm_up(stage: Stage, seed: int) -> Task:
    """A task over an open stage with bundled servers: make one read that shows a value nobody was told, and say it.

    Raises:
        InvalidInputError: no bundled server of the scene has a read that shows such a value.
    """
    rng = random.Random(seed)
    reads = [offered for offered in stage.toolset.tools if offered.tool.annotations.get("readOnlyHint") is True]
    rng.shuffle(reads)
    for offered in reads:
        cases = stage.witnesses(offered, WITNESSES)
        rng.shuffle(cases)
        for arguments in cases:
            result = stage.look(offered, arguments)
            shown = list(leaves(result))
            names = Counter(asked_for(path) for path, _ in shown)
            # Of several values of one name, nobody could know which is wanted.
            fresh = [
                (path, value)
                for path, value in shown
                if telling(value) and value not in str(arguments) and names[asked_for(path)] == 1
            ]
            if fresh:
                path, value = rng.choice(fresh)
                return _task(stage, offered, arguments, path, value, seed)
    raise InvalidInputError(
        "no server of the scene has anything to be found", where="MCP", fix="give a task, or bundled servers"
    )


def _task(stage: Stage, offered: Offered, arguments: dict[str, Any], path: str, value: str, seed: int) -> Task:
    known = ", ".join(f"{name.replace('_', ' ')} is {told}" for name, told in arguments.items())
    wanted = asked_for(path)
    purpose = offered.tool.description.rstrip(".")
    instruction = f"Please look this up for me and give me the {wanted}. What I need is this: {purpose}."
    answer = f"The {wanted} is {value}."
    token = AnswerSpec("id", value).accepts(answer)
    return Task(
        task_id=f"warm-up-{seed}",
        env_id="toolverse/MCP-v0",
        env_config=stage.scene.model_dump(mode="json"),
        seed=seed,
        instruction=f"{instruction} I know that the {known}." if known else instruction,
        milestones=(
            Milestone(
                id="found",
                predicate={"op": "eq", "result": _any_item(path), "tool": offered.id, "value": value},
                description=f"the {wanted} was read",
                weight=0.5,
                goal=True,
            ),
            Milestone(
                id="told",
                predicate={"op": "matches", "answer": "", "value": f"*{value}*"},
                description=f"the {wanted} was told",
                weight=0.5,
                goal=True,
            ),
        ),
        verifier={"answer": {"type": "id" if token else "string", "value": value}},
        reference=(ReferenceCall(server=offered.server, tool=offered.tool.name, arguments=arguments),),
        answer=answer,
    )


def asked_for(path: str) -> str:
    """The name by which a user asks for the value at a pointer: "order line id", of one in a list "order_line_ids" too."""
    parts = path.split("/")
    name = parts[-2].removesuffix("s") if parts[-1].isdigit() else parts[-1]
    return name.replace("_", " ")


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The scalars of a JSON value with their pointers."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, f"{path}/{key.replace('~', '~0').replace('/', '~1')}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from leaves(item, f"{path}/{index}")
    else:
        yield path, value


def telling(value: Any) -> bool:
    """Whether a value is opaque enough that seeing it proves the read: a text of 6 or more characters with a digit."""
    return (
        isinstance(value, str)
        and 6 <= len(value) <= 60
        and any(map(str.isdigit, value))
        and not set("\n*?") & set(value)
    )


def _any_item(path: str) -> str:
    return "/".join("*" if part.isdigit() else part for part in path.split("/"))
