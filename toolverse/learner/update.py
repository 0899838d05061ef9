"""The update step, top to bottom: what was played goes in, changed weights and the numbers worth watching come out.

    read        log-probabilities and values of every row under the weights that played it        (`read`)
    estimate    values go into the batch, an estimator of `credit` makes advantages and targets   (`with_values`)
    place       advantages to tokens, targets to value positions, denominators over global counts (`Plan`)
    step        minibatches, micro batches: clipped surrogate + value loss - entropy + KL         (`update`)

Everything that is averaged is divided by counts of the whole minibatch, so that the split into micro batches, or over processes
(`distributed`), changes nothing, and a token that the policy did not produce has no loss, no ratio, no entropy, no KL and no
place in a denominator. All random choices come from the seed that is passed in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from toolverse.credit import Batch, Levels, Loss, Result
from toolverse.credit.axes import denominators, effective_mask
from toolverse.errors import InvalidInputError, ToolverseError
from toolverse.learner.distributed import ALONE, World, clip_gradients, is_sharded
from toolverse.learner.micro import MicroBatch, micro_batches, shares
from toolverse.learner.policy import HEADS, PolicyModel
from toolverse.learner.rows import ACTION, SUBGOAL, SWITCH, Floats, Ints, Rows
from toolverse.learner.sampler import pad
from toolverse.types import Model

LOW, HIGH, TERM = (HEADS.index(name) for name in ("low", "high", "term"))


class LossDivergedError(ToolverseError, ArithmeticError):
    """A loss is not a finite number; nothing was written, the last checkpoint is intact."""


class UpdateSettings(Model):
    """Knobs of the update step; defaults are PPO's usual ones for a few thousand turns.

    Args:
        epochs, minibatches: passes over the batch, and optimiser steps per pass.
        microbatch_tokens: most (padded) tokens in one forward pass: memory, not mathematics.
        learning_rate, critic_learning_rate: of AdamW; the critic's covers its heads and its own trunk.
        schedule: the rates stay, or fall linearly to `final_rate` of themselves over the run.
        value_coefficient: weight of the value loss in a shared trunk.
        value_clip: values move at most so far from the old ones without penalty; None turns it off.
        entropy_coefficient: weight of the entropy bonus.
        kl_coefficient, kl_kind: KL to the reference policy in the loss, by Schulman's estimator.
        kl_in: in the loss, or taken off the rewards of the turns (k1 summed over a turn's tokens, as in Ziegler et al. 2019,
            arXiv:1909.08593, equation 2): the future's KL then counts as the future's reward does.
        kl_target: with it the coefficient adapts (Ziegler et al. 2019, arXiv:1909.08593, section 2.2), over `kl_horizon` updates.
        stop_kl: no more steps in this update once KL(old || new) of a minibatch exceeds it; None never stops.
        importance_cap: truncated importance sampling between sampler and learner; None trusts the sampler's numbers.
        old_logp: `read` computes the log-probabilities of what was played under the learner's weights; `sampler` takes those
            that the sampler reported, which saves a pass over the batch where nothing else is read (no critic).
        recompute: do not keep the transformer's activations for the backward pass but compute them again (a third more
            arithmetic, a fraction of the memory).
        compile: compile the transformer's blocks (torch.compile); lengths are rounded up to buckets.
        shard: shard the transformer's blocks over the processes of a distributed run.
        loss: loss axes that replace the ones the estimator was published with (`credit.Loss`).
    """

    epochs: int = Field(default=2, ge=1)
    minibatches: int = Field(default=4, ge=1)
    microbatch_tokens: int = Field(default=16_384, ge=1)
    learning_rate: float = Field(default=3e-4, ge=0)
    critic_learning_rate: float = Field(default=1e-3, ge=0)
    weight_decay: float = Field(default=0.0, ge=0)
    schedule: Literal["constant", "linear"] = "linear"
    final_rate: float = Field(default=0.1, ge=0, le=1)
    max_grad_norm: float = Field(default=0.5, gt=0)
    value_coefficient: float = Field(default=0.5, ge=0)
    value_clip: float | None = Field(default=None, gt=0)
    entropy_coefficient: float = Field(default=0.0, ge=0)
    kl_coefficient: float = Field(default=0.0, ge=0)
    kl_kind: Literal["k1", "k2", "k3"] = "k3"
    kl_in: Literal["loss", "reward"] = "loss"
    kl_target: float | None = Field(default=None, gt=0)
    kl_horizon: float = Field(default=10.0, gt=0)
    stop_kl: float | None = Field(default=0.05, gt=0)
    importance_cap: float | None = Field(default=None, gt=0)
    critic_warmup_updates: int = Field(default=0, ge=0)
    old_logp: Literal["read", "sampler"] = "read"
    recompute: bool = False
    compile: bool = False
    shard: bool = False
    loss: dict[str, Any] = Field(default_factory=dict)

    def axes(self, published: Loss) -> Loss:
        """The estimator's loss axes with this recipe's changes.

        Raises:
            InvalidInputError: an axis that does not exist.
        """
        known = {name: getattr(published, name) for name in Loss.__dataclass_fields__}
        if unknown := sorted(set(self.loss) - set(known)):
            raise InvalidInputError(
                f"unknown loss axis {unknown[0]!r}", where="update.loss", expected=f"one of {', '.join(known)}"
            )
        return Loss(**{**known, **self.loss})


# --- read -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Reading:
    """What a model says about rows. `logp`, `entropy`: float64 [P]. `decision`, `after_subgoal`: float64 [M, 3], the value heads
    before the message and after its subgoal. `switch`: float64 [M], P(SWITCH) over {KEEP, SWITCH}, 0 where it can't be read.
    `token_values`: float64 [P], the high head before each policy token; None unless asked for."""

    logp: Floats
    entropy: Floats
    decision: Floats
    after_subgoal: Floats
    switch: Floats
    token_values: Floats | None = None


@torch.no_grad()
def read(
    model: PolicyModel,
    rows: Rows,
    *,
    microbatch_tokens: int = 32_768,
    temperature: float = 1.0,
    switch_words: tuple[int, int] | None = None,
    token_values: bool = False,
    world: World = ALONE,
) -> Reading:
    """One pass without gradients. `switch_words`: ids of the words KEEP and SWITCH as they stand in the switch block."""
    P, M = rows.tokens, rows.turns
    logp, entropy, per_token = np.zeros(P), np.zeros(P), np.zeros(P)
    decision, after, switch = np.zeros((M, len(HEADS))), np.zeros((M, len(HEADS))), np.zeros(M)
    ordered = np.argsort(rows.lengths, kind="stable")
    for some in micro_batches(rows, ordered[world.rank :: world.size], microbatch_tokens):
        local = MicroBatch(rows, some)
        tokens, turns = local.tokens, local.turns
        p = local.hidden(model.backbone, rows.row[tokens], rows.column[tokens])
        some_logp, some_entropy = model.log_probs(p, torch.from_numpy(rows.target[tokens]), temperature)
        logp[tokens], entropy[tokens] = some_logp.cpu().numpy(), some_entropy.cpu().numpy()
        trunk = model.critic_backbone or model.backbone
        if model.critic != "none":
            at = rows.turn_row[turns]
            both = local.hidden(
                trunk, np.tile(at, 2), np.concatenate([rows.decision[turns], rows.after_subgoal[turns]])
            )
            values = model.values(both).double().cpu().numpy()
            decision[turns], after[turns] = values[: len(turns)], values[len(turns) :]
            if token_values:
                h = local.hidden(trunk, rows.row[tokens], rows.column[tokens])
                per_token[tokens] = model.values(h)[:, HIGH].double().cpu().numpy()
        marked = turns[rows.switch_column[turns] >= 0]
        if switch_words is not None and len(marked):
            h = local.hidden(model.backbone, rows.turn_row[marked], rows.switch_column[marked])
            two = model.backbone.logits(h)[:, list(switch_words)].double()
            switch[marked] = torch.softmax(two, dim=-1)[:, 1].cpu().numpy()
    world.merge(logp, entropy, decision, after, switch, per_token)
    return Reading(logp, entropy, decision, after, switch, per_token if token_values else None)


def sampled_reading(rows: Rows) -> Reading:
    """A reading from what the sampler reported, without a pass; entropies are NaN (the update step measures them).

    Raises:
        InvalidInputError: the sampler did not report some log-probability.
    """
    if np.isnan(rows.sampled_logp).any():
        raise InvalidInputError(
            "the sampler reported no log-probabilities", where="update.old_logp", fix="use update.old_logp = 'read'"
        )
    none = np.zeros((rows.turns, len(HEADS)))
    return Reading(rows.sampled_logp, np.full(rows.tokens, np.nan), none, none, np.zeros(rows.turns))


def closing_values(
    model: PolicyModel, contexts: Mapping[int, list[int]], count: int, *, microbatch_tokens: int = 32_768
) -> Floats:
    """float64 [count, 3]: the value heads at the end of the contexts given by trajectory, 0 for the others."""
    out = np.zeros((count, len(HEADS)))
    if model.critic == "none" or not contexts:
        return out
    trunk = model.critic_backbone or model.backbone
    step = max(1, microbatch_tokens // max(map(len, contexts.values())))
    indices = list(contexts)
    with torch.no_grad():
        for first in range(0, len(indices), step):
            chosen = indices[first : first + step]
            lengths = torch.tensor([len(contexts[i]) for i in chosen])
            ids = pad([contexts[i] for i in chosen])
            hidden = trunk.hidden(ids, torch.arange(len(chosen)), lengths - 1, lengths)
            out[chosen] = model.values(hidden).double().cpu().numpy()
    return out


def with_values(batch: Batch, rows: Rows, reading: Reading, boot: Floats) -> Batch:
    """The batch with every critic column that the reading can fill.

    V_low(s_t, o_{t-1}) is the low head *before* the message: the prompt names the subgoal that is still in force.
    """
    columns: dict[str, NDArray[Any]] = {
        "token_logp": reading.logp,
        "token_logp_old": reading.logp,
        "values": reading.decision[:, HIGH],
        "values_high_all": reading.decision[:, HIGH],
        "values_high": reading.decision[batch.boundary, HIGH],
        "values_low": reading.after_subgoal[:, LOW],
        "values_low_prev": reading.decision[:, LOW],
        "values_term": reading.decision[:, TERM],
        "switch_prob": reading.switch,
        "boot": boot[:, HIGH],
        "boot_low": boot[:, LOW],
        "boot_high": boot[:, HIGH],
    }
    if reading.token_values is not None:
        columns["token_values"] = reading.token_values
    return batch.replace(**columns)


def less_kl(batch: Batch, rows: Rows, logp: Floats, reference_logp: Floats, coefficient: float) -> Batch:
    """The batch with the KL to the reference taken off its rewards.

    Args:
        logp, reference_logp: float64 [P], of the policy tokens under the policy that played and under the reference.
    """
    per_turn = coefficient * np.bincount(rows.turn, logp - reference_logp, rows.turns)
    columns = {"rewards": batch["rewards"] - per_turn}
    if "outcome" in batch.columns:
        so_far = np.concatenate([[0.0], per_turn.cumsum()])
        columns["outcome"] = batch["outcome"] - np.diff(so_far[batch.offsets])
    return batch.replace(**columns)


# --- place ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Plan:
    """What the losses need, per policy token and per value that is regressed.

    Attributes:
        advantage: float64 [P]. mask: bool [P], tokens with a policy loss.
        old_logp, weight: float64 [P], log-probability when the batch was played, and loss weight.
        reference_logp: float64 [P] or None.
        value_row, value_column, value_head, value_turn: int64 [V]; value_target, value_old: float64 [V].
        loss: the axes.
    """

    advantage: Floats
    mask: NDArray[np.bool_]
    old_logp: Floats
    weight: Floats
    reference_logp: Floats | None
    value_row: Ints
    value_column: Ints
    value_head: Ints
    value_turn: Ints
    value_target: Floats
    value_old: Floats
    loss: Loss


def make_plan(
    result: Result,
    rows: Rows,
    reading: Reading,
    settings: UpdateSettings,
    *,
    reference_logp: Floats | None = None,
) -> Plan:
    """Advantages to the tokens they are for, targets to the positions they are for.

    Of `Levels`, the low advantage goes to the action block, the high one to the subgoal block of the turn that opens the
    segment, the switch one to the switch block; every other token leaves the loss. A message without an action block is
    trained as a whole with the low advantage (as in HiPER's released code): leaving it out would make bad form free.
    """
    batch, loss = result.batch, settings.axes(result.loss)
    mask = effective_mask(batch, loss)
    advantages, targets = result.advantages, result.targets
    values: list[tuple[Ints, Ints, int, Floats, Floats]] = []  # turns, columns, head, targets, old values
    turns = np.arange(rows.turns)
    if isinstance(advantages, Levels):
        if not rows.has_blocks:
            raise InvalidInputError(
                f"{result.name} needs messages with a switch, a subgoal and an action block",
                where="rows",
                fix="play with prompt='hiper'",
            )
        opens = np.flatnonzero(batch.boundary)
        segment = np.cumsum(batch.boundary) - 1
        advantage = np.zeros(rows.tokens)
        kinds = [(ACTION, advantages.low[rows.turn]), (SUBGOAL, advantages.high[segment[rows.turn]])]
        if advantages.switch is not None:
            kinds.append((SWITCH, advantages.switch[rows.turn]))
        for kind, values_of in kinds:
            advantage = np.where(rows.span == kind, values_of, advantage)
        trained = np.isin(rows.span, [kind for kind, _ in kinds])
        trained &= (rows.span != SUBGOAL) | batch.boundary[rows.turn]
        formless = (np.bincount(rows.turn, rows.span == ACTION, rows.turns) == 0)[rows.turn]
        advantage = np.where(formless, advantages.low[rows.turn], advantage)
        mask = mask & (trained | formless)
        if isinstance(targets, Levels):
            values.append((turns, rows.after_subgoal, LOW, targets.low, reading.after_subgoal[:, LOW]))
            values.append((opens, rows.decision[opens], HIGH, targets.high, reading.decision[opens, HIGH]))
            if targets.switch is not None:
                values.append((turns, rows.decision, TERM, targets.switch, reading.decision[:, TERM]))
    elif result.unit == "token":
        advantage = np.asarray(advantages)
        if targets is not None:
            assert not isinstance(targets, Levels)
            assert reading.token_values is not None
            values.append((rows.turn, rows.column, HIGH, targets, reading.token_values))
    else:
        advantage = np.asarray(advantages)[rows.turn]
        if targets is not None:
            assert not isinstance(targets, Levels)
            values.append((turns, rows.decision, HIGH, targets, reading.decision[:, HIGH]))
    weight = np.ones(rows.tokens) if result.weights is None else result.weights[rows.turn]
    if settings.importance_cap is not None:
        known = ~np.isnan(rows.sampled_logp)
        gap = np.where(known, reading.logp - np.where(known, rows.sampled_logp, 0.0), 0.0)
        weight = weight * np.minimum(np.exp(gap), settings.importance_cap)
    value_turn = np.concatenate([v[0] for v in values]) if values else np.zeros(0, np.int64)
    return Plan(
        advantage=advantage,
        mask=mask,
        old_logp=reading.logp,
        weight=weight,
        reference_logp=reference_logp,
        value_row=rows.turn_row[value_turn],
        value_column=np.concatenate([v[1] for v in values]) if values else np.zeros(0, np.int64),
        value_head=np.concatenate([np.full(len(v[0]), v[2]) for v in values]) if values else np.zeros(0, np.int64),
        value_turn=value_turn,
        value_target=np.concatenate([v[3] for v in values]) if values else np.zeros(0),
        value_old=np.concatenate([v[4] for v in values]) if values else np.zeros(0),
        loss=loss,
    )


# --- step -------------------------------------------------------------------------------------------------------------------


@dataclass
class Tally:
    """Sums over the tokens of all steps of one update; means come out."""

    tokens: float = 0.0
    clipped: float = 0.0
    kl: float = 0.0
    entropy: float = 0.0
    policy_loss: float = 0.0
    value_loss: float = 0.0
    reference_kl: float = 0.0
    largest_ratio: float = 0.0
    grad_norm: float = 0.0
    steps: int = 0

    def add(self, step: Tally, world: World) -> float:
        """Take in what this process counted in one optimiser step, summed over processes; returns the step's KL per token."""
        names = ("tokens", "clipped", "kl", "entropy", "policy_loss", "value_loss", "reference_kl")
        sums = dict(zip(names, world.total([getattr(step, name) for name in names]), strict=True))
        for name, value in sums.items():
            setattr(self, name, getattr(self, name) + value)
        self.largest_ratio = max([self.largest_ratio, *world.gather([step.largest_ratio])])
        self.steps += 1
        return sums["kl"] / max(sums["tokens"], 1.0)


def update(
    model: PolicyModel,
    optimizer: torch.optim.Optimizer,
    rows: Rows,
    batch: Batch,
    plan: Plan,
    settings: UpdateSettings,
    *,
    seed: int,
    train_policy: bool = True,
    kl_coefficient: float | None = None,
    temperature: float = 1.0,
    world: World = ALONE,
) -> dict[str, float]:
    """Change the model's weights by one batch.

    Args:
        optimizer: AdamW over the model's parameters, with the rates already set for this update.
        train_policy: False trains the critic alone (warm-up).
        kl_coefficient: of an adaptive controller; None takes the settings'.

    Returns:
        Means over steps and tokens: policy_loss, value_loss, kl (k3 of old against new), clip_fraction, grad_norm, ...

    Raises:
        LossDivergedError: a loss is NaN or infinite; the weights are those of the last finite step.
    """
    coefficient = settings.kl_coefficient if kl_coefficient is None else kl_coefficient
    tally, stopped = Tally(), False
    order = np.random.Generator(np.random.PCG64(seed))
    units, unit_of_row = optimisation_units(rows, batch, plan.loss)
    lockstep = is_sharded(model)
    for _ in range(settings.epochs):
        shuffled = order.permutation(units)
        for chosen in np.array_split(shuffled, min(settings.minibatches, units)):
            members = np.flatnonzero(np.isin(unit_of_row, chosen))
            mask = plan.mask & np.isin(rows.row, members)
            weight = plan.weight / denominators(batch, mask, plan.loss.aggregation).clip(1.0)
            value_count = max(int(np.isin(plan.value_row, members).sum()), 1)
            optimizer.zero_grad(set_to_none=True)
            step, finite = Tally(), True
            for some, counts in shares(rows, members, settings.microbatch_tokens, world):
                local = MicroBatch(rows, some)
                trained = np.flatnonzero(local.holds(rows.row) & mask)
                # Sharded blocks compute in lockstep: each process passes through them, also for tokens without a loss.
                tokens = local.tokens[:1] if lockstep and not len(trained) else trained
                value_at = np.flatnonzero(local.holds(plan.value_row))
                loss = torch.zeros((), device=model.device)
                hidden, value_hidden = _forward(model, local, rows, plan, tokens, value_at)
                if train_policy and len(tokens):
                    counted = step if counts and len(trained) else Tally()
                    policy_loss = _policy_loss(
                        model, hidden, rows, plan, tokens, weight, settings, coefficient, temperature, counted
                    )
                    loss = loss + policy_loss * float(len(trained) > 0)
                if len(value_at):
                    heads = like(plan.value_head[value_at], value_hidden)
                    value = model.values(value_hidden).gather(1, heads.unsqueeze(1)).squeeze(1)
                    value_loss = _value_loss(value, plan, value_at, settings.value_clip).sum() / value_count
                    step.value_loss += float(value_loss.detach()) * counts
                    loss = loss + settings.value_coefficient * value_loss
                finite = finite and math.isfinite(float(loss.detach()))
                if loss.requires_grad:
                    (loss * float(counts)).backward()  # type: ignore[no-untyped-call]
            if world.total([float(not finite)])[0]:
                optimizer.zero_grad(set_to_none=True)
                raise LossDivergedError(
                    "the loss is NaN or infinite",
                    where=f"optimiser step {tally.steps} of the update",
                    fix="lower update.learning_rate, or set update.stop_kl",
                )
            step_kl = tally.add(step, world)
            parameters = [p for group in optimizer.param_groups for p in group["params"]]
            world.sum_gradients(parameters)
            tally.grad_norm += clip(model, parameters, settings.max_grad_norm)
            optimizer.step()
            if train_policy and settings.stop_kl is not None and step_kl > settings.stop_kl:
                stopped = True
                break
        if stopped:
            break
    return _means(tally, stopped)


def clip(model: PolicyModel, parameters: list[Any], most: float) -> float:
    """Clip the norm of all gradients together; returns the norm before."""
    if is_sharded(model):
        return clip_gradients(parameters, most)
    return float(torch.nn.utils.clip_grad_norm_([p for p in parameters if p.grad is not None], most))


def _forward(
    model: PolicyModel, local: MicroBatch, rows: Rows, plan: Plan, tokens: Ints, value_at: Ints
) -> tuple[Tensor, Tensor]:
    """Hidden states of the policy tokens and of the value positions; one pass where the trunk is shared."""
    token_places = rows.row[tokens], rows.column[tokens]
    value_places = plan.value_row[value_at], plan.value_column[value_at]
    if model.critic_backbone is not None:
        hidden = local.hidden(model.backbone, *token_places) if len(tokens) else torch.zeros(0)
        return hidden, local.hidden(model.critic_backbone, *value_places) if len(value_at) else torch.zeros(0)
    if not len(tokens) + len(value_at):
        return torch.zeros(0), torch.zeros(0)
    both = [np.concatenate(pair) for pair in zip(token_places, value_places, strict=True)]
    all_hidden = local.hidden(model.backbone, *both)
    return all_hidden[: len(tokens)], all_hidden[len(tokens) :]


def _policy_loss(
    model: PolicyModel,
    hidden: Tensor,
    rows: Rows,
    plan: Plan,
    tokens: Ints,
    weight: Floats,
    settings: UpdateSettings,
    kl_coefficient: float,
    temperature: float,
    tally: Tally,
) -> Tensor:
    """Clipped surrogate - entropy bonus + KL to the reference, summed with weights that make it a mean over the minibatch."""
    axes = plan.loss
    logp, entropy = model.log_probs(
        hidden,
        torch.from_numpy(rows.target[tokens]),
        temperature,
        entropy_gradient=settings.entropy_coefficient > 0,
    )
    old = like(plan.old_logp[tokens], logp)
    advantage = like(plan.advantage[tokens], logp)
    w = like(weight[tokens], logp)
    log_ratio = unit_mean(logp - old, _unit_codes(rows, tokens, axes)).clamp_max(axes.max_log_ratio)
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1.0 - axes.clip_low, 1.0 + axes.clip_high)
    surrogate = torch.maximum(-advantage * ratio, -advantage * clipped)
    if axes.dual_clip is not None:
        surrogate = torch.where(advantage < 0, torch.minimum(surrogate, -axes.dual_clip * advantage), surrogate)
    loss = (w * surrogate).sum()
    if settings.entropy_coefficient:
        loss = loss - settings.entropy_coefficient * (w * entropy).sum()
    if plan.reference_logp is not None:
        x = logp - like(plan.reference_logp[tokens], logp)
        k = {"k1": x, "k2": 0.5 * x**2, "k3": torch.expm1(-x) + x}[settings.kl_kind]
        tally.reference_kl += float((torch.expm1(-x) + x).detach().sum())
        if kl_coefficient:
            loss = loss + kl_coefficient * (w * k).sum()
    with torch.no_grad():
        moved = logp - old
        tally.tokens += len(tokens)
        tally.kl += float((torch.expm1(moved) - moved).sum())
        tally.entropy += float(entropy.sum())
        tally.clipped += float(((ratio < 1.0 - axes.clip_low) | (ratio > 1.0 + axes.clip_high)).sum())
        tally.largest_ratio = max(tally.largest_ratio, float(ratio.max()))
        tally.policy_loss += float((w * surrogate).sum())
    return loss


def _value_loss(values: Tensor, plan: Plan, at: Ints, clip: float | None) -> Tensor:
    """0.5 max((V - y)^2, (V_old + clip(V - V_old) - y)^2) per position."""
    target = like(plan.value_target[at], values)
    loss = (values - target) ** 2
    if clip is not None:
        old = like(plan.value_old[at], values)
        near = old + (values - old).clamp(-clip, clip)
        loss = torch.maximum(loss, (near - target) ** 2)
    return 0.5 * loss


def like(array: NDArray[Any], tensor: Tensor) -> Tensor:
    """A NumPy array beside `tensor`: on its device, floats as float32."""
    found = torch.from_numpy(array).to(tensor.device)
    return found.float() if found.is_floating_point() else found


def unit_mean(x: Tensor, codes: Tensor | None) -> Tensor:
    """Each entry replaced by the mean over the entries with its code; unchanged without codes."""
    if codes is None:
        return x
    codes = codes.to(x.device)
    count = int(codes.max()) + 1
    size = torch.bincount(codes, minlength=count).to(x.dtype)
    total = torch.zeros(count, dtype=x.dtype, device=x.device).index_add(0, codes, x)
    return (total / size.clamp_min(1.0))[codes]


def _unit_codes(rows: Rows, tokens: Ints, axes: Loss) -> Tensor | None:
    """Codes of the ratio units of some tokens. A minibatch never cuts a unit apart: see `optimisation_units`."""
    if axes.ratio_unit == "token":
        return None
    if axes.ratio_unit in ("turn", "sequence"):
        # A row is a turn, or holds whole turns; a "sequence" is a row, because such a run has one row per trajectory.
        unit = rows.turn[tokens] if axes.ratio_unit == "turn" else rows.row[tokens]
        return torch.from_numpy(np.unique(unit, return_inverse=True)[1])
    raise InvalidInputError(
        f"ratio unit {axes.ratio_unit!r}", where="update.loss", expected="'token', 'turn' or 'sequence'"
    )


def optimisation_units(rows: Rows, batch: Batch, axes: Loss) -> tuple[int, Ints]:
    """Number of units that are shuffled into minibatches, and the unit of each row: rows, since no ratio reaches across them.

    Raises:
        InvalidInputError: the ratio is formed over a trajectory, but a trajectory is several rows.
    """
    if axes.ratio_unit == "sequence" and len(rows.ids) != len(batch):
        raise InvalidInputError(
            "the ratio is formed over whole trajectories, but each turn is a row of its own",
            where="rendering 'windowed'",
            fix="use rendering = 'append_only', or update.loss.ratio_unit = 'turn'",
        )
    return len(rows.ids), np.arange(len(rows.ids))


def _means(tally: Tally, stopped: bool) -> dict[str, float]:
    tokens, steps = max(tally.tokens, 1.0), max(tally.steps, 1)
    return {
        "policy_loss": tally.policy_loss / steps,
        "value_loss": tally.value_loss / steps,
        "kl": tally.kl / tokens,
        "reference_kl": tally.reference_kl / tokens,
        "update_entropy": tally.entropy / tokens,
        "clip_fraction": tally.clipped / tokens,
        "largest_ratio": tally.largest_ratio,
        "grad_norm": tally.grad_norm / steps,
        "steps": tally.steps,
        "stopped_early": float(stopped),
    }


def adapt_kl(coefficient: float, kl: float, settings: UpdateSettings) -> float:
    """The KL coefficient for the next update: up if KL is above target, down if below, by at most 20 % of the distance."""
    if settings.kl_target is None:
        return coefficient
    error = min(max(kl / settings.kl_target - 1.0, -0.2), 0.2)
    return coefficient * (1.0 + error / settings.kl_horizon)
