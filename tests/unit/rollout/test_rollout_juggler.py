"""Episodes that wait openly share one thread: the same episodes, and the same promises, as in a thread each."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest
from rollout_stub import Stub, completion
from rollout_toys import Corridor, OpenCorridor

from toolverse import waiting
from toolverse.envs.lookup import make_chat_env
from toolverse.errors import ServerError
from toolverse.mcp import loop
from toolverse.rollout import play
from toolverse.rollout.collect import collect
from toolverse.rollout.crews import CrewSettings, processes, threads
from toolverse.rollout.crews import juggler as crews_juggler
from toolverse.rollout.crews.juggler import Juggler, Stopped
from toolverse.rollout.endpoint import EndpointSettings
from toolverse.rollout.jobs import Failed, Job, Played, Result
from toolverse.rollout.policies import EndpointFactory, ExpertPolicy, NoisyExpert
from toolverse.rollout.tokens import TokenTrajectory

NOISY = partial(NoisyExpert, 0.5)


def jobs(n: int, env_id: str = "OpenCorridor", **settings: Any) -> list[Job]:
    name = f"rollout_toys:test/{env_id}-v0"
    return [Job(i, name, seed=i, settings={"max_turns": 12, **settings}) for i in range(n)]


def episodes(results: Iterator[Result]) -> list[dict[str, Any]]:
    """In the order of the jobs; without what a clock says and the name of the world."""
    timing: Any = {"env_id": True, "turns": {"__all__": {"latency_s", "policy_latency_s"}}}
    played = sorted((result for result in results), key=lambda result: result.job.index)
    return [result.trajectory.model_dump(exclude=timing) for result in played if isinstance(result, Played)]


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[OpenCorridor], None]], None]:
    monkeypatch.setattr(OpenCorridor, "seen", set())
    monkeypatch.setattr(OpenCorridor, "closed", [])
    return lambda what: monkeypatch.setattr(OpenCorridor, "gate", staticmethod(what))


def test_sharing_a_thread_changes_no_episode() -> None:
    apart = episodes(threads(jobs(9, "Corridor"), NOISY, CrewSettings(workers=3)))
    assert len(apart) == 9
    for workers in (1, 4, 9):
        assert episodes(threads(jobs(9), NOISY, CrewSettings(workers=workers))) == apart
    assert episodes(processes(jobs(9), NOISY, CrewSettings(workers=4, processes=1))) == apart


def test_all_wait_at_a_time_in_one_thread(gate: Any) -> None:
    together = threading.Barrier(40)
    everybody: Future[None] = Future()
    waiting_now: set[int | None] = set()

    def wait(env: OpenCorridor) -> None:
        waiting_now.add(env._outer_seed)
        if len(waiting_now) == together.parties and not everybody.done():
            everybody.set_result(None)
        waiting.result(everybody)

    gate(wait)
    results = list(threads(jobs(40), ExpertPolicy, CrewSettings(workers=40, stall_s=30)))
    assert sum(isinstance(result, Played) for result in results) == 40
    assert len(OpenCorridor.seen) == 1


def test_a_wait_for_a_server_ends_in_the_order_of_the_servers(gate: Any) -> None:
    order: list[int] = []

    def wait(env: OpenCorridor) -> None:
        assert env._outer_seed is not None
        if env.at == 0:
            loop.run(asyncio.sleep(0.05 * (3 - env._outer_seed)))
            order.append(env._outer_seed)

    gate(wait)
    assert len(list(threads(jobs(3), ExpertPolicy, CrewSettings(workers=3)))) == 3
    assert order == [2, 1, 0]


def test_a_hung_tool_blocks_nobody_and_is_told_that_nobody_waits(gate: Any) -> None:
    told = threading.Event()

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            told.set()

    def wait(env: OpenCorridor) -> None:
        if (env._outer_seed, env.at) in ((1, 0), (3, 1)):
            loop.run(hang())

    gate(wait)
    results = collect(jobs(6), ExpertPolicy, settings=CrewSettings(workers=2, stall_s=0.4))
    assert [(f.job.seed, f.kind) for f in results.failures] == [(1, "timeout")]
    assert [t.seed for t in results.trajectories] == [0, 2, 3, 4, 5]
    assert [t.success for t in results.trajectories] == [True, True, False, True, True]
    cut = results.trajectories[2]
    assert [turn.truncation_reason for turn in cut.turns] == ["timeout"], "what was played before is kept"
    assert told.wait(10), "the call is cancelled"


def test_a_tool_that_keeps_the_thread_loses_only_its_own_episode(gate: Any) -> None:
    release = threading.Event()
    asleep: Future[None] = Future()

    def wait(env: OpenCorridor) -> None:
        if env._outer_seed == 2 and env.at == 1:
            release.wait(60)
        elif env._outer_seed == 3 and len(OpenCorridor.seen) == 1:
            waiting.result(asleep)

    gate(wait)
    try:
        results = collect(jobs(5), ExpertPolicy, settings=CrewSettings(workers=5, stall_s=0.4))
    finally:
        release.set()
    assert results.failures == []
    assert [t.seed for t in results.trajectories] == [0, 1, 2, 3, 4]
    assert [t.success for t in results.trajectories] == [True, True, False, True, True]
    assert [turn.truncation_reason for turn in results.trajectories[2].turns] == ["timeout"]
    assert len(OpenCorridor.seen) == 2, "the others were played again in another thread"


@pytest.mark.parametrize("times", [1, 2])
def test_an_error_is_retried_in_a_fresh_world(gate: Any, times: int) -> None:
    raised: list[int] = []

    def fail(env: OpenCorridor) -> None:
        if env._outer_seed == 1 and len(raised) < times:
            raised.append(1)
            raise ServerError("the server is gone")

    gate(fail)
    results = collect(jobs(3), ExpertPolicy, settings=CrewSettings(workers=3, retries=1))
    assert [t.seed for t in results.trajectories] == ([0, 1, 2] if times == 1 else [0, 2])
    assert [(f.kind, f.detail) for f in results.failures] == (
        [] if times == 1 else [("error", "ServerError: the server is gone")]
    )
    assert OpenCorridor.closed.count(1) >= times


def test_requests_to_a_model_are_waited_for_together_in_one_thread(gate: Any) -> None:
    together = threading.Barrier(12)

    def answer(n: int, body: dict[str, Any]) -> dict[str, Any]:
        if n < together.parties:
            together.wait(30)
        return completion("right")

    gate(lambda env: None)
    with Stub(answer).running() as stub:
        factory = EndpointFactory(EndpointSettings(url=stub.url, model="m"))
        try:
            results = list(threads(jobs(12), factory, CrewSettings(workers=12, stall_s=60)))
        finally:
            factory.close()
    assert all(isinstance(result, Played) and result.trajectory.success for result in results)
    assert len(OpenCorridor.seen) == 1


class Thoughtful(ExpertPolicy):
    """A subclass: whatever it waits for, it does not say so."""


def test_what_does_not_say_how_it_waits_has_a_thread_of_its_own(gate: Any) -> None:
    meeting = threading.Barrier(4)

    def meet(env: OpenCorridor) -> None:
        if env.at == 0:
            meeting.wait(30)

    gate(meet)
    results = list(threads(jobs(4), Thoughtful, CrewSettings(workers=4, stall_s=60)))
    assert sum(isinstance(result, Played) for result in results) == 4
    assert len(OpenCorridor.seen) == 4
    assert not waiting.waits_openly(Thoughtful())
    assert waiting.waits_openly(ExpertPolicy())
    assert not waiting.waits_openly(Corridor())


def test_leaving_early_ends_the_episodes_where_they_wait(gate: Any) -> None:
    never: Future[None] = Future()
    begun, ended = threading.Semaphore(0), threading.Semaphore(0)

    def wait(env: OpenCorridor) -> None:
        if env._outer_seed:
            begun.release()
            try:
                waiting.result(never)
            except Stopped:
                ended.release()
                raise

    gate(wait)
    results = threads(jobs(8), ExpertPolicy, CrewSettings(workers=4, stall_s=60))
    first = next(results)
    assert all(begun.acquire(timeout=10) for _ in range(3))
    results.close()  # type: ignore[attr-defined]
    assert first.job.seed == 0
    assert all(ended.acquire(timeout=10) for _ in range(3))


def test_a_job_that_can_not_be_made_is_a_failure_of_its_own() -> None:
    broken = Job(0, "rollout_toys:test/OpenCorridor-v0", settings={"nonsense": 1})
    good = jobs(2)[1]
    results = {result.job.index: result for result in threads([broken, good], ExpertPolicy, CrewSettings(workers=1))}
    assert isinstance(results[0], Failed)
    assert "nonsense" in results[0].detail
    assert isinstance(results[1], Played)


def test_waiting_in_an_ordinary_thread_just_waits() -> None:
    done: Future[int] = Future()
    threading.Timer(0.01, done.set_result, [5]).start()
    assert waiting.result(done) == 5
    failed: Future[int] = Future()
    failed.set_exception(ServerError("no"))
    with pytest.raises(ServerError, match="no"):
        waiting.result(failed)


def test_what_one_asks_for_is_sent_before_all_others_have_gone_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else all that were ready together wait from the end of the last one's turn, and stay together for ever."""
    monkeypatch.setattr(crews_juggler, "BETWEEN_S", 0.0)
    juggler, said, ended = Juggler(), list[str](), threading.Semaphore(0)

    async def send(i: int) -> None:
        said.append(f"sent {i}")

    def ask(i: int) -> None:
        said.append(f"asked {i}")
        loop.run(send(i))
        ended.release()

    def ask_together() -> None:
        for i in range(20):
            juggler.start(partial(ask, i))

    juggler.loop.call_soon_threadsafe(ask_together)
    for _ in range(20):
        assert ended.acquire(timeout=10)
    juggler.close()
    # At most one more has asked by the time that a request is sent.
    assert all(said.index(f"sent {i}") <= said.index(f"asked {i + 2}") for i in range(18))


def test_work_that_breaks_ends_alone_and_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", shown.append)
    juggler = Juggler()
    after: Future[str] = Future()

    def broken() -> None:
        raise SystemError("of its own")

    juggler.start(broken)
    juggler.start(lambda: after.set_result("went on"))
    juggler.close()
    assert after.result(10) == "went on"
    assert [str(error.exc_value) for error in shown] == ["of its own"]


def test_mcp_episodes_over_both_transports_are_those_played_alone() -> None:
    def job(index: int, transport: str) -> Job:
        settings = {"servers": ["people"], "transport": transport, "max_turns": 4}
        return Job(index, "toolverse/MCP-v0", seed=index // 2, settings=settings)

    mixed = [job(0, "in_process"), job(1, "stdio"), job(2, "stdio"), job(3, "in_process")]
    together = list(threads(mixed, ExpertPolicy, CrewSettings(workers=3, stall_s=120)))
    assert all(isinstance(result, Played) and result.trajectory.success for result in together)
    found = episodes(iter(together))
    with contextlib.closing(make_chat_env("MCP", servers=["people"], max_turns=4)) as env:
        alone = [
            Played(one, play(env, ExpertPolicy(), seed=one.seed, metadata={"job": one.index, "attempt": 0}))
            for one in mixed
        ]
    assert found == episodes(iter(alone))


def test_an_episode_alone_is_the_same_as_in_a_crew() -> None:
    (result,) = threads(jobs(1), NOISY, CrewSettings(workers=1))
    assert isinstance(result, Played)
    alone: TokenTrajectory = play(OpenCorridor(max_turns=12), NOISY(), seed=0, metadata={"job": 0, "attempt": 0})
    assert [turn.action for turn in alone.turns] == [turn.action for turn in result.trajectory.turns]
