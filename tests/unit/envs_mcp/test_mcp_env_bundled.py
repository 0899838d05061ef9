"""Playing rows over the bundled servers: one world, seen by predicates, saved natively, the same over both transports."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolverse.checks import compile_predicate
from toolverse.checks.episode import Referee, Verifier
from toolverse.envs.base import Snapshot
from toolverse.envs.mcp import McpEnv
from toolverse.envs.mcp.engine import WorldState, diff
from toolverse.envs.messages import write_calls
from toolverse.io import task_to_row
from toolverse.mcp import entry
from toolverse.types import Milestone, ReferenceCall, Task, ToolCall

SCENE = {"servers": ["calendar", "mail"], "world": {"seed": 1, "size": "mini"}}


@pytest.fixture(scope="module")
def cancel() -> dict[str, Any]:
    """Arguments of a cancellation that succeeds in the scene's world."""
    world = entry("calendar").open_world(seed=1, size="mini")
    case = world.cases("calendar", "cancel_event", 1)[0]
    world.close()
    return case


def task(cancel: dict[str, Any], **verifier: Any) -> Task:
    """Cancel one event of the calendar."""
    event = cancel["event_id"]
    return Task(
        task_id="cancel",
        env_id="toolverse/MCP-v0",
        env_config=SCENE,
        instruction="Please cancel the meeting.",
        milestones=(
            Milestone(
                id="cancelled",
                predicate={"op": "eq", "state": f"/calendar_events/{event}/status", "value": "cancelled"},
                weight=1.0,
                goal=True,
                must_hold_at_end=True,
            ),
        ),
        verifier=verifier,
        reference=(ReferenceCall(server="calendar", tool="cancel_event", arguments=cancel, writes=True),),
        answer="It is cancelled.",
    )


def played(env: McpEnv, actions: list[str]) -> list[Any]:
    return [env.reset(seed=0), *(env.step(action) for action in actions)]


def test_state_is_seen_and_the_same_over_both_transports(cancel: dict[str, Any]) -> None:
    row = task_to_row(task(cancel, footprint=["/calendar_*"]))
    call = write_calls([ToolCall(name="calendar__cancel_event", arguments=cancel)])
    actions = [call, call, "It is cancelled."]
    seen = {}
    for transport in ("in_process", "stdio"):
        env = McpEnv(task=row, transport=transport)  # type: ignore[arg-type]
        seen[transport] = played(env, actions)
        assert env.snapshot_kind == "native"
        assert played(env, actions) == seen[transport]
        env.close()
    assert seen["stdio"] == seen["in_process"]
    _, first, second, last = seen["in_process"]
    assert first[4]["milestones"] == ["cancelled"]
    assert second[4]["action_valid"] is False
    assert last[4]["success"]
    assert last[4]["reasons"] == []


def test_a_change_outside_of_the_footprint_is_no_success(cancel: dict[str, Any]) -> None:
    env = McpEnv(task=task_to_row(task(cancel, footprint=["/mail_*"])))
    *_, info = played(env, [str(write_calls([ToolCall(name="calendar.cancel_event", arguments=cancel)])), "Done."])[-1]
    assert not info["success"]
    assert info["reasons"][0].startswith("unrelated change: /calendar_")
    env.close()


def test_a_native_snapshot_is_small_and_continues_in_another_environment(cancel: dict[str, Any]) -> None:
    row = task_to_row(task(cancel))
    env, other = McpEnv(task=row), McpEnv(task=row)
    played(env, [str(write_calls([ToolCall(name="calendar.cancel_event", arguments=cancel)]))])
    snapshot = Snapshot.from_json(json.loads(json.dumps(env.snapshot().to_json())))
    assert len(snapshot.payload) < 20_000
    other.reset(seed=5)
    other.restore(snapshot)
    assert other.snapshot() == env.snapshot()
    assert other.step("It is cancelled.") == env.step("It is cancelled.")
    env.close()
    other.close()


def test_the_briefing_of_the_world_is_the_system_message(cancel: dict[str, Any]) -> None:
    env = McpEnv(task=task_to_row(task(cancel)))
    _, info = env.reset(seed=0)
    world = entry("calendar").open_world(seed=1, size="mini")
    assert info["messages"][0] == {"role": "system", "content": world.briefing}
    env.close()


def test_warm_ups_are_solved_by_their_reference() -> None:
    env = McpEnv(servers=["people", "orders"])
    for seed in range(5):
        _, info = env.reset(seed=seed)
        while not env.is_over:
            *_, info = env.step(str(env.expert_action()))
        assert info["success"]
    env.close()


def test_a_row_that_comes_again_begins_alike_and_one_that_was_changed_does_not(cancel: dict[str, Any]) -> None:
    row, env = task_to_row(task(cancel)), McpEnv()
    call = str(write_calls([ToolCall(name="calendar.cancel_event", arguments=cancel)]))

    def opening() -> Any:
        begun = env.reset(seed=0, options={"task": row})
        env.step(call)
        return begun

    first = opening()
    assert opening() == first
    row["instruction"] = "Cancel it, and be quick."
    assert opening()[1]["messages"][-1]["content"] == "Cancel it, and be quick."
    row["env_config_json"] = json.dumps({**SCENE, "max_turns": 1})
    opening()
    assert env.is_over, "the scene is read anew"
    fresh = McpEnv()
    assert fresh.reset(seed=0, options={"task": row}) == env.reset(seed=0, options={"task": row})
    env.close()
    fresh.close()


class FakeWorld:
    """Two changed rows, one deleted row and one fact."""

    now = "2031-03-17T09:00:00+00:00"

    def changes(self) -> list[dict[str, Any]]:
        return [
            {"table": "orders_lines", "key": ["ord_1", 2], "row": {"quantity": 3, "sku": "a/b"}},
            {"table": "orders_orders", "key": ["ord_1"], "row": None},
        ]

    def holds(self, predicate: str, subject: str) -> bool:
        if predicate != "order.open":
            raise KeyError(predicate)
        return subject == "ord_1"


@pytest.mark.parametrize(
    ("predicate", "holds"),
    [
        ({"op": "eq", "state": "/facts/order.open/ord_1", "value": True}, True),
        ({"op": "exists", "state": "/facts/order.open/ord_2"}, False),
        ({"op": "exists", "state": "/facts/order.shut/ord_1"}, False),
        ({"op": "eq", "state": "/orders_lines/ord_1,2/quantity", "value": 3}, True),
        ({"op": "eq", "state": "/orders_lines/*/quantity", "value": 3}, True),
        ({"op": "exists", "state": "/orders_orders/ord_1"}, False),
        ({"op": "eq", "state": "/now", "value": "2031-03-17T09:00:00+00:00"}, True),
        ({"op": "eq", "diff": "/orders_lines/ord_1,2/quantity", "value": 3}, True),
    ],
)
def test_predicates_look_into_a_world(predicate: dict[str, Any], holds: bool) -> None:
    world: Any = FakeWorld()
    assert compile_predicate(predicate)
    milestone = Milestone(id="m", predicate=predicate, weight=1.0, goal=True)
    documents = {"state": WorldState([world]), "diff": diff(world)}
    referee = Referee([milestone], Verifier(), documents.__getitem__)
    assert referee.saw_state() == (["m"] if holds else [])
    assert diff(world)["/orders_orders/ord_1"] is None
