"""The tiny policy: what it computes does not depend on how it is asked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from toolverse.errors import InvalidInputError  # noqa: E402
from toolverse.learner.policy import PolicyModel, parameter_count  # noqa: E402
from toolverse.learner.sampler import pad  # noqa: E402
from toolverse.learner.tiny import TinyConfig, TinyModel  # noqa: E402

ROWS = ([1, 2, 3, 4, 5], [6, 7], [8, 9, 10, 11, 12, 13, 14], [3])


KINDS: list[dict[str, Any]] = [
    {},
    {"parts": [[k % 4, 4] for k in range(20)]},
    {"layers": 1},
    {"recent": 2},
    {"copies": True, "matches": 2},
    {"layers": 1, "recent": 3, "copies": True, "alike": True},
]


def model(**changes: Any) -> TinyModel:
    torch.manual_seed(0)
    parts = changes.pop("parts", ())
    return TinyModel(TinyConfig(20, **{"width": 16, "layers": 3, "heads": 2, "places": 4, **changes}), parts)


def last_states(net: TinyModel) -> torch.Tensor:
    lengths = torch.tensor([len(row) for row in ROWS])
    return net.hidden(pad(ROWS), torch.arange(len(ROWS)), lengths - 1)


@pytest.mark.parametrize("kind", KINDS)
def test_padding_does_not_reach_a_row(kind: dict[str, Any]) -> None:
    net = model(**kind)
    alone = torch.cat([net.hidden(pad([row]), torch.tensor([0]), torch.tensor([len(row) - 1])) for row in ROWS])
    assert torch.allclose(last_states(net), alone, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_reading_many_positions_gives_what_reading_one_gives(kind: dict[str, Any]) -> None:
    net = model(**kind)
    ids = pad(ROWS)
    rows, columns = torch.tensor([2, 0, 2, 1, 0]), torch.tensor([6, 4, 1, 0, 2])
    together = net.hidden(ids, rows, columns)
    apart = torch.cat([net.hidden(ids, rows[k : k + 1], columns[k : k + 1]) for k in range(5)])
    assert torch.allclose(together, apart, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_the_cache_continues_rows_of_different_lengths(kind: dict[str, Any]) -> None:
    net = model(**kind)
    cache = net.cache(6, 2)  # too small at first, and with rows that nobody uses
    slots = torch.tensor([4, 1, 0, 2])
    first = [row[:1] for row in ROWS]
    net.extend(cache, slots, pad(first), torch.tensor([1, 1, 1, 1]))
    rest = [k for k, row in enumerate(ROWS) if len(row) > 1]
    middle = [ROWS[k][1:-1] or ROWS[k][1:] for k in rest]
    last = net.extend(cache, slots[rest], pad(middle), torch.tensor([len(m) for m in middle]))
    tails = [k for k in rest if len(ROWS[k]) > 2]
    ends = net.extend(cache, slots[tails], pad([ROWS[k][-1:] for k in tails]), torch.ones(len(tails), dtype=torch.long))
    expected = last_states(net)
    assert torch.allclose(ends, expected[tails], atol=1e-5)
    assert torch.allclose(last[rest.index(1)], expected[1], atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_forgotten_row_starts_anew(kind: dict[str, Any]) -> None:
    net = model(**kind)
    cache = net.cache(1, 8)
    row = torch.tensor([0])
    net.extend(cache, row, torch.tensor([[5, 6, 7]]), torch.tensor([3]))
    cache.forget(row)
    again = net.extend(cache, row, torch.tensor([[1, 2, 3, 4, 5]]), torch.tensor([5]))
    assert torch.allclose(again[0], last_states(net)[0], atol=1e-5)


def test_a_model_that_copies_learns_in_seconds_to_say_what_stood_after_the_same_token() -> None:
    """Sequences "a b ... a" -> b over 50 words."""

    def right_after(steps: int, **changes: Any) -> float:
        torch.manual_seed(0)
        random = np.random.Generator(np.random.PCG64(0))
        net = TinyModel(TinyConfig(50, **{"width": 32, "layers": 1, "heads": 4, "places": 0, "recent": 1, **changes}))
        optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
        rows, columns = torch.arange(64), torch.full((64,), 12)
        found = []
        for _ in range(steps):
            ids = np.stack([random.permutation(50)[:12] for _ in rows])
            asked = random.integers(0, 11, len(rows))
            target = torch.from_numpy(ids[rows, asked + 1])
            question = torch.from_numpy(np.concatenate([ids, ids[rows, asked][:, None]], axis=1))
            logits = net.logits(net.hidden(question, rows, columns))
            found.append(float((logits.argmax(-1) == target).float().mean()))
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(logits, target).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        return float(np.mean(found[-10:]))

    plain, copying, comparing = right_after(80), right_after(80, copies=True), right_after(80, copies=True, alike=True)
    assert plain < 0.4 < copying - 0.1
    assert comparing > copying


def test_a_token_shares_the_embeddings_of_the_words_in_it() -> None:
    torch.manual_seed(0)
    net = TinyModel(TinyConfig(3, width=16, layers=1, heads=2), parts=[[], [0, 1], [1]])
    assert net.words is not None
    own, words = net.embedding.weight, net.words.weight
    assert torch.equal(net.table()[0], own[0])
    assert torch.allclose(net.table()[1], own[1] + words[0] + words[1])
    assert torch.allclose(net.table()[2], own[2] + words[1])


def likeliest(net: TinyModel, row: list[int]) -> int:
    hidden = net.hidden(pad([row]), torch.tensor([0]), torch.tensor([len(row) - 1]))
    return int(net.logits(hidden).argmax())


def test_with_matches_an_untrained_model_goes_on_with_what_it_has_begun_to_copy() -> None:
    torch.manual_seed(0)
    net = TinyModel(TinyConfig(200, width=64, layers=1, heads=4, places=0, copies=True, matches=3))
    torch.manual_seed(1)
    for _ in range(20):
        text = torch.randperm(200)[:40].tolist()
        begun = int(torch.randint(0, 36, ()))
        assert likeliest(net, [*text, *text[begun : begun + 3]]) == text[begun + 3]


def test_the_longest_match_wins_and_only_an_unbroken_one_counts() -> None:
    torch.manual_seed(0)
    net = TinyModel(TinyConfig(50, width=64, layers=1, heads=4, places=0, copies=True, matches=3))
    # 3 came after "1 2" and after "9 2"; after "8 1 2" came 5, and after "8 7 2" 6.
    assert likeliest(net, [1, 2, 3, 9, 2, 3, 8, 1, 2, 5, 8, 7, 2, 6, 8, 1, 2]) == 5


def test_a_match_sees_neither_later_tokens_nor_those_before_the_first() -> None:
    net = model(copies=True, matches=3)
    assert net.pointer is not None
    assert net.pointer.match is not None
    ids = torch.tensor([[1, 2, 1, 2]])
    scores = net.pointer.seen(ids, torch.tensor([[0, 1, 2, 3]]))[0]
    assert torch.equal(scores > -torch.inf, torch.ones(4, 4).tril().bool().expand_as(scores))
    one, two = net.pointer.match[:, 0], net.pointer.match[:, 0] + net.pointer.match[:, 1]
    assert torch.equal(scores[:, 2, 1], one)  # "1" stood before place 1, and nothing before it
    assert torch.equal(scores[:, 3, 2], two)
    assert torch.equal(scores[:, 3, [0, 1, 3]], torch.zeros(2, 3))


def test_matches_are_scores_of_the_pointer() -> None:
    with pytest.raises(InvalidInputError, match="without copies"):
        TinyConfig(20, matches=2)


def test_a_separate_critic_starts_as_a_copy_of_the_policy() -> None:
    both = PolicyModel(model(), "separate")
    shared = PolicyModel(model(), "shared")
    assert parameter_count(both) == 2 * parameter_count(shared) - parameter_count(both.heads)
    with torch.no_grad():
        both.backbone.embedding.weight.add_(1.0)
    both.start_critic()
    assert both.critic_backbone is not None
    assert torch.equal(both.critic_backbone.embedding.weight, both.backbone.embedding.weight)


def test_log_probabilities_and_entropy_are_those_of_a_softmax() -> None:
    policy = PolicyModel(model(), "none")
    hidden = torch.randn(7, 16)
    targets = torch.tensor([0, 1, 2, 3, 4, 5, 6])
    logp, entropy = policy.log_probs(hidden, targets, temperature=0.7)
    p = torch.softmax(policy.backbone.logits(hidden) / 0.7, dim=-1)
    assert torch.allclose(logp, p.log()[torch.arange(7), targets], atol=1e-5)
    assert torch.allclose(entropy, -(p * p.log()).sum(-1), atol=1e-5)
