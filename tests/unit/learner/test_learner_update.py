"""The update step: what must change a gradient, and what must not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from toolverse.credit import Batch, Loss, estimate, names  # noqa: E402
from toolverse.credit.axes import aggregate, denominators, log_ratios, policy_loss  # noqa: E402
from toolverse.errors import InvalidInputError  # noqa: E402
from toolverse.learner.micro import micro_batches  # noqa: E402
from toolverse.learner.policy import PolicyModel  # noqa: E402
from toolverse.learner.rows import ACTION, OTHER, SUBGOAL, SWITCH, Rows, make_batch, make_rows  # noqa: E402
from toolverse.learner.tiny import TinyConfig, TinyModel  # noqa: E402
from toolverse.learner.tokenizer import WordTokenizer  # noqa: E402
from toolverse.learner.update import (  # noqa: E402
    LossDivergedError,
    Plan,
    UpdateSettings,
    adapt_kl,
    less_kl,
    make_plan,
    read,
    update,
    with_values,
)
from toolverse.rollout.tokens import TokenTrajectory, TokenTurn, TurnTokens  # noqa: E402

TOKENIZER = WordTokenizer()
HIPER = "<switch>{}</switch><subgoal>{}</subgoal><action>{}</action>"


def played(
    texts: list[list[str]], rewards: list[list[float]], *, windowed: bool, prompt: str = "bare"
) -> list[TokenTrajectory]:
    """Trajectories that say the given messages; the last turn ends the episode."""
    out = []
    for number, (said, earned) in enumerate(zip(texts, rewards, strict=True)):
        turns = []
        for t, (text, reward) in enumerate(zip(said, earned, strict=True)):
            tokens = TurnTokens(
                context_ids=tuple(TOKENIZER.encode(f"you see {number} and {t} here")),
                sampled_ids=(*TOKENIZER.encode(text), TOKENIZER.end),
                restart=windowed or t == 0,
            )
            turns.append(
                TokenTurn(
                    index=t,
                    parent=t - 1 if t else None,
                    action=text,
                    reward=reward,
                    terminated=t == len(said) - 1,
                    tokens=tokens,
                    is_boundary="SWITCH" in text or t == 0,
                    subgoal="shelf" if "subgoal" in text else None,
                )
            )
        out.append(TokenTrajectory(env_id="test", group_id="g", prompt=prompt, turns=tuple(turns)))
    return out


def bare(windowed: bool = True) -> list[TokenTrajectory]:
    return played(
        [["go left", "take it now", "drop"], ["go", "look around the room"], ["wait"]],
        [[0.0, 0.5, 1.0], [0.0, -0.2], [0.3]],
        windowed=windowed,
    )


def hierarchical() -> list[TokenTrajectory]:
    said = [
        [HIPER.format("SWITCH", "shelf", "go left"), HIPER.format("KEEP", "shelf", "take it")],
        [HIPER.format("SWITCH", "shelf", "wait"), HIPER.format("SWITCH", "table", "go")],
    ]
    return played(said, [[0.0, 1.0], [0.0, 0.0]], windowed=True, prompt="hiper")


def policy(critic: Any = "shared", seed: int = 0) -> PolicyModel:
    torch.manual_seed(seed)
    model = PolicyModel(TinyModel(TinyConfig(96, width=16, layers=2, heads=2)), critic)
    with torch.no_grad():
        model.heads.weight.normal_(std=0.1)
    return model


def prepared(
    model: PolicyModel,
    trajectories: list[TokenTrajectory],
    settings: UpdateSettings,
    estimator: str = "gae",
    **options: Any,
) -> tuple[Rows, Batch, Plan]:
    rows = make_rows(trajectories, TOKENIZER)
    words = (TOKENIZER.encode("KEEP")[0], TOKENIZER.encode("SWITCH")[0])
    reading = read(model, rows, switch_words=words, token_values=True)
    batch = with_values(make_batch(trajectories, rows), rows, reading, np.zeros((len(trajectories), 3)))
    result = estimate(estimator, batch, **options)
    return rows, batch, make_plan(result, rows, reading, settings)


def gradients(
    model: PolicyModel, rows: Rows, batch: Batch, plan: Plan, settings: UpdateSettings
) -> dict[str, torch.Tensor]:
    """The gradient of the first (and only) step: a step of SGD with rate 1 and no clipping is minus the gradient."""
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    update(model, torch.optim.SGD(model.parameters(), lr=1.0), rows, batch, plan, settings, seed=0)
    return {name: before[name] - p.detach() for name, p in model.named_parameters()}


ONE_STEP: dict[str, Any] = {"epochs": 1, "minibatches": 1, "max_grad_norm": 1e9, "stop_kl": None}


def close(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return all(torch.allclose(a[name], b[name], atol=1e-6) for name in a)


@pytest.mark.parametrize("aggregation", ["token-mean", "turn-mean-token-mean", "trajectory-mean-token-mean"])
@pytest.mark.parametrize("windowed", [True, False])
def test_micro_batches_do_not_change_the_gradient(aggregation: str, windowed: bool) -> None:
    found = []
    for tokens in (1, 40, 10_000):
        settings = UpdateSettings(**ONE_STEP, microbatch_tokens=tokens, loss={"aggregation": aggregation})
        model = policy()
        rows, batch, plan = prepared(model, bare(windowed), settings)
        plan = replace(plan, old_logp=plan.old_logp - 0.05)
        found.append(gradients(model, rows, batch, plan, settings))
    assert close(found[0], found[1])
    assert close(found[0], found[2])


def test_both_layouts_of_equal_contexts_have_equal_losses() -> None:
    """One row per turn with its whole past as context is the same computation as one row per episode."""
    chain = bare(windowed=False)
    apart = []
    for trajectory in chain:
        turns, past = [], ()
        for turn in trajectory.turns:
            assert turn.tokens is not None
            whole = past + turn.tokens.context_ids
            tokens = turn.tokens.model_copy(update={"context_ids": whole, "restart": True})
            turns.append(turn.model_copy(update={"tokens": tokens}))
            past = whole + turn.tokens.sampled_ids
        apart.append(trajectory.model_copy(update={"turns": tuple(turns)}))
    settings = UpdateSettings(**ONE_STEP)
    one, other = policy(), policy()
    assert close(
        gradients(one, *prepared(one, chain, settings), settings),
        gradients(other, *prepared(other, apart, settings), settings),
    )


def test_tokens_that_the_policy_did_not_produce_carry_no_loss() -> None:
    """Masking a sampled token out removes it from numerator and denominator alike."""
    settings = UpdateSettings(**ONE_STEP, value_coefficient=0.0)
    trajectories = bare()
    masked = []
    for trajectory in trajectories:
        turns = []
        for turn in trajectory.turns:
            assert turn.tokens is not None
            n = len(turn.tokens.sampled_ids)
            mask = (True,) * (n - 1) + (n == 1,)
            turns.append(turn.model_copy(update={"tokens": turn.tokens.model_copy(update={"loss_mask": mask})}))
        masked.append(trajectory.model_copy(update={"turns": tuple(turns)}))
    one, other = policy(), policy()
    rows, batch, plan = prepared(one, trajectories, settings)
    ends = rows.target == TOKENIZER.end
    by_mask = gradients(one, rows, batch, replace(plan, mask=plan.mask & ~ends), settings)
    by_layout = gradients(other, *prepared(other, masked, settings), settings)
    assert close(by_mask, by_layout)


def test_a_token_outside_the_loss_may_have_any_advantage() -> None:
    settings = UpdateSettings(**ONE_STEP)
    found = []
    for wrong in (0.0, 1e6):
        model = policy()
        rows, batch, plan = prepared(model, bare(), settings)
        out = rows.target == TOKENIZER.end
        plan = replace(plan, mask=plan.mask & ~out, advantage=np.where(out, wrong, plan.advantage))
        found.append(gradients(model, rows, batch, plan, settings))
    assert close(*found)


@pytest.mark.parametrize("unit", ["token", "turn", "sequence"])
@pytest.mark.parametrize("aggregation", ["token-mean", "turn-mean-token-mean", "trajectory-mean-token-sum"])
def test_the_policy_loss_is_the_one_of_the_credit_room(unit: Any, aggregation: Any) -> None:
    axes = Loss(ratio_unit=unit, aggregation=aggregation, clip_low=0.1, clip_high=0.3, dual_clip=3.0)
    changes = {
        name: getattr(axes, name) for name in ("ratio_unit", "aggregation", "clip_low", "clip_high", "dual_clip")
    }
    settings = UpdateSettings(**ONE_STEP, loss=changes, value_coefficient=0.0)
    model = policy()
    rows, batch, plan = prepared(model, bare(windowed=False), settings)
    noise = np.random.Generator(np.random.PCG64(1)).normal(scale=0.3, size=rows.tokens)
    plan = replace(plan, old_logp=plan.old_logp + noise)
    told = batch.replace(token_logp_old=plan.old_logp)
    ratios = np.exp(log_ratios(told, unit))
    losses = policy_loss(plan.advantage, ratios, axes)
    expected = aggregate(losses, plan.mask, denominators(told, plan.mask, aggregation))
    found = update(model, torch.optim.SGD(model.parameters(), lr=0.0), rows, batch, plan, settings, seed=0)
    assert found["policy_loss"] == pytest.approx(expected, abs=1e-5)


def test_each_block_gets_the_advantage_that_is_meant_for_it() -> None:
    settings = UpdateSettings()
    model = policy()
    rows, batch, plan = prepared(model, hierarchical(), settings, "hae", gamma=0.9)
    levels = estimate("hae", batch, gamma=0.9).advantages
    segment = np.cumsum(batch.boundary) - 1
    assert set(np.unique(rows.span)) == {OTHER, SWITCH, SUBGOAL, ACTION}
    for kind, expected in (
        (ACTION, levels.low[rows.turn]),
        (SUBGOAL, levels.high[segment[rows.turn]]),
        (SWITCH, levels.switch[rows.turn]),
    ):
        at = rows.span == kind
        assert np.array_equal(plan.advantage[at], expected[at])
    kept = rows.turn == 1  # this turn keeps its subgoal
    assert not plan.mask[kept & (rows.span == SUBGOAL)].any()
    assert plan.mask[kept & (rows.span == SWITCH)].all()
    assert not plan.mask[rows.span == OTHER].any()


def test_a_message_without_an_action_block_is_trained_as_a_whole() -> None:
    trajectories = played(
        [["go left", HIPER.format("SWITCH", "shelf", "go")]], [[0.0, 1.0]], windowed=True, prompt="hiper"
    )
    rows, batch, plan = prepared(policy(), trajectories, UpdateSettings(), "hae")
    low = estimate("hae", batch).advantages.low
    first = rows.turn == 0
    assert plan.mask[first].all()
    assert (plan.advantage[first] == low[0]).all()


def test_the_switch_probability_is_read_inside_the_switch_block() -> None:
    model = policy()
    trajectories = hierarchical()
    rows = make_rows(trajectories, TOKENIZER)
    words = (TOKENIZER.encode("KEEP")[0], TOKENIZER.encode("SWITCH")[0])
    said = [rows.ids[r][c + 1] for r, c in zip(rows.turn_row, rows.switch_column, strict=True)]
    assert said == [words[1], words[0], words[1], words[1]]
    reading = read(model, rows, switch_words=words)
    assert ((reading.switch > 0) & (reading.switch < 1)).all()


def test_hae_needs_messages_with_blocks() -> None:
    with pytest.raises(InvalidInputError, match="hiper"):
        prepared(policy(), bare(), UpdateSettings(), "hae")


def test_a_ratio_over_a_trajectory_needs_it_in_one_row() -> None:
    settings = UpdateSettings(loss={"ratio_unit": "sequence"})
    model = policy()
    with pytest.raises(InvalidInputError, match="append_only"):
        gradients(model, *prepared(model, bare(), settings), settings)


# TARA's rewards are yes or no per turn, which these episodes' are not.
SELF_CONTAINED = [n for n in names() if set(n.method.needs) <= {"values", "token_values"} and n != "tara"]


@pytest.mark.parametrize("estimator", SELF_CONTAINED)
def test_every_estimator_that_needs_no_special_column_trains(estimator: str) -> None:
    settings = UpdateSettings(epochs=1, minibatches=2)
    model = policy()
    rows, batch, plan = prepared(model, bare(windowed=False), settings, estimator)
    found = update(model, torch.optim.AdamW(model.parameters()), rows, batch, plan, settings, seed=0)
    assert all(np.isfinite(value) for value in found.values())


def test_warm_up_leaves_the_policy_alone() -> None:
    settings = UpdateSettings(epochs=1, minibatches=1)
    model = policy("separate")
    rows, batch, plan = prepared(model, bare(), settings)
    before = model.backbone.embedding.weight.detach().clone()
    update(model, torch.optim.AdamW(model.parameters()), rows, batch, plan, settings, seed=0, train_policy=False)
    assert torch.equal(model.backbone.embedding.weight, before)


def test_a_large_step_ends_the_update_early() -> None:
    model = policy()
    settings = UpdateSettings(epochs=5, minibatches=1, stop_kl=1e-4)
    rows, batch, plan = prepared(model, bare(), settings)
    found = update(model, torch.optim.AdamW(model.parameters(), lr=0.1), rows, batch, plan, settings, seed=0)
    assert found["stopped_early"] == 1.0
    assert found["steps"] == 2


def test_a_loss_that_is_not_finite_stops_with_the_weights_as_they_were() -> None:
    model = policy()
    settings = UpdateSettings(**ONE_STEP)
    rows, batch, plan = prepared(model, bare(), settings)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    bad = replace(plan, value_target=np.full_like(plan.value_target, np.inf))
    with pytest.raises(LossDivergedError, match="learning_rate"):
        update(model, torch.optim.AdamW(model.parameters()), rows, batch, bad, settings, seed=0)
    assert all(torch.equal(before[name], p) for name, p in model.named_parameters())


def test_the_reference_kl_pulls_towards_the_reference() -> None:
    """With no advantage, the gradient of the KL term alone raises the tokens that the reference likes better."""
    settings = UpdateSettings(**ONE_STEP, kl_coefficient=1.0, kl_kind="k2", value_coefficient=0.0)
    model = policy()
    rows, batch, plan = prepared(model, bare(), settings)
    target = plan.old_logp + 0.5
    plan = replace(plan, advantage=np.zeros(rows.tokens), reference_logp=target)
    before = read(model, rows).logp
    update(model, torch.optim.SGD(model.parameters(), lr=0.02), rows, batch, plan, settings, seed=0)
    assert read(model, rows).logp.mean() > before.mean()


def test_the_kl_may_be_taken_off_the_rewards() -> None:
    rows, batch, _ = prepared(policy(), bare(), UpdateSettings())
    logp = np.linspace(-2.0, -1.0, rows.tokens)
    found = less_kl(batch, rows, logp, logp - np.arange(rows.tokens), 0.5)
    for turn in range(rows.turns):
        expected = 0.5 * np.arange(rows.tokens)[rows.turn == turn].sum()
        assert batch["rewards"][turn] - found["rewards"][turn] == pytest.approx(expected)
    with_outcome = less_kl(batch.replace(outcome=np.ones(3)), rows, logp, logp - np.arange(rows.tokens), 0.5)
    off = [sum(lost) for lost in np.split(batch["rewards"] - found["rewards"], batch.offsets[1:-1])]
    assert with_outcome["outcome"] == pytest.approx(1.0 - np.array(off))


def test_the_kl_coefficient_follows_its_target() -> None:
    settings = UpdateSettings(kl_target=0.1, kl_horizon=10)
    assert adapt_kl(1.0, 1.0, settings) == pytest.approx(1.02)
    assert adapt_kl(1.0, 0.0, settings) == pytest.approx(0.98)
    assert adapt_kl(1.0, 1.0, UpdateSettings()) == 1.0


def test_micro_batches_cover_the_rows_once_within_their_budget() -> None:
    rows = make_rows(bare(), TOKENIZER)
    parts = list(micro_batches(rows, np.arange(len(rows.ids)), 24))
    assert sorted(int(r) for part in parts for r in part) == list(range(len(rows.ids)))
    assert all(len(part) == 1 or len(part) * rows.lengths[part].max() <= 24 for part in parts)


def test_an_unknown_loss_axis_is_named() -> None:
    with pytest.raises(InvalidInputError, match="clip_hight"):
        UpdateSettings(loss={"clip_hight": 0.3}).axes(Loss())
