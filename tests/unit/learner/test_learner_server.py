"""A server samples: ids go out, ids come back, and adapters follow the learner. The server is a stub with a real model inside."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from learner_kit import random_language_model, random_tokenizer, small_recipe  # noqa: E402
from rollout_stub import Stub  # noqa: E402

from toolverse.errors import InvalidInputError, ServerError  # noqa: E402
from toolverse.learner import checkpoint  # noqa: E402
from toolverse.learner.play import Arena, panel_seeds  # noqa: E402
from toolverse.learner.recipe import Recipe  # noqa: E402
from toolverse.learner.train import evaluate_run, resume_run, train_recipe  # noqa: E402
from toolverse.rollout.files import read_trajectories  # noqa: E402


class Served:
    """What a vLLM server does with a base model and adapters that it is told to load."""

    def __init__(self, vocabulary: int, end: int) -> None:
        self.vocabulary, self.end = vocabulary, end
        self.loaded: dict[str, Any] = {}
        self.asked: list[str] = []
        self._one_at_a_time = threading.Lock()

    def __call__(self, number: int, body: dict[str, Any]) -> Any:
        with self._one_at_a_time:
            if "lora_path" in body:
                from peft import PeftModel

                base = random_language_model(self.vocabulary)
                self.loaded[body["lora_name"]] = PeftModel.from_pretrained(base, body["lora_path"])
                return b"Success: LoRA adapter added."
            if "lora_name" in body:
                return b"Success" if self.loaded.pop(body["lora_name"], None) is not None else 404
            self.asked.append(body["model"])
            return self._completion(body)

    @torch.no_grad()
    def _completion(self, body: dict[str, Any]) -> dict[str, Any]:
        assert body["return_token_ids"]
        assert body["logprobs"] == 1
        model, ids, logprobs = self.loaded[body["model"]], list(body["prompt"]), []
        random = torch.Generator().manual_seed(body["seed"])
        while len(logprobs) < body["max_tokens"]:
            logp = torch.log_softmax(model(torch.tensor([ids])).logits[0, -1].float(), -1)
            ids.append(int(torch.multinomial(logp.exp(), 1, generator=random)))
            logprobs.append(float(logp[ids[-1]]))
            if ids[-1] in body["stop_token_ids"]:
                break
        choice = {
            "text": "not what is trained on",
            "token_ids": ids[len(body["prompt"]) :],
            "logprobs": {"token_logprobs": logprobs},
            "finish_reason": "stop" if ids[-1] == self.end else "length",
        }
        return {"choices": [choice]}


@pytest.fixture
def model_folder(tmp_path: Path) -> Path:
    tokenizer = random_tokenizer()
    tokenizer.save_pretrained(tmp_path / "model")
    random_language_model(len(tokenizer)).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def recipe(folder: Path, url: str, **changes: Any) -> Recipe:
    return small_recipe(
        policy__model=str(folder),
        policy__lora=2,
        policy__sampler=url,
        policy__served_model="base",
        policy__rendering="append_only",
        policy__critic="none",
        credit__estimator="grpo",
        credit__settings={},
        group_size=4,
        env__settings={"boxes": 1, "size": [5, 5], "min_pushes": 1, "max_turns": 2},
        clone__episodes=0,
        update__learning_rate=0.05,
        held_out_episodes=2,
        **changes,
    )


def served(folder: Path, answer: Callable[[dict[str, Any]], Any] = lambda body: body) -> tuple[Served, Stub]:
    tokenizer = random_tokenizer()
    server = Served(len(tokenizer), int(tokenizer.eos_token_id))

    def script(number: int, body: dict[str, Any]) -> Any:
        found = server(number, body)
        return answer(found) if isinstance(found, dict) else found

    return server, Stub(script)


def test_adapters_follow_the_learner(model_folder: Path, tmp_path: Path) -> None:
    server, stub = served(model_folder)
    with stub.running():
        train_recipe(recipe(model_folder, stub.url), tmp_path / "run", stop_after=1)
        resume_run(tmp_path / "run")
    lines = checkpoint.read_metrics(tmp_path / "run" / "metrics.jsonl")
    # The server's log-probabilities under the adapters it was given are the learner's own.
    assert [line["sampler_gap"] < 1e-4 for line in lines] == [True, True]
    assert lines[0]["grad_norm"] > 0
    assert list(dict.fromkeys(server.asked)) == ["update-000000", "update-000001", "update-000002"]
    assert list(server.loaded) == ["update-000002"]


def without(*keys: str) -> Callable[[dict[str, Any]], Any]:
    return lambda found: {"choices": [{k: v for k, v in found["choices"][0].items() if k not in keys}]}


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (without("token_ids"), "returns no token ids"),
        (without("logprobs"), "returns no log-probabilities"),
        (
            lambda found: {"choices": [{**found["choices"][0], "finish_reason": "stop", "token_ids": [5, 6, 7]}]},
            "end token",
        ),
    ],
    ids=["text only", "no logprobs", "end token left out"],
)
def test_a_server_that_does_not_say_what_it_sampled_is_refused(
    answer: Callable[[dict[str, Any]], Any], problem: str, model_folder: Path, tmp_path: Path
) -> None:
    _, stub = served(model_folder, answer)
    with stub.running(), pytest.raises(ServerError, match=problem):
        train_recipe(recipe(model_folder, stub.url), tmp_path / "run")
    assert json.loads((tmp_path / "run" / "recipe.json").read_text())["name"] == "small"


def test_a_server_that_loads_no_adapters_is_told_apart(model_folder: Path, tmp_path: Path) -> None:
    with Stub(lambda number, body: 404).running() as stub, pytest.raises(ServerError, match="--enable-lora"):
        train_recipe(recipe(model_folder, stub.url), tmp_path / "run")


def test_a_crew_plays_the_episodes_that_one_process_would_have_logged(model_folder: Path, tmp_path: Path) -> None:
    _, stub = served(model_folder)
    with stub.running():
        found = recipe(model_folder, stub.url, policy__workers="threads", policy__parallel=2, updates=1)
        train_recipe(found, tmp_path / "run")
        (line,) = checkpoint.read_metrics(tmp_path / "run" / "metrics.jsonl")
        assert line["sampler_gap"] < 1e-4
        again = recipe(model_folder, stub.url, policy__workers="threads", policy__parallel=1, updates=1)
        train_recipe(again, tmp_path / "again")
    one, other = (list(read_trajectories(tmp_path / name)) for name in ("run", "again"))
    assert len(one) == 8
    assert [[t.action for t in x.turns] for x in one] == [[t.action for t in x.turns] for x in other]
    assert len({x.turns[0].action for x in one if x.group_id == one[0].group_id}) > 1, "attempts of a group differ"


def test_a_crew_plays_the_panel_too(model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_envs(self: Arena) -> None:
        raise AssertionError("this process steps an environment")

    monkeypatch.setattr(Arena, "envs", property(no_envs))
    server, stub = served(model_folder)
    with stub.running():
        changes = {"policy__workers": "threads", "updates": 1, "evaluate_every": 1, "evaluate_episodes": 3}
        result = train_recipe(recipe(model_folder, stub.url, **changes), tmp_path / "run")
        asked = len(server.asked)
        again = evaluate_run(tmp_path / "run")
        likeliest = evaluate_run(tmp_path / "run", episodes=4, temperature=0.0)
    assert server.asked[asked:] == ["update-000001"] * (len(server.asked) - asked)
    assert again["success"] == result["success_end"]
    assert (likeliest["episodes"], likeliest["temperature"]) == (4, 0.0)
    panel = list(read_trajectories(tmp_path / "run" / "eval.jsonl"))
    assert [t.seed for t in panel[-2:]] == panel_seeds(2)


def test_a_crew_needs_a_server() -> None:
    with pytest.raises(InvalidInputError, match="server"):
        small_recipe(policy__workers="threads")


def test_a_server_needs_adapters() -> None:
    with pytest.raises(InvalidInputError, match="lora"):
        small_recipe(policy__sampler="http://localhost:1/v1")


def test_what_workers_are_given_pickles(model_folder: Path) -> None:
    import pickle

    from toolverse.learner.server import ServerPolicies
    from toolverse.rollout.endpoint import EndpointSettings
    from toolverse.rollout.policies import EndpointFactory

    settings = EndpointSettings(url="http://localhost:1/v1", model="base", dialect="vllm")
    template = small_recipe().prompt.template()
    made = ServerPolicies(EndpointFactory(settings), str(model_folder), "windowed", template, "update-000001", 7)
    back = pickle.loads(pickle.dumps(made))
    assert back.endpoints.settings == settings
    assert (back.tokenizer, back.template, back.model, back.seed) == (made.tokenizer, template, made.model, 7)
    assert back().name == "policy"
