"""Behaviour cloning: the warm start. Expert episodes become training rows like any others; their policy tokens get likelier."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch

from toolverse.learner.distributed import ALONE, World
from toolverse.learner.micro import MicroBatch, shares
from toolverse.learner.policy import PolicyModel
from toolverse.learner.recipe import CloneSettings
from toolverse.learner.rows import Rows
from toolverse.learner.update import clip


def clone(
    model: PolicyModel,
    rows: Rows,
    settings: CloneSettings,
    *,
    seed: int,
    microbatch_tokens: int = 16_384,
    progress: Callable[[int, int, float], None] | None = None,
    world: World = ALONE,
) -> float:
    """Maximise the mean log-probability of the policy tokens; returns the mean loss of the last epoch (nats per token).

    Args:
        progress: called with step, steps and loss after each optimiser step.
    """
    optimizer = torch.optim.AdamW(
        model.backbone.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay, betas=(0.9, 0.98)
    )
    order = np.random.Generator(np.random.PCG64(seed))
    count = len(rows.ids)
    per_epoch = math.ceil(count / settings.batch_rows)
    steps, step, mean = per_epoch * settings.epochs, 0, 0.0
    for _ in range(settings.epochs):
        total, tokens = 0.0, 0
        for members in np.array_split(order.permutation(count), per_epoch):
            rate = min((step + 1) / max(settings.warmup_steps, 1), 0.5 + 0.5 * math.cos(math.pi * step / steps))
            for group in optimizer.param_groups:
                group["lr"] = settings.learning_rate * rate
            optimizer.zero_grad(set_to_none=True)
            here = int(np.isin(rows.row, members).sum())
            batch_loss = 0.0
            for some, counts in shares(rows, members, microbatch_tokens, world):
                local = MicroBatch(rows, some)
                hidden = local.hidden(model.backbone, rows.row[local.tokens], rows.column[local.tokens])
                logp, _ = model.log_probs(hidden, torch.from_numpy(rows.target[local.tokens]))
                loss = -logp.sum() / here * float(counts)
                loss.backward()  # type: ignore[no-untyped-call]
                batch_loss += float(loss.detach())
            parameters = list(model.backbone.parameters())
            world.sum_gradients(parameters)
            clip(model, parameters, 1.0)
            optimizer.step()
            step += 1
            batch_loss = world.total([batch_loss])[0]
            total, tokens = total + batch_loss * here, tokens + here
            if progress is not None:
                progress(step, steps, batch_loss)
        mean = total / max(tokens, 1)
    return mean
