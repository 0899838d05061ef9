"""Playing rows over the bundled servers: one world, seen by predicates, saved natively, the same over both transports."""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from typing import Any

import pytest

from mcp_servers.kit import founding
from toolverse.checks import compile_predicate
from toolverse.checks.episode import Referee, Verifier
from toolverse.envs.base import Snapshot
from toolverse.envs.mcp import McpEnv
from toolverse.envs.mcp.engine import WorldState, diff
from toolverse.envs.mcp.generator import asked_for, leaves
from toolverse.envs.mcp.types import Scene
from toolverse.envs.messages import write_calls
from toolverse.errors import InvalidInputError
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


def test_a_warm_up_wants_the_value_told_not_only_read() -> None:
    env = McpEnv(servers=["orders"])
    for seed in range(6):
        env.reset(seed=seed)
        value = env.task.verifier["answer"]["value"]
        _, reward, *_ = env.step(str(env.expert_action()))
        assert reward == pytest.approx(0.5)
        snapshot = env.snapshot()
        *_, info = env.step(f"It is {value[:-1]}.")
        assert not info["success"]
        env.restore(snapshot)
        _, reward, _, _, info = env.step(f"It is {value}.")
        assert reward == pytest.approx(0.5)
        assert info["success"]
    env.close()


def test_a_warm_up_asks_for_the_only_value_of_its_name() -> None:
    env = McpEnv(worlds=[0, 8], world_size="small")
    for seed in range(24):
        env.reset(seed=seed)
        wanted = env.task.answer.removeprefix("The ").partition(" is ")[0]
        observation, *_ = env.step(str(env.expert_action()))
        named = [value for path, value in leaves(json.loads(observation)) if asked_for(path) == wanted]
        assert named == [env.task.verifier["answer"]["value"]]
        assert not any(map(str.isdigit, wanted))
    env.close()


@pytest.mark.parametrize(("path", "name"), [("/total", "total"), ("/items/0/order_id", "order id"), ("/ids/3", "id")])
def test_what_a_user_asks_for_is_named_as_the_tool_names_it(path: str, name: str) -> None:
    assert asked_for(path) == name


def test_other_worlds_have_no_id_in_common() -> None:
    def shown(worlds: list[int]) -> set[str]:
        env = McpEnv(servers=["orders"], worlds=worlds)
        out = set()
        for seed in range(20):
            env.reset(seed=seed)
            assert worlds[0] <= Scene.parse(env.task.env_config, where="").world.seed < worlds[1]
            out |= set(re.findall(r"\b[a-z]{3,4}_[a-z0-9]{10}\b", str(env.step(str(env.expert_action()))[0])))
        env.close()
        return out

    here, there = shown([0, 2]), shown([5, 7])
    assert len(here) > 5
    assert here.isdisjoint(there)


@pytest.mark.parametrize("worlds", [[3, 3], [-1, 2], [4], [0, 1, 2]])
def test_worlds_are_a_range_of_seeds(worlds: list[int]) -> None:
    with pytest.raises(InvalidInputError, match="worlds"):
        McpEnv(worlds=worlds)


def test_a_template_is_founded_once_while_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    founded = []
    write = founding.write_world
    monkeypatch.setattr(founding, "_TEMPLATES", OrderedDict())
    monkeypatch.setattr(founding, "write_world", lambda *a: (founded.append(a[2]), write(*a)))
    for seed in (40, 41, 42, 43, 44, 45, 40):
        entry("orders").open_world(seed=seed, size="mini").close()
    assert founded == [40, 41, 42, 43, 44, 45]
    monkeypatch.setattr(founding, "_TEMPLATE_BYTES", 0)
    for seed in (46, 45, 40):  # the four that were opened last stay, whatever they take
        entry("orders").open_world(seed=seed, size="mini").close()
    assert founded == [40, 41, 42, 43, 44, 45, 46]
    entry("orders").open_world(seed=41, size="mini").close()
    assert founded[-1] == 41


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
