"""Episodes that don't wait for one another: the messages are those of playing in step, and nothing is read twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from learner_kit import random_language_model, random_tokenizer, small_recipe  # noqa: E402

from toolverse.learner.play import Arena  # noqa: E402
from toolverse.learner.policy import PolicyModel  # noqa: E402
from toolverse.learner.pretrained import PretrainedModel, PretrainedTokenizer  # noqa: E402
from toolverse.learner.sampler import Sampler, choose, pad, uniforms  # noqa: E402
from toolverse.learner.slots import SlotCache  # noqa: E402
from toolverse.rollout.tokens import TokenTrajectory  # noqa: E402

TOKENIZER = PretrainedTokenizer(tokenizer=random_tokenizer())
SEEDS = [3, 3, 8, 8, 9]


class Brief(PretrainedModel):
    """Ends its messages now and then; steps have the shapes that a GPU would see if `fixed`."""

    fixed = True

    def logits(self, hidden: Any) -> Any:
        out = super().logits(hidden).clone()
        out[:, TOKENIZER.end] += 4.0
        return out

    def cache(self, rows: int, capacity: int) -> SlotCache:
        trunk = super().cache(rows, capacity).trunk
        self.slots = SlotCache(trunk, rows, capacity, self.device, fixed=self.fixed)
        return self.slots


def play(
    rendering: Any, *, width: int = 5, streams: bool = True, fixed: bool = True, temperature: float = 1.0
) -> tuple[list[TokenTrajectory], PolicyModel, dict[int, list[int]]]:
    net = Brief.wrap(random_language_model(len(random_tokenizer())))
    net.fixed = fixed
    model = PolicyModel(net, "none")
    recipe = small_recipe(env__settings={"boxes": 1, "size": [5, 5], "min_pushes": 1, "max_turns": 4})
    arena = Arena(recipe, held_out=False, width=width)
    sampler = Sampler(
        model, TOKENIZER, rendering, temperature=temperature, max_new_tokens=12, seed=1, first=7, streams=streams
    )
    played = arena.play(sampler, SEEDS)
    contexts = arena.closing_contexts(sampler, played)
    arena.close()
    return played, model, contexts


def said(played: Sequence[TokenTrajectory]) -> list[list[tuple[int, ...]]]:
    return [[turn.tokens.sampled_ids for turn in trajectory.turns if turn.tokens] for trajectory in played]


@pytest.mark.parametrize("rendering", ["append_only", "windowed"])
def test_what_an_episode_says_does_not_depend_on_how_it_is_played(rendering: str) -> None:
    in_step, _, contexts = play(rendering, streams=False, fixed=False)
    assert len({len(ids) for turns in said(in_step) for ids in turns}) > 3, "messages are of different lengths"
    assert max(len(t.turns) for t in in_step) > 2
    assert contexts
    for width, fixed in ((5, True), (2, True), (2, False), (1, True)):
        played, _, found = play(rendering, width=width, fixed=fixed)
        assert said(played) == said(in_step)
        assert found == contexts
        assert [t.group_id for t in played] == [str(seed) for seed in SEEDS]
        for one, other in zip(played, in_step, strict=True):
            for a, b in zip(one.turns, other.turns, strict=True):
                assert a.tokens is not None
                assert b.tokens is not None
                assert a.tokens.context_ids == b.tokens.context_ids
                assert a.tokens.logprobs == pytest.approx(b.tokens.logprobs, abs=1e-5)


@pytest.mark.parametrize("temperature", [1.0, 0.0])
@pytest.mark.parametrize("rendering", ["append_only", "windowed"])
def test_every_token_is_what_reading_the_whole_path_afresh_would_have_sampled(
    rendering: str, temperature: float
) -> None:
    played, model, _ = play(rendering, width=3, temperature=temperature)
    net = model.backbone
    for number, trajectory in enumerate(played):
        path: list[int] = []
        drawn = 0
        for turn in trajectory.turns:
            assert turn.tokens is not None
            path = [*([] if turn.tokens.restart else path), *turn.tokens.context_ids]
            for token, logp in zip(turn.tokens.sampled_ids, turn.tokens.logprobs, strict=True):
                at = torch.tensor([len(path) - 1])
                with torch.no_grad():
                    logits = net.logits(net.hidden(pad([path]), torch.tensor([0]), at, at + 1))
                uniform = uniforms(1, *(torch.tensor([x]).numpy() for x in (7 + number, drawn)))
                chosen, own = choose(logits, temperature, torch.from_numpy(uniform) if temperature else None)
                assert int(chosen) == token
                assert float(own) == pytest.approx(logp, abs=1e-4)
                path.append(token)
                drawn += 1


def test_an_append_only_episode_reads_no_token_twice() -> None:
    played, model, _ = play("append_only")
    turns = [turn.tokens for trajectory in played for turn in trajectory.turns if turn.tokens]
    context, sampled = sum(len(t.context_ids) for t in turns), sum(len(t.sampled_ids) for t in turns)
    slots = model.backbone.slots
    # An episode's last sampled token is never read.
    assert slots.fed + slots.stepped == context + sampled - len(played)
    # A message's last token is read together with the answer to it.
    assert slots.stepped == sampled - len(turns)
    assert slots.fed == context + len(turns) - len(played)


def test_slots_are_for_models_that_sample_here() -> None:
    from toolverse.errors import InvalidInputError

    with pytest.raises(InvalidInputError, match="slots"):
        small_recipe(policy__slots=2)
