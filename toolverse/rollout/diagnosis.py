"""Why does it not learn? Ranked causes with counts and episodes to look at.

Each check looks for one cause in the data itself and says nothing where it can't tell. Findings come in three ranks: `broken`
(something contradicts itself: the run can't be right), `ineffective` (nothing is wrong, but nothing can be learnt either) and
`symptom` (a consequence, or a matter of degree). Within a rank the larger share comes first.
"""

from __future__ import annotations

import functools
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any, Final, Literal

from toolverse.rollout.runs import Call, Episode, Metrics, Run
from toolverse.rollout.tokens import samples
from toolverse.types import JSON

Rank = Literal["broken", "ineffective", "symptom"]
_ORDER: Final[dict[Rank, int]] = {"broken": 0, "ineffective": 1, "symptom": 2}


@dataclass(frozen=True)
class Finding:
    """One cause. `count` of `of` things (`unit`) show it; `episodes` are places in the trajectory file."""

    cause: str
    rank: Rank
    count: int
    of: int
    unit: str
    evidence: str
    fix: str
    episodes: tuple[int, ...] = ()

    @property
    def share(self) -> float:
        return self.count / self.of if self.of else 0.0

    def as_json(self) -> dict[str, JSON]:
        return {
            "cause": self.cause,
            "rank": self.rank,
            "count": self.count,
            "of": self.of,
            "unit": self.unit,
            "share": self.share,
            "evidence": self.evidence,
            "fix": self.fix,
            "episodes": list(self.episodes),
        }


Check = Callable[[Run], Finding | None]
_CHECKS: Final[list[Check]] = []


def check(function: Check) -> Check:
    """Register a check; the order of registration decides between equals."""
    _CHECKS.append(function)
    return function


def diagnose(run: Run) -> list[Finding]:
    """All findings, the likeliest cause first."""
    found = [finding for look in _CHECKS if (finding := look(run)) is not None]
    return sorted(found, key=lambda finding: (_ORDER[finding.rank], -finding.share))


def _places(episodes: Iterable[Episode]) -> tuple[int, ...]:
    """The first few, for links."""
    return tuple(sorted(episode.place for episode in episodes)[:8])


# --- tokens, masks, rewards -----------------------------------------------------------------------------------------------


@dataclass
class _Accounts:
    """What the training samples of a run got wrong, by place of the episode."""

    checked: int = 0
    bad_mask: dict[int, int] = field(default_factory=dict)
    reward_off_mask: set[int] = field(default_factory=set)
    reward_lost: dict[int, bool] = field(default_factory=dict)


@functools.lru_cache(maxsize=1)
def _accounts(run: Run) -> _Accounts:
    """Compare the samples that were trained on with the trajectories that they came from."""
    out = _Accounts()
    by_place = {episode.place: episode for episode in run.episodes}
    rewards: dict[int, float] = defaultdict(float)
    turn_rewards: dict[int, dict[int, float]] = defaultdict(dict)
    for row in run.samples:
        place, mask, given = int(row.get("trajectory", -1)), row.get("mask", []), row.get("rewards", [])
        episode = by_place.get(place)
        if episode is None or episode.trajectory is None:
            continue
        out.checked += 1
        expected = next((s for s in samples(episode.trajectory) if s.ids.tolist() == row.get("ids")), None)
        if expected is not None:
            wrong = sum(bool(a) != bool(b) for a, b in zip(mask, expected.mask.tolist(), strict=False))
            if wrong or len(mask) != expected.mask.size:
                out.bad_mask[place] = out.bad_mask.get(place, 0) + max(wrong, 1)
            policy = expected.sampled.tolist()
        else:
            policy = [bool(m) for m in mask]
        if any(value and not ours for value, ours in zip(given, policy, strict=False)):
            out.reward_off_mask.add(place)
        rewards[place] += sum(given)
        for turn, value in zip(row.get("turns", []), given, strict=False):
            turn_rewards[place][turn] = turn_rewards[place].get(turn, 0.0) + value
    for place, total in rewards.items():
        trajectory = by_place[place].trajectory
        assert trajectory is not None
        if abs(total - sum(turn.reward for turn in trajectory.turns)) > 1e-6:
            last = trajectory.path()[-1]
            kept = turn_rewards[place].get(last.index, 0.0)
            out.reward_lost[place] = abs(last.reward) > 1e-9 and abs(kept) < 1e-9
    return out


@check
def wrong_mask(run: Run) -> Finding | None:
    accounts = _accounts(run)
    if not accounts.bad_mask:
        return None
    tokens = sum(accounts.bad_mask.values())
    return Finding(
        "wrong mask",
        "broken",
        len(accounts.bad_mask),
        accounts.checked,
        "samples",
        f"the mask differs from what was sampled at {tokens} tokens: environment text is trained on, or the policy's is not",
        "take the mask from the sampler's ids (toolverse.rollout.tokens.samples); never search for tags or roles in text",
        tuple(sorted(accounts.bad_mask)[:8]),
    )


@check
def lost_reward(run: Run) -> Finding | None:
    accounts = _accounts(run)
    lost = accounts.reward_lost
    if not lost:
        return None
    last = sum(lost.values())
    where = "of the last turn is" if last * 2 > len(lost) else "of some turns are"
    return Finding(
        "lost last reward" if last * 2 > len(lost) else "lost reward",
        "broken",
        len(lost),
        accounts.checked,
        "samples",
        f"the rewards {where} missing from the training samples",
        "put each turn's reward on its last sampled token, also where the last turn is truncated",
        tuple(sorted(lost)[:8]),
    )


@check
def reward_on_wrong_token(run: Run) -> Finding | None:
    accounts = _accounts(run)
    off = accounts.reward_off_mask
    if not off:
        return None
    return Finding(
        "reward on a masked token",
        "broken",
        len(off),
        accounts.checked,
        "samples",
        "rewards lie on tokens that the policy did not sample, where masked estimators never see them",
        "move each reward to the last sampled token of its turn",
        tuple(sorted(off)[:8]),
    )


@check
def frozen_reward(run: Run) -> Finding | None:
    if len(run.episodes) < 8 or len({round(e.reward, 9) for e in run.episodes}) > 1:
        return None
    outcomes = {e.success for e in run.episodes} - {None}
    texts = {tuple(s.text for s in e.said) for e in run.episodes}
    if len(outcomes) < 2 and (outcomes or len(texts) < 2):
        return None
    evidence = f"every episode earned exactly {run.episodes[0].reward:g}, " + (
        "solved or not" if len(outcomes) > 1 else "although they differ"
    )
    n = len(run.episodes)
    return Finding(
        "frozen reward",
        "broken" if len(outcomes) > 1 else "ineffective",
        n,
        n,
        "episodes",
        evidence,
        "check that the reward reaches the trainer: which key it reads, and that it is not a default",
        _places(run.episodes),
    )


# --- what was trained on ---------------------------------------------------------------------------------------------------


@check
def evaluation_is_training(run: Run) -> Finding | None:
    if not run.evaluation:
        return None
    trained = {episode.instance for episode in run.episodes}
    shared = [episode for episode in run.evaluation if episode.instance in trained]
    if not shared:
        return None
    return Finding(
        "evaluation leaks into training",
        "broken",
        len(shared),
        len(run.evaluation),
        "evaluation episodes",
        "these instances (same task and seed) were trained on, so their success says nothing about new ones",
        "evaluate on a split, or on seeds, that training never draws",
        _places(shared),
    )


@check
def duplicate_seeds(run: Run) -> Finding | None:
    groups: dict[tuple[str, str], set[str]] = defaultdict(set)
    for episode in run.episodes:
        if episode.seed is not None and episode.group:
            groups[episode.step, episode.instance].add(episode.group)
    total = sum(len(ids) for ids in groups.values())
    extra = sum(len(ids) - 1 for ids in groups.values())
    if total < 4 or extra / total < 0.05:
        return None
    repeated = {key for key, ids in groups.items() if len(ids) > 1}
    return Finding(
        "duplicate seeds",
        "broken",
        extra,
        total,
        "groups",
        f"different groups of one update play the same instance: {total} groups, {len(groups)} instances",
        "derive every group's seed from its own counter; check that workers do not all start from one seed",
        _places(e for e in run.episodes if (e.step, e.instance) in repeated),
    )


@check
def identical_attempts(run: Run) -> Finding | None:
    groups: dict[str, list[Episode]] = defaultdict(list)
    for episode in run.episodes:
        if episode.group:
            groups[episode.group].append(episode)
    several = [members for members in groups.values() if len(members) > 1]
    same = [m for m in several if len({tuple(s.text for s in e.said) for e in m}) == 1 and m[0].said]
    if len(several) < 4 or len(same) / len(several) < 0.5:
        return None
    return Finding(
        "identical attempts",
        "ineffective",
        len(same),
        len(several),
        "groups",
        "all attempts of a group say the same, word for word",
        "sample with a temperature above 0, and give each attempt a sampling seed of its own",
        _places(members[0] for members in same),
    )


_FAILED: Final = re.compile(
    r"^\W*(?:error|exception|traceback|failed|failure|timed? ?out|unavailable|internal server|connection refused|"
    r"not executed|unknown tool|\{\s*\"error\")",
    re.IGNORECASE,
)


def _failed(call: Call) -> bool:
    return bool(call.failed) or _FAILED.search(call.result) is not None


def _says_nothing(result: str) -> bool:
    """An empty text, or JSON without anything in it: `[]`, `{"items": [], "total": 0}`."""
    try:
        value = json.loads(result)
    except (ValueError, RecursionError):
        return not result.strip()

    def empty(value: Any) -> bool:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return all(map(empty, inner)) if inner else not value

    return empty(value)


def _calls_by_tool(run: Run) -> dict[str, list[tuple[Episode, Call]]]:
    calls: dict[str, list[tuple[Episode, Call]]] = defaultdict(list)
    for episode in run.episodes:
        for said in episode.said:
            for call in said.calls:
                calls[call.name].append((episode, call))
    return calls


def _always_fails(made: Sequence[tuple[Episode, Call]]) -> bool:
    return len(made) >= 5 and sum(_failed(call) for _, call in made) >= 0.95 * len(made)


def _is_dead(made: Sequence[tuple[Episode, Call]]) -> bool:
    """Its failures are not about what was asked: they speak of a breakdown, or are the same for whatever is asked. So may the
    answers of a working tool be (`{"sent": true}`), unless they say nothing."""
    results = [call.result for _, call in made]
    if len(made) >= 5 and sum(_FAILED.search(result) is not None for result in results) >= 0.95 * len(made):
        return True
    asked = {call.arguments for _, call in made}
    same = len(made) >= 10 and len(asked) >= 5 and len(set(results)) == 1
    return same and (_always_fails(made) or _says_nothing(results[0]))


def _tools_finding(
    cause: str, rank: Rank, calls: Mapping[str, Sequence[tuple[Episode, Call]]], names: Sequence[str], fix: str
) -> Finding | None:
    if not names:
        return None
    worst = max(names, key=lambda name: len(calls[name]))
    answer, _ = Counter(call.result for _, call in calls[worst]).most_common(1)[0]
    return Finding(
        cause,
        rank,
        sum(len(calls[name]) for name in names),
        sum(map(len, calls.values())),
        "tool calls",
        f"{worst!r} was (almost) never of use in {len(calls[worst])} calls; its usual answer: {answer[:80]!r}",
        f"{fix} ({', '.join(sorted(names))})",
        _places({episode.place: episode for episode, _ in calls[worst]}.values()),
    )


@check
def dead_tool(run: Run) -> Finding | None:
    calls = _calls_by_tool(run)
    dead = [name for name, made in calls.items() if _is_dead(made)]
    return _tools_finding(
        "dead tool", "broken", calls, dead, "call the tool by hand; take it off the list until it works"
    )


@check
def refused_tool(run: Run) -> Finding | None:
    calls = _calls_by_tool(run)
    refused = [name for name, made in calls.items() if _always_fails(made) and not _is_dead(made)]
    fix = (
        "read the refusals: the policy asks for what can't be had, or the tool's description does not say what it takes"
    )
    return _tools_finding("tool always refused", "symptom", calls, refused, fix)


# --- the trainer's own numbers ------------------------------------------------------------------------------------------


def _series(metrics: Sequence[Metrics], *names: str) -> list[float]:
    """The first of these metrics that the run has; a name also matches behind a prefix (`actor/lr`)."""
    for name in names:
        found = [row[key] for row in metrics for key in row if key == name or key.endswith("/" + name)]
        if found:
            return found
    return []


@check
def zero_learning_rate(run: Run) -> Finding | None:
    rates = _series(run.metrics, "lr", "learning_rate")
    if not rates or max(rates) > 0.0:
        return None
    return Finding(
        "zero learning rate",
        "broken",
        len(rates),
        len(rates),
        "updates",
        "the learning rate is 0 in every update: the policy never changes",
        "check the schedule: warm-up longer than the run, total steps of 0, or a decay that had ended at resume",
    )


@check
def kl_too_high(run: Run) -> Finding | None:
    reference = ("reference_kl", "kl_ref", "ref_kl")
    # A bare `kl` is that of the update where the other one has a name of its own, and that of the reference elsewhere (TRL).
    named = bool(_series(run.metrics, *reference))
    update = ("ppo_kl", "approx_kl", "policy_kl")
    for names, limit, what in (
        ((*update, "kl") if named else update, 0.1, "between the policies before and after an update"),
        (reference if named else ("kl", "kl_loss"), 1.0, "from the reference policy, per token"),
    ):
        values = _series(run.metrics, *names)
        late = values[len(values) // 2 :]
        high = [value for value in late if value > limit]
        if late and len(high) * 2 > len(late):
            clipped = _series(run.metrics, "clip_fraction", "pg_clipfrac", "clip_ratio", "region_mean")
            more = f"; {fmean(clipped):.0%} of the ratios are clipped" if clipped else ""
            return Finding(
                "KL too high",
                "broken",
                len(high),
                len(late),
                "late updates",
                f"KL {what}: median {median(late):.3g}, usual is below {limit:g}{more}",
                "lower the learning rate or the epochs per batch, stop an update at a KL target; check that sampler and "
                "learner use the same weights and temperature",
            )
    return None


# --- prompts and templates ----------------------------------------------------------------------------------------------


@check
def cut_prompts(run: Run) -> Finding | None:
    lengths = [e.prompt_tokens for e in run.episodes if e.prompt_tokens is not None]
    exact = len(lengths) >= 8
    episodes = [e for e in run.episodes if e.prompt_tokens is not None] if exact else run.episodes
    sizes = lengths if exact else [len(e.prompt) for e in run.episodes]
    if len(sizes) < 8:
        return None
    longest = max(sizes)
    at_limit = [e for e, size in zip(episodes, sizes, strict=True) if size == longest]
    # Prompts of different texts that all have exactly the greatest length seldom came by it naturally.
    texts = {e.prompt for e in at_limit}
    if len(texts) < 4 or len(at_limit) < 0.1 * len(sizes) or len(set(sizes)) < 3:
        return None
    if exact and _whole(at_limit, [e for e in episodes if e.prompt_tokens != longest]):
        return None
    unit = "tokens" if exact else "characters"
    return Finding(
        "cut prompts",
        "broken",
        len(at_limit),
        len(sizes),
        "episodes",
        f"{len(texts)} different prompts have exactly {longest} {unit}: the rest was cut off",
        "raise the prompt limit, or leave tasks out whose prompt does not fit; a cut prompt hides the task or the tools",
        _places(at_limit),
    )


def _whole(longest: Sequence[Episode], shorter: Sequence[Episode]) -> bool:
    """Whether prompts begin and end as all shorter ones do, and hold no more text per token: they just are that long (a kind of
    room always has so many places, say)."""
    ends = []
    for episodes in (longest, shorter):
        found = [e.trajectory.path()[0].tokens for e in episodes if e.trajectory is not None]
        contexts = [tokens.context_ids for tokens in found if tokens is not None]
        if len(contexts) < len(episodes):
            return False
        ends.append({(ids[:1], ids[-1:]) for ids in contexts})
    densest = [max(len(e.prompt) / (e.prompt_tokens or 1) for e in episodes) for episodes in (longest, shorter)]
    return len(ends[0]) == 1 and ends[0] == ends[1] and densest[0] <= 1.05 * densest[1]


_MARKERS: Final = re.compile(
    r"<\|im_start\|>|<\|im_end\|>\s*\S|<\|start_header_id\|>|<\|eot_id\|>|\[/?INST\]|<start_of_turn>|<\|(?:user|assistant|system)\|>"
    r"|<\|start\|>|<\uff5c(?:User|Assistant)\uff5c>|(?:^|\n)(?:### ?)?(?:User|Human|Observation):",
)


@check
def wrong_template(run: Run) -> Finding | None:
    hit = [e for e in run.episodes if any(_MARKERS.search(said.text) for said in e.said)]
    if len(run.episodes) < 4 or len(hit) < 0.1 * len(run.episodes):
        return None
    example = next(m.group(0).strip() for e in hit for s in e.said if (m := _MARKERS.search(s.text)))
    return Finding(
        "wrong chat template",
        "broken",
        len(hit),
        len(run.episodes),
        "episodes",
        f"the policy writes role markers and speaks for the others ({example!r}): its turns do not end where they should",
        "use the template and the end-of-turn token that the model was trained with, in the sampler and in the trainer",
        _places(hit),
    )


@check
def template_not_prefix_stable(run: Run) -> Finding | None:
    if run.windowed:
        return None
    turns = restarts = 0
    hit = []
    for episode in run.episodes:
        if episode.trajectory is None:
            continue
        later = [t for t in episode.trajectory.path()[1:] if t.tokens is not None]
        again = sum(t.tokens.restart for t in later if t.tokens is not None)
        turns, restarts = turns + len(later), restarts + again
        if again:
            hit.append(episode)
    if not restarts:
        return None
    return Finding(
        "template not prefix-stable",
        "symptom",
        restarts,
        turns,
        "turns after the first",
        "the chat template rewrites earlier turns, so each turn is a training sample of its own",
        "correct, but costs tokens; a template that keeps the past gives one sample per episode",
        _places(hit),
    )


# --- symptoms -----------------------------------------------------------------------------------------------------------


@check
def zero_variance_groups(run: Run) -> Finding | None:
    groups: dict[str, list[Episode]] = defaultdict(list)
    for episode in run.episodes:
        if episode.group:
            groups[episode.group].append(episode)
    several = [members for members in groups.values() if len(members) > 1]
    flat = [m for m in several if max(e.reward for e in m) - min(e.reward for e in m) < 1e-9]
    if not several or len(flat) < 0.5 * len(several):
        return None
    causes = Counter("all high" if m[0].reward > 0 else "none earned anything" for m in flat)
    return Finding(
        "zero-variance groups",
        "ineffective",
        len(flat),
        len(several),
        "groups",
        "all attempts earned the same (" + ", ".join(f"{n} {c}" for c, n in causes.most_common()) + "): no gradient",
        "calibrate the tasks (`toolverse tasks calibrate`), sample groups dynamically, or pay for milestones",
        _places(members[0] for members in flat),
    )


@check
def parse_errors(run: Run) -> Finding | None:
    said = [(e, s) for e in run.episodes for s in e.said]
    bad = [(e, s) for e, s in said if s.error is not None]
    if not said or len(bad) < 0.1 * len(said):
        return None
    kinds = Counter(s.error for _, s in bad)
    return Finding(
        "parse errors",
        "symptom",
        len(bad),
        len(said),
        "messages",
        ", ".join(f"{n} {kind}" for kind, n in kinds.most_common(3)),
        "show the format in the prompt, or warm up on demonstrations (`toolverse export --to sft`)",
        _places({e.place: e for e, _ in bad}.values()),
    )


@check
def truncation(run: Run) -> Finding | None:
    known = [e for e in run.episodes if e.truncated is not None]
    cut = [e for e in known if e.truncated]
    messages = sum(s.cut for e in run.episodes for s in e.said)
    if not known or len(cut) < 0.2 * len(known):
        return None
    return Finding(
        "truncation",
        "symptom",
        len(cut),
        len(known),
        "episodes",
        "cut off before their end" + (f"; {messages} messages ran into their token limit" if messages else ""),
        "raise max_turns or max_tokens, or make sure that truncated episodes are bootstrapped and not scored as failures",
        _places(cut),
    )
