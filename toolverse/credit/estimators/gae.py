"""Generalised advantage estimation over turns or over policy tokens (Schulman et al. 2016, arXiv:1506.02438).

    delta_t = r_t + gamma V_{t+1} - V_t                    (eq. 10)
    A_t     = delta_t + gamma lambda A_{t+1}               (eq. 16, as a recursion)
    target  = A_t + V_t

V_T is the boot value of a truncated trajectory and 0 of a terminated one.

Over tokens the recursion runs on the policy's own tokens only: a tool token neither advances it, nor decays it, nor
supplies V_{t+1}. A reward that lies on a masked token moves to the turn's last policy token, because a masked recursion
would lose it.

verl's released code agrees on both, except for the moved reward, which it drops; it always whitens the result.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from toolverse.credit import ragged
from toolverse.credit.batch import Batch, Bools, Floats, Ints
from toolverse.credit.registry import Result, estimator
from toolverse.errors import InvalidInputError

Whitening = Literal["none", "population", "bessel"]


@estimator(
    "gae",
    paper="Schulman et al. 2016, arXiv:1506.02438",
    equation="10, 16",
    evidence="matches released code",
    needs=("values",),
    scope="trajectory",
)
def gae(
    batch: Batch,
    *,
    gamma: float = 1.0,
    lam: float = 1.0,
    whitening: Whitening = "none",
    bootstrap_truncated: bool = True,
) -> Result:
    """PPO's advantages over turns: lambda-weighted temporal differences of a critic.

    Args:
        gamma: discount per turn.
        lam: 0 trusts the critic, 1 the returns.
        whitening: of the advantages (not the targets) over the whole batch; the scope is then the batch.
        bootstrap_truncated: False where the agent itself controls the ending: what it has not reached by then counts as 0.
    """
    if not bootstrap_truncated:
        batch = batch.replace(truncated=np.zeros(len(batch), np.bool_))
    advantages = turn_gae(batch, batch["rewards"], batch["values"], gamma, lam)
    return Result(whitened(advantages, whitening), batch, targets=advantages + batch["values"])


@estimator(
    "token_gae",
    paper="Schulman et al. 2016, arXiv:1506.02438",
    equation="10, 16",
    evidence="matches released code",
    needs=("token_values",),
    scope="trajectory",
    difference="verl whitens always (whitening='bessel') and drops rewards on masked tokens; here they move",
)
def token_gae(batch: Batch, *, gamma: float = 1.0, lam: float = 1.0, whitening: Whitening = "none") -> Result:
    """PPO's advantages over policy tokens; tool tokens do not exist for the recursion.

    Args:
        gamma: discount per policy token.
        lam: 0 trusts the critic, 1 the returns.
        whitening: over the policy tokens of the whole batch; the scope is then the batch.
    """
    tokens = PolicyTokens(batch)
    values = batch["token_values"][tokens.rows]
    raw = recursion(tokens.rewards(), values, tokens.ends, batch.boot(), gamma, lam)
    targets = tokens.scatter(raw + values)
    return Result(tokens.scatter(whitened(raw, whitening)), batch, targets=targets, unit="token")


def turn_gae(batch: Batch, rewards: Floats, values: Floats, gamma: float, lam: float) -> Floats:
    """float64 [M]: unwhitened advantages per turn."""
    return recursion(rewards, values, batch.last, batch.boot(), gamma, lam)


def recursion(rewards: Floats, values: Floats, ends: Ints, boot: Floats, gamma: float, lam: float) -> Floats:
    """The recursion over flat rows whose runs end at `ends`, with the value `boot` beyond each end."""
    delta = rewards + gamma * ragged.shift(values, ends, boot) - values
    decay = np.full(len(values), gamma * lam)
    decay[ends] = 0.0
    return ragged.discounted(delta, decay)


def whitened(x: Floats, how: Whitening) -> Floats:
    """Standardised over the batch, or as it is."""
    if how == "none":
        return x
    if how not in ("population", "bessel"):
        raise InvalidInputError(f"whitening={how!r}", expected="'none', 'population' or 'bessel'")
    return ragged.whiten(x, ddof=int(how == "bessel"))


class PolicyTokens:
    """The batch's policy tokens as one compressed sequence per trajectory.

    Attributes:
        rows: int64 [P]: their places among all tokens.
        ends: int64 [N]: index, in the compressed sequence, of each trajectory's last one.
        turn_ends: int64 [M]: of each turn's last one.
    """

    def __init__(self, batch: Batch) -> None:
        if batch.token_offsets is None:
            raise InvalidInputError("the batch has no tokens", fix="pass token_values= in Batch.from_turns")
        self.batch = batch
        self.offsets = batch.token_offsets
        self.mask: Bools = batch["token_mask"]
        self.rows: Ints = np.flatnonzero(self.mask)
        self.turn_ends: Ints = np.cumsum(batch.lengths) - 1
        self.ends: Ints = self.turn_ends[batch.last]

    def rewards(self) -> Floats:
        """float64 [P]: token rewards, or the turn rewards on each turn's last policy token."""
        if "token_rewards" not in self.batch:
            out = np.zeros(len(self.rows))
            out[self.turn_ends] = self.batch["rewards"]
            return out
        given = self.batch["token_rewards"]
        out = given[self.rows].copy()
        out[self.turn_ends] += np.add.reduceat(np.where(self.mask, 0.0, given), self.offsets[:-1])
        return out

    def scatter(self, x: Floats) -> Floats:
        """Compressed values at their tokens, 0 on masked ones."""
        out = np.zeros(len(self.mask))
        out[self.rows] = x
        return out
