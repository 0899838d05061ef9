"""One update of a run: play, read, estimate, step."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from toolverse.credit import Batch, Levels, Result, estimate, get, shape
from toolverse.credit.axes import mixed_groups
from toolverse.learner.distributed import gathered
from toolverse.learner.models import switch_words
from toolverse.learner.play import Arena, training_seeds
from toolverse.learner.policy import PolicyModel
from toolverse.learner.recipe import Recipe
from toolverse.learner.record import Record
from toolverse.learner.rows import Floats, Rows, make_batch, make_rows
from toolverse.learner.run import ORDER, PLAY, Run
from toolverse.learner.update import (
    Reading,
    adapt_kl,
    closing_values,
    less_kl,
    make_plan,
    read,
    sampled_reading,
    update,
    with_values,
)
from toolverse.rollout.tokens import TokenTrajectory


def one_update(run: Run, arena: Arena, record: Record) -> dict[str, Any]:
    """Play, read, estimate, step. Returns the update's line of metrics."""
    recipe, settings, world = run.recipe, run.recipe.update, run.world
    number = run.updates_done + 1
    with gathered(run.model):
        played, contexts = play_update(run, arena, number)
    rows = make_rows(played, run.tokenizer)
    batch = make_batch(
        played,
        rows,
        reward_scale=recipe.credit.reward_scale,
        outcome=recipe.credit.outcome,
        segments=recipe.credit.segments,
    )
    with gathered(run.model):
        reading = _reading(run, rows)
        batch = with_values(batch, rows, reading, closing_values(run.model, contexts, len(batch)))
        reference = _reference_logp(run, rows)
    in_reward = settings.kl_in == "reward"
    if reference is not None and in_reward:
        batch = less_kl(batch, rows, reading.logp, reference, run.kl_coefficient)
    result = credit(batch, recipe)
    plan = make_plan(result, rows, reading, settings, reference_logp=reference)
    done = number / max(recipe.updates, 1)
    factor = 1.0 if settings.schedule == "constant" else 1.0 - (1.0 - settings.final_rate) * done
    warming = number <= settings.critic_warmup_updates
    run.optimizer.param_groups[0]["lr"] = 0.0 if warming else settings.learning_rate * factor
    run.optimizer.param_groups[1]["lr"] = settings.critic_learning_rate * factor
    numbers = update(
        run.model,
        run.optimizer,
        rows,
        batch,
        plan,
        settings,
        seed=run.seed(ORDER, number),
        train_policy=not warming,
        kl_coefficient=0.0 if in_reward else run.kl_coefficient,
        temperature=recipe.policy.temperature,
        world=world,
    )
    record.update(number, played, np.where(plan.mask, plan.advantage, 0.0), rows.turn)
    entropy = float(reading.entropy.mean())
    run.kl_coefficient = adapt_kl(run.kl_coefficient, numbers["reference_kl"], settings)
    run.updates_done = number
    return {
        "update": number,
        "success": sum(t.success for t in played) / len(played),
        "score": sum(t.score for t in played) / len(played),
        "return": sum(t.total_reward() for t in played) / len(played),
        "turns": batch.turns / len(batch),
        "tokens_per_turn": rows.tokens / rows.turns,
        "invalid": float(np.mean([not turn.action_valid for t in played for turn in t.turns])),
        "truncated": float(batch["truncated"].mean()),
        "entropy": numbers.pop("update_entropy") if math.isnan(entropy) else entropy,
        "explained_variance": explained_variance(result),
        "zero_variance_groups": float(1.0 - mixed_groups(batch)[batch["group"]].mean())
        if recipe.group_size > 1
        else None,
        "sampler_gap": float(np.nanmax(np.abs(reading.logp - rows.sampled_logp))),
        "learning_rate": run.optimizer.param_groups[0]["lr"],
        "kl_coefficient": run.kl_coefficient,
        **numbers,
    }


def play_update(run: Run, arena: Arena, number: int) -> tuple[list[TokenTrajectory], dict[int, list[int]]]:
    """The episodes of an update, each process playing its share of the groups, and the closing contexts of the truncated."""
    recipe, world = run.recipe, run.world
    seeds = training_seeds(run.seed(PLAY), number, recipe.episodes, recipe.group_size)
    share = world.share(len(seeds), recipe.group_size)
    if recipe.policy.workers != "local":
        played = run.play_elsewhere(seeds, share, run.seed(PLAY, number), group_size=recipe.group_size)
        return world.gather(played), {}
    sampler = run.sampler(run.seed(PLAY, number), share.start)
    played = arena.play(sampler, seeds[share.start : share.stop])
    contexts = [(share.start + i, ids) for i, ids in arena.closing_contexts(sampler, played).items()]
    return world.gather(played), dict(world.gather(contexts))


def _reading(run: Run, rows: Rows) -> Reading:
    """What the learner says about the batch; not asked where the sampler has said all that is needed."""
    policy, needs = run.recipe.policy, get(run.recipe.credit.estimator).needs
    if run.recipe.update.old_logp == "sampler" and policy.critic == "none":
        return sampled_reading(rows)
    found = read(
        run.model,
        rows,
        temperature=policy.temperature,
        switch_words=switch_words(run.tokenizer) if (rows.switch_column >= 0).any() else None,
        token_values="token_values" in needs,
        world=run.world,
    )
    return replace(found, logp=sampled_reading(rows).logp) if run.recipe.update.old_logp == "sampler" else found


def credit(batch: Batch, recipe: Recipe) -> Result:
    """Shapers in order, then the estimator."""
    for entry in recipe.credit.shapers:
        arguments = dict(entry)
        batch = shape(str(arguments.pop("name")), batch, **arguments)
    return estimate(recipe.credit.estimator, batch, base=recipe.credit.base, **recipe.credit.settings)


def explained_variance(result: Result) -> float | None:
    """1 - Var(target - V) / Var(target) of the critic that the estimator used; None without a critic."""
    targets, batch = result.targets, result.batch
    if targets is None:
        return None
    if isinstance(targets, Levels):
        targets, values = targets.low, batch["values_low"]
    elif result.unit == "token":
        mask = batch["token_mask"]
        targets, values = targets[mask], batch["token_values"][mask]
    else:
        values = batch["values"]
    spread = float(np.var(targets))
    return None if spread < 1e-12 else 1.0 - float(np.var(targets - values)) / spread


def _reference_logp(run: Run, rows: Rows) -> Floats | None:
    if run.reference is None:
        return None
    frozen = PolicyModel(run.reference, "none")
    own = run.reference is run.model.backbone
    with run.reference.without_adapters() if own else nullcontext():
        return read(frozen, rows, temperature=run.recipe.policy.temperature, world=run.world).logp
