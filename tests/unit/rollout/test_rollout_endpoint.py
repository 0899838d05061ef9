"""A server that streams, stalls, returns 429 and 500, malformed JSON and half a tool call: all handled and counted."""

import asyncio
import json
import pickle
import threading
from collections.abc import AsyncIterator
from typing import Any

import gymnasium
import pytest
from rollout_stub import Script, Stub, chunks, completion
from rollout_toys import Echo

import toolverse  # noqa: F401  (registers the ids)
from toolverse.errors import InvalidInputError, ServerError
from toolverse.rollout import play
from toolverse.rollout.endpoint import Endpoint, EndpointPolicy, EndpointSettings
from toolverse.rollout.policies import EndpointFactory, make_policy
from toolverse.rollout.tokens import TokenTrajectory
from toolverse.rollout.wire import NameMap, WireError, events, read_answer
from toolverse.types import ToolCall

BOARD = "######\n#@ $.#\n######"


async def no_wait(seconds: float) -> None:
    """Tries follow one another at once."""


def sokoban(script: Script, **settings: Any) -> tuple[TokenTrajectory, Endpoint, Stub, list[float]]:
    waits: list[float] = []

    async def wait(seconds: float) -> None:
        waits.append(seconds)

    with Stub(script).running() as stub:
        endpoint = Endpoint(EndpointSettings(url=stub.url, model="m", **settings), sleep=wait)
        env = gymnasium.make("toolverse/Sokoban-v0", level=BOARD, max_turns=5)
        try:
            return play(env, EndpointPolicy(endpoint), seed=3), endpoint, stub, waits
        finally:
            endpoint.close()


def echo(script: Script, **settings: Any) -> tuple[TokenTrajectory, Endpoint, Stub]:
    with Stub(script).running() as stub:
        endpoint = Endpoint(EndpointSettings(url=stub.url, model="m", **settings), sleep=no_wait)
        try:
            return play(Echo(max_turns=4), EndpointPolicy(endpoint)), endpoint, stub
        finally:
            endpoint.close()


def test_a_plain_server_plays_an_episode_and_its_tokens_are_counted() -> None:
    trajectory, endpoint, stub, waits = sokoban(lambda n, body: completion("right"))
    assert trajectory.success
    assert dict(endpoint.counts) == {"requests": 2, "answers": 2, "prompt_tokens": 20, "completion_tokens": 6}
    assert trajectory.completion_tokens() == 6
    assert [m["role"] for m in stub.bodies[1]["messages"]] == ["system", "user", "assistant", "user"]
    assert (trajectory.policy, waits) == ("m", [])
    assert all(turn.policy_latency_s is not None for turn in trajectory.turns)


def test_a_stream_gives_the_same_episode() -> None:
    whole = sokoban(lambda n, body: completion("right"))[0]
    streamed, endpoint, stub, _ = sokoban(lambda n, body: chunks("right"), stream=True)
    strip = {"latency_s": True, "policy_latency_s": True}
    fields = {"turns": {"__all__": strip}}
    assert streamed.model_dump(exclude=fields) == whole.model_dump(exclude=fields)
    assert stub.bodies[0]["stream_options"] == {"include_usage": True}
    assert endpoint.counts["completion_tokens"] == 6


def test_every_kind_of_trouble_is_retried_and_counted_and_nothing_is_lost() -> None:
    release = threading.Event()
    trouble: list[Any] = [
        ("status", 429, "slow down", {"Retry-After": "7"}),
        500,
        b'{"choices": [{"mess',
        b"<html>gateway</html>",
        ("cut", chunks("ri", finish=None)),
        ["data: {nonsense\n\n"],
        ("stall", release),
        completion("right"),
    ]
    try:
        trajectory, endpoint, _, waits = sokoban(
            lambda n, body: trouble[n] if n < len(trouble) else completion("right"), retries=7, stall_s=0.2
        )
    finally:
        release.set()
    assert trajectory.success
    assert {k: v for k, v in endpoint.counts.items() if k.startswith("retr")} == {
        "retries": 7,
        "retry_busy": 1,
        "retry_server": 1,
        "retry_malformed": 4,
        "retry_stall": 1,
    }
    assert (endpoint.counts["requests"], endpoint.counts["answers"]) == (9, 2)
    assert waits[0] == 7.0
    growing = [wait / 0.5 / 2**i for i, wait in enumerate(waits) if 0 < i < 6]
    assert all(0.75 <= share <= 1.25 for share in growing)


def test_a_server_that_stays_broken_is_an_error_of_the_infrastructure() -> None:
    with pytest.raises(ServerError, match="no usable answer in 3 tries; the last problem: HTTP 500"):
        sokoban(lambda n, body: 500, retries=2)
    with pytest.raises(ServerError, match=r"HTTP 401.*\$OPENAI_API_KEY"):
        sokoban(lambda n, body: 401)


def test_nobody_there_is_retried_and_then_said() -> None:
    endpoint = Endpoint(EndpointSettings(url="http://127.0.0.1:9/v1", model="m", retries=1), sleep=no_wait)
    with pytest.raises(ServerError, match="in 2 tries"):
        endpoint.ask([], [])
    assert endpoint.counts["retry_connection"] == 1
    endpoint.close()


def test_a_full_context_truncates_the_episode_and_keeps_what_was_played() -> None:
    full = ("status", 400, "This model's maximum context length is 10 tokens", {})
    trajectory, *_ = sokoban(lambda n, body: completion("right") if n == 0 else full)
    assert [turn.truncation_reason for turn in trajectory.turns] == [None, "context_full"]


def test_a_message_cut_by_its_limit_is_a_truncation_and_no_parse_error() -> None:
    def script(n: int, body: dict[str, Any]) -> Any:
        return completion("right") if n == 0 else completion("I think that", finish="length")

    trajectory, endpoint, *_ = sokoban(script)
    assert trajectory.turns[-1].truncation_reason == "max_tokens"
    assert (trajectory.turns[-1].parse_error, trajectory.turns[-1].reward) == (None, 0.0)
    assert trajectory.turns[-1].action == "I think that"
    assert endpoint.counts["cut_messages"] == 1


def test_tool_calls_keep_their_ids_and_odd_names_find_their_way_back() -> None:
    def script(n: int, body: dict[str, Any]) -> Any:
        name = body["tools"][0]["function"]["name"]
        return completion(None, calls=[(name, '{"to": [1, {"a": null}]}')] if n == 0 else [("finish", "")])

    trajectory, _, stub = echo(script)
    assert trajectory.success
    assert trajectory.turns[0].tool_calls == (
        ToolCall(name="say.hello/now", arguments={"to": [1, {"a": None}]}, id="c0"),
    )
    sent = stub.bodies[1]["messages"]
    assert sent[-2]["tool_calls"][0]["function"]["arguments"] == '{"to": [1, {"a": null}]}'
    assert sent[-1]["tool_call_id"] == "c0"
    assert "." not in sent[-2]["tool_calls"][0]["function"]["name"]
    assert trajectory.chat()[2]["tool_calls"][0]["function"]["name"] == "say.hello/now"


def test_half_a_tool_call_reaches_the_environment_as_a_parse_error() -> None:
    def script(n: int, body: dict[str, Any]) -> Any:
        return chunks(
            "", calls=[("finish", ['{"a"', ": "])] if n == 0 else [("finish", ["{", "}"])], finish="tool_calls"
        )

    trajectory, endpoint, _ = echo(script, stream=True)
    assert [turn.parse_error for turn in trajectory.turns] == ["malformed_tool_call", None]
    assert '{"a": ' in trajectory.turns[0].action
    assert endpoint.counts["bad_tool_calls"] == 1
    assert trajectory.success


def test_a_call_written_as_text_is_a_call_and_its_result_is_matched_to_it() -> None:
    said = 'Done.\n<tool_call>\n{"name": "finish", "arguments": {}}\n</tool_call>'
    trajectory, *_ = echo(lambda n, body: completion(said))
    assert trajectory.success
    assert trajectory.chat()[-1]["tool_call_id"] == trajectory.chat()[-2]["tool_calls"][0]["id"]


def test_reasoning_is_kept_in_the_record_and_not_sent_back() -> None:
    def script(n: int, body: dict[str, Any]) -> Any:
        answer = completion("right")
        answer["choices"][0]["message"]["reasoning_content"] = "hm"
        return answer

    trajectory, _, stub, _ = sokoban(script)
    assert trajectory.chat()[2]["reasoning_content"] == "hm"
    assert "reasoning_content" not in json.dumps(stub.bodies[1])


@pytest.mark.parametrize(
    ("dialect", "extra", "asked"),
    [
        ("vllm", {"prompt_token_ids": None, "choice": {"token_ids": [7, 8]}}, "return_token_ids"),
        (
            "sglang",
            {
                "choice": {
                    "prompt_token_ids": None,
                    "meta_info": {"output_token_logprobs": [[-1.0, 7, "a"], [-2.0, 8, "b"]]},
                }
            },
            "return_prompt_token_ids",
        ),
    ],
)
def test_exact_ids_are_taken_from_each_dialect_and_the_prefix_is_checked(
    dialect: Any, extra: dict[str, Any], asked: str
) -> None:
    prompts = [[1, 2, 3], [1, 2, 3, 7, 8, 4], [1, 9, 9, 9]]

    def fill(part: Any, n: int) -> Any:
        if isinstance(part, dict):
            return {k: prompts[n] if k == "prompt_token_ids" else fill(v, n) for k, v in part.items()}
        return part

    def script(n: int, body: dict[str, Any]) -> Any:
        logprobs = {"content": [{"logprob": -1.0}, {"logprob": -2.0}]}
        choice = {"logprobs": logprobs, **fill(extra, n).get("choice", {})}
        return completion("left", choice=choice, **{k: v for k, v in fill(extra, n).items() if k != "choice"})

    with Stub(script).running() as stub:
        endpoint = Endpoint(EndpointSettings(url=stub.url, model="m", dialect=dialect, logprobs=True))
        trajectory = play(gymnasium.make("toolverse/Sokoban-v0", level=BOARD, max_turns=3), EndpointPolicy(endpoint))
        endpoint.close()
    assert stub.bodies[0][asked] is True
    tokens = [turn.tokens for turn in trajectory.turns]
    assert [t.restart for t in tokens if t] == [True, False, True]
    assert [t.context_ids for t in tokens if t] == [(1, 2, 3), (4,), (1, 9, 9, 9)]
    assert {t.logprobs for t in tokens if t} == {(-1.0, -2.0)}


def test_llama_cpp_tells_ids_with_the_log_probabilities() -> None:
    body = completion("a", choice={"logprobs": {"content": [{"id": 5, "logprob": -0.5}]}})
    assert read_answer(json.dumps(body)).token_ids == (5,)


def test_sglang_is_not_asked_for_ids_while_streaming() -> None:
    *_, stub, _ = sokoban(lambda n, body: chunks("right"), dialect="sglang", logprobs=True, stream=True)
    assert "return_token_ids" not in stub.bodies[0]


def test_the_key_goes_into_the_header_and_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "s3cret-value")
    trajectory, endpoint, stub, _ = sokoban(lambda n, body: completion("right"), api_key_env="MY_KEY")
    assert stub.headers[0]["Authorization"] == "Bearer s3cret-value"
    assert "s3cret" not in trajectory.model_dump_json() + repr(endpoint.settings) + json.dumps(stub.bodies)


def test_names_that_only_differ_in_bad_characters_stay_apart() -> None:
    tools = [{"type": "function", "function": {"name": name}} for name in ("a.b", "a/b", "a_b", "x" * 80)]
    names = NameMap(tools)
    sent = [names.out(tool["function"]["name"]) for tool in tools]
    assert len(set(sent)) == 4
    assert all(len(name) <= 64 for name in sent)
    assert [names.back(name) for name in sent] == [tool["function"]["name"] for tool in tools]
    assert sent[2] == "a_b"


def test_requests_carry_seeds_that_depend_on_episode_and_turn_only() -> None:
    seeds = [
        [body["seed"] for body in sokoban(lambda n, body: completion("right"), seed=1)[2].bodies] for _ in range(2)
    ]
    assert seeds[0] == seeds[1]
    assert len(set(seeds[0])) == 2


def test_event_lines_are_joined_and_comments_skipped() -> None:
    async def read() -> list[str]:
        async def lines() -> AsyncIterator[str]:
            for line in (": ping", "data: a", "data: b", "", "event: x", "data:c"):
                yield line

        return [event async for event in events(lines())]

    assert asyncio.run(read()) == ["a\nb", "c"]
    with pytest.raises(WireError, match="no chat completion"):
        read_answer("[]")


def test_a_policy_is_named_on_the_command_line_and_its_factory_crosses_processes() -> None:
    factory = make_policy("http://localhost:1/v1", endpoint=EndpointSettings(url="http://x", model="m"))
    assert isinstance(factory, EndpointFactory)
    assert pickle.loads(pickle.dumps(factory)).settings == factory.settings
    assert factory().name == "m"
    assert make_policy("noisy:0.25")().name == "noisy-0.25"
    for wrong in ("nobody", "noisy:x", "noisy:2", "http://localhost"):
        with pytest.raises(InvalidInputError):
            make_policy(wrong)()
    with pytest.raises(InvalidInputError, match="dialect"):
        EndpointSettings(url="http://x", model="m", dialect="x")  # type: ignore[arg-type]
