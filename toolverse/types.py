"""The nouns that cross rooms, processes and files: messages, tools, milestones, tasks, turns, trajectories.

Pydantic models, because each of them is read from or written to a file somewhere. They are frozen, refuse unknown fields,
and check their invariants on construction, so a `Task` or a `Trajectory` that exists is a valid one. Tool-call arguments are
always a dict here: the JSON *string* of the OpenAI wire format is decoded at the border (`ToolCall.from_openai`) and never
travels inside (templates that get the string instead of the dict encode it twice and say nothing).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from toolverse.errors import InvalidInputError

JSON = Any
"""A JSON value: None, bool, int, float, str, list or dict with str keys."""

Role = Literal["system", "user", "assistant", "tool"]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]


class Model(BaseModel):
    """Base of all exchanged types: frozen, strict about unknown fields, with errors of our own hierarchy."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    @classmethod
    def parse(cls, data: Any, *, where: str | None = None) -> Self:
        """`model_validate` with an error that names the field.

        Raises:
            InvalidInputError: with `where`, the path of the first bad field, and what was expected there.
        """
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            field = ".".join(str(part) for part in first["loc"]) or cls.__name__
            more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
            raise InvalidInputError(
                f"field {field!r} of {cls.__name__}: {first['msg'].removeprefix('Value error, ')}{more}",
                where=where,
                expected=None,
            ) from error


class ToolCall(Model):
    """One call of one tool. `arguments` is a dict, never a JSON string; `id` is the chat's correlation id, if it has one."""

    name: str = Field(min_length=1)
    arguments: dict[str, JSON] = Field(default_factory=dict)
    id: str | None = None

    @field_validator("arguments", mode="before")
    @classmethod
    def _not_a_string(cls, value: Any) -> Any:
        if isinstance(value, str):
            raise ValueError("arguments are a JSON string; decode it to an object first (ToolCall.from_openai does)")
        return value

    def to_openai(self) -> dict[str, JSON]:
        """OpenAI chat shape, except that `function.arguments` stays a dict."""
        call: dict[str, JSON] = {
            "type": "function",
            "function": {"name": self.name, "arguments": dict(self.arguments)},
        }
        return {"id": self.id, **call} if self.id is not None else call

    @classmethod
    def from_openai(cls, data: Mapping[str, JSON]) -> Self:
        """Read the OpenAI wire shape; arguments may be the JSON string that endpoints send, or a dict.

        Raises:
            InvalidInputError: the string is not JSON, or not an object.
        """
        function = data.get("function", data)
        if not isinstance(function, Mapping):
            raise InvalidInputError("tool call has no function object", expected='{"function": {"name", "arguments"}}')
        arguments = function.get("arguments")
        if arguments is None or arguments == "":
            arguments = {}
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments)
            except (ValueError, RecursionError) as error:
                raise InvalidInputError(f"the arguments are not valid JSON ({error})") from error
        return cls.parse({"name": function.get("name"), "arguments": arguments, "id": data.get("id")})


class Message(Model):
    """One chat message in the OpenAI shape.

    Invariants: only the assistant calls tools; a `tool` message answers a call (`tool_call_id` or `name`); `content` may be
    None only beside tool calls.
    """

    role: Role
    content: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None

    @model_validator(mode="after")
    def _shape(self) -> Self:
        if self.tool_calls and self.role != "assistant":
            raise ValueError(f"a {self.role} message can't call tools")
        if self.role == "tool" and self.tool_call_id is None and self.name is None:
            raise ValueError("a tool message needs the tool_call_id or the name of the call that it answers")
        if self.content is None and not self.tool_calls:
            raise ValueError("content is None, and there are no tool calls")
        return self

    def to_openai(self) -> dict[str, JSON]:
        """A dict without absent keys (some chat templates test `is defined`, so None is not the same as absent)."""
        out: dict[str, JSON] = {"role": self.role, "content": self.content}
        if self.tool_calls:
            out["tool_calls"] = [call.to_openai() for call in self.tool_calls]
        if self.tool_call_id is not None:
            out["tool_call_id"] = self.tool_call_id
        if self.name is not None:
            out["name"] = self.name
        return out

    @classmethod
    def from_openai(cls, data: Mapping[str, JSON]) -> Self:
        """Read one OpenAI chat message; None values of absent keys (as parquet returns them) are dropped."""
        present = {key: value for key, value in data.items() if value is not None}
        calls = tuple(ToolCall.from_openai(call) for call in present.pop("tool_calls", ()))
        return cls.parse({"content": None, **present, "tool_calls": calls})


class ToolSpec(Model):
    """What a tool is called, what it takes and what it returns (JSON Schemas, as MCP lists them).

    `annotations` are the server's own hints (`readOnlyHint`, `destructiveHint`, ...): untrusted, never acted upon by
    themselves. `server` is the name the tool was reached under, None for a tool without a server.
    """

    name: str = Field(min_length=1)
    description: str = ""
    input_schema: dict[str, JSON] = Field(default_factory=lambda: {"type": "object", "properties": {}})
    output_schema: dict[str, JSON] | None = None
    annotations: dict[str, JSON] = Field(default_factory=dict)
    server: str | None = None

    @field_validator("input_schema")
    @classmethod
    def _object_schema(cls, schema: dict[str, JSON]) -> dict[str, JSON]:
        if schema.get("type", "object") != "object":
            raise ValueError(f'the input schema has type {schema["type"]!r}; tool arguments are always an "object"')
        return schema

    def to_openai(self) -> dict[str, JSON]:
        """The entry of a chat request's `tools` list."""
        return {
            "type": "function",
            "function": {"name": self.name, "description": self.description, "parameters": self.input_schema},
        }


class Milestone(Model):
    """A fact that every solution passes, as a predicate of `toolverse.checks`.

    `weight` is its share of the task's progress (the weights of a task sum to 1); `depth` the certified h_max of the fact;
    `goal` marks the facts that decide success; `must_hold_at_end` those that can be undone and are looked at again when the
    episode ends; `cut_size` the number of alternative achievers (1: this very fact is a landmark).
    """

    id: str = Field(min_length=1)
    predicate: dict[str, JSON]
    description: str = ""
    weight: float = Field(ge=0.0, le=1.0)
    depth: int = Field(default=0, ge=0)
    kind: str = "result_seen"
    goal: bool = False
    must_hold_at_end: bool = False
    cut_size: int = Field(default=1, ge=1)


class MilestoneOrder(Model):
    """`before` is a landmark of `after`: statistics only, an early `after` still counts."""

    before: str
    after: str


class ReferenceCall(Model):
    """One call of the reference solution: arguments as executed, `refs` says which came from which earlier result.

    `refs` maps an argument's JSON pointer to `{"call": index, "path": JSON pointer into that call's result}`.
    """

    server: str = ""
    tool: str = Field(min_length=1)
    arguments: dict[str, JSON] = Field(default_factory=dict)
    refs: dict[str, dict[str, JSON]] = Field(default_factory=dict)
    result_sha256: str = ""
    writes: bool = False
    depth: int = Field(default=0, ge=0)


class DependencyEdge(Model):
    """Value or state flow from reference call `src` to reference call `dst` (indices into `Task.reference`)."""

    src: int = Field(ge=0)
    dst: int = Field(ge=0)
    src_path: str = ""
    dst_path: str = ""
    kind: Literal["data", "state", "order", "conflict"] = "data"
    transform: str = "identity"
    confidence: Share = 1.0
    necessary: bool = True

    @model_validator(mode="after")
    def _forward(self) -> Self:
        if self.src >= self.dst:
            raise ValueError(f"edge {self.src}->{self.dst} does not point forward")
        return self


class UserTurn(Model):
    """A staged request: `text` reaches the agent once milestone `after_milestone` has latched ('' = at the start)."""

    after_milestone: str = ""
    text: str


class Distractor(Model):
    """A tool that is offered but not needed; `kind` is connected, disconnected, synonym or stale."""

    tool_id: str
    kind: str


class StateRef(Model):
    """Where the initial state comes from: `seed` (rebuilt), or a snapshot file with its hash."""

    kind: Literal["seed", "snapshot"] = "seed"
    uri: str = ""
    sha256: str = ""


class TaskMetrics(Model):
    """Sizes of a task; -1 where it was not measured. `depth_lb` and `calls_lb` are certified lower bounds.

    `depth_lb` is h_max of the goal by value and state alone; `depth_lb_gated` counts the gates of the world (approvals,
    waiting) as well. Token counts are of the tokenizer that `provenance` names.
    """

    n_calls: int = -1
    depth: int = -1
    depth_lb: int = -1
    depth_lb_gated: int = -1
    calls_lb: int = -1
    width: int = -1
    joins: int = -1
    n_servers: int = -1
    n_tools: int = -1
    n_writes: int = -1
    n_milestones: int = -1
    n_distractors: int = -1
    prompt_tokens: int = -1
    tools_tokens: int = -1
    episode_tokens: int = -1
    tightness: float = -1.0


class AgentRate(Model):
    """How one scripted or trained agent fared on a task in `n` attempts."""

    name: str
    pass_rate: Share
    mean_score: Share = 0.0
    n: int = Field(default=0, ge=0)


class Difficulty(Model):
    """`score` in [0, 1], the tier it falls into, and the agents it was measured with."""

    score: Share = 0.0
    bin: str = ""
    agents: tuple[AgentRate, ...] = ()


class NegativeCheck(Model):
    """One class of attempts that must fail: `n` were made, `killed` of them failed as they should."""

    name: str
    n: int = Field(ge=0)
    killed: int = Field(ge=0)


class Certificate(Model):
    """What was proven before the task was shipped (`positive`: the reference passed, twice, in fresh worlds)."""

    positive: bool = False
    negatives: tuple[NegativeCheck, ...] = ()
    mutation_score: float = -1.0
    replay_sha256: str = ""
    unique_answer: bool = False
    realizable: bool = False
    leaks: int = -1


class ServerOrigin(Model):
    """A tool server a task was made on."""

    name: str
    version: str = ""
    licence: str = ""


class Provenance(Model):
    """Where a task comes from. `created` is the release date of the generator, not a clock time: same seed, same bytes."""

    generator: str = ""
    config_sha256: str = ""
    master_seed: int = 0
    index: int = 0
    template_id: str = ""
    llm_model: str = ""
    tokenizer: str = ""
    created: str = ""
    licence: str = ""
    servers: tuple[ServerOrigin, ...] = ()


class Task(Model):
    """One verified task: what the agent is asked, in which environment, and what decides success.

    A row of the `tasks` table (`toolverse.io` has the codec). Invariants: milestone ids are unique, weights sum to 1, at
    least one milestone is a goal, the order and the edges refer to what exists. A task without milestones is legal: its
    success is then decided by its environment alone.
    """

    task_id: str = Field(min_length=1)
    schema_version: str = "1.0.0"
    family_id: str = ""
    env_id: str = Field(min_length=1)
    env_version: str = ""
    env_config: dict[str, JSON] = Field(default_factory=dict)
    seed: int = Field(default=0, ge=0, lt=2**63)
    initial_state_ref: StateRef = StateRef()
    instruction: str = ""
    instruction_fuzzy: str = ""
    turns: tuple[UserTurn, ...] = ()
    system_prompt: str = ""
    policy: str = ""
    tool_ids: tuple[str, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    distractors: tuple[Distractor, ...] = ()
    milestones: tuple[Milestone, ...] = ()
    milestone_order: tuple[MilestoneOrder, ...] = ()
    verifier: dict[str, JSON] = Field(default_factory=dict)
    answer: str = ""
    reference: tuple[ReferenceCall, ...] = ()
    edges: tuple[DependencyEdge, ...] = ()
    metrics: TaskMetrics = TaskMetrics()
    difficulty: Difficulty = Difficulty()
    certificate: Certificate = Certificate()
    provenance: Provenance = Provenance()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        ids = [milestone.id for milestone in self.milestones]
        if len(set(ids)) != len(ids):
            raise ValueError(f"milestone ids repeat: {sorted({i for i in ids if ids.count(i) > 1})}")
        if self.milestones:
            total = math.fsum(milestone.weight for milestone in self.milestones)
            if abs(total - 1.0) > 1e-6:
                raise ValueError(f"milestone weights sum to {total:.6f}, not 1")
            if not any(milestone.goal for milestone in self.milestones):
                raise ValueError("no milestone is marked as a goal")
        for order in self.milestone_order:
            if unknown := {order.before, order.after} - set(ids):
                raise ValueError(f"milestone_order names unknown milestones {sorted(unknown)}")
        for turn in self.turns:
            if turn.after_milestone and turn.after_milestone not in ids:
                raise ValueError(f"a staged turn waits for the unknown milestone {turn.after_milestone!r}")
        for edge in self.edges:
            if edge.dst >= len(self.reference):
                raise ValueError(f"edge {edge.src}->{edge.dst} points beyond the {len(self.reference)} reference calls")
        return self


class Turn(Model):
    """One assistant message and what the environment made of it: a node of the turn graph.

    `action` is the string the environment was stepped with, `message` the assistant's chat message where it holds more than
    that string (structured tool calls of an endpoint), `messages_delta` what the environment appended to the chat afterwards,
    `observation` its text. `tool_calls` are the calls that were executed. `subgoal` and `is_boundary` are the segments of
    hierarchical methods: a boundary turn starts a new subgoal. `latency_s` is the wall time of the environment's step, None
    where it was not measured.
    """

    index: int = Field(ge=0)
    parent: int | None = None
    action: str
    message: dict[str, JSON] | None = None
    messages_delta: tuple[dict[str, JSON], ...] = ()
    observation: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    reward: Finite = 0.0
    reward_components: dict[str, Finite] = Field(default_factory=dict)
    terminated: bool = False
    truncated: bool = False
    truncation_reason: str | None = None
    action_valid: bool = True
    parse_error: str | None = None
    milestones: tuple[str, ...] = ()
    score: Share = 0.0
    state_hash: str | None = None
    subgoal: str | None = None
    is_boundary: bool = False
    latency_s: float | None = Field(default=None, ge=0.0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _ending(self) -> Self:
        if self.terminated and self.truncated:
            raise ValueError("a turn is either terminated or truncated, never both")
        if self.truncated != (self.truncation_reason is not None):
            raise ValueError("truncation_reason is given exactly when the turn is truncated")
        if self.parent is not None and self.parent >= self.index:
            raise ValueError(f"parent {self.parent} does not come before turn {self.index}")
        return self


class Trajectory(Model):
    """A turn graph: each turn is stored once and linked to its parent; a training sample is the path to a leaf.

    A plain episode is a chain with one leaf. Re-rollouts from a snapshot, folded contexts and sub-agents are branches.
    `success` and `score` belong to the first leaf (the episode proper); branches carry their own `Turn.score`.

    Invariants: indices are 0..n-1 in order; an ended turn has no children; `score` is 1 exactly if `success`.
    """

    env_id: str
    task_id: str = ""
    seed: int | None = None
    group_id: str = ""
    policy: str = ""
    policy_version: str = ""
    prompt: str = "bare"
    opening: tuple[dict[str, JSON], ...] = ()
    tools: tuple[dict[str, JSON], ...] = ()
    first_observation: str = ""
    first_state_hash: str | None = None
    turns: tuple[Turn, ...] = ()
    success: bool = False
    score: Share = 0.0
    metadata: dict[str, JSON] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _graph(self) -> Self:
        for position, turn in enumerate(self.turns):
            if turn.index != position:
                raise ValueError(f"turn at position {position} has index {turn.index}")
            if turn.parent is not None:
                parent = self.turns[turn.parent]
                if parent.terminated or parent.truncated:
                    raise ValueError(f"turn {position} continues turn {turn.parent}, at which the episode had ended")
        if self.success != (self.score == 1.0):
            raise ValueError(f"score {self.score} does not fit success={self.success}: it is 1 exactly on success")
        return self

    def leaves(self) -> tuple[int, ...]:
        """Indices of the turns without children, ascending."""
        parents = {turn.parent for turn in self.turns}
        return tuple(turn.index for turn in self.turns if turn.index not in parents)

    def path(self, leaf: int | None = None) -> tuple[Turn, ...]:
        """Turns from the root to `leaf` (default: the first leaf), in playing order."""
        if not self.turns:
            return ()
        index: int | None = self.leaves()[0] if leaf is None else leaf
        backwards: list[Turn] = []
        while index is not None:
            backwards.append(self.turns[index])
            index = backwards[-1].parent
        return tuple(reversed(backwards))

    def paths(self) -> Iterator[tuple[Turn, ...]]:
        """One path per leaf: the training samples."""
        for leaf in self.leaves():
            yield self.path(leaf)

    def chat(self, leaf: int | None = None) -> list[dict[str, JSON]]:
        """The whole chat along one path, the environment's last words included."""
        messages = list(self.opening)
        for turn in self.path(leaf):
            messages.append(turn.message or {"role": "assistant", "content": turn.action})
            messages.extend(turn.messages_delta)
        return messages

    def total_reward(self, leaf: int | None = None) -> float:
        """Undiscounted sum of rewards along one path."""
        return math.fsum(turn.reward for turn in self.path(leaf))


def system(content: str) -> dict[str, JSON]:
    """A system message as a plain chat dict (the hot path of environments uses dicts, not models)."""
    return {"role": "system", "content": content}


def user(content: str) -> dict[str, JSON]:
    """A user message as a plain chat dict."""
    return {"role": "user", "content": content}


def tool_message(content: str, *, name: str, call_id: str | None = None) -> dict[str, JSON]:
    """A tool result as a plain chat dict."""
    message: dict[str, JSON] = {"role": "tool", "content": content, "name": name}
    if call_id is not None:
        message["tool_call_id"] = call_id
    return message


def tools_openai(tools: Sequence[ToolSpec]) -> list[dict[str, JSON]]:
    """The `tools` list of a chat request."""
    return [tool.to_openai() for tool in tools]
