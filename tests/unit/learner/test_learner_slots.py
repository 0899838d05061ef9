"""Keys and values in slots: whatever is fed, stepped and forgotten in which order, states are those of rows read alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from learner_kit import random_language_model  # noqa: E402

from toolverse.learner import slots as module  # noqa: E402
from toolverse.learner.pretrained import PretrainedModel  # noqa: E402
from toolverse.learner.sampler import pad  # noqa: E402
from toolverse.learner.slots import SlotCache, attend  # noqa: E402

ROWS = 5
NET = PretrainedModel.wrap(random_language_model())


def trunk_of(net: PretrainedModel) -> Any:
    return net.cache(1, 1).trunk


def alone(path: list[int]) -> Any:
    """The state after a path, read in one piece by what the learner reads with."""
    at = torch.tensor([len(path) - 1])
    with torch.no_grad():
        return NET.hidden(pad([path]), torch.tensor([0]), at, at + 1)[0]


TEXTS = st.lists(st.integers(0, 299), min_size=1, max_size=9)
MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("feed"), st.dictionaries(st.integers(0, ROWS - 1), TEXTS, min_size=1)),
        st.tuples(st.just("step"), st.dictionaries(st.integers(0, ROWS - 1), st.integers(0, 299), min_size=1)),
        st.tuples(st.just("forget"), st.sets(st.integers(0, ROWS - 1), min_size=1)),
    ),
    min_size=3,
    max_size=12,
)


@settings(max_examples=30, deadline=None)
@given(MOVES, st.booleans(), st.sampled_from([2, module.BLOCK]), st.sampled_from([4, module.FEED]))
def test_states_are_those_of_each_row_read_alone(moves: list[Any], fixed: bool, block: int, most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK", block)  # with small blocks, every few tokens want a larger buffer
        patch.setattr(module, "FEED", most)
        cache = SlotCache(trunk_of(NET), ROWS, 1, torch.device("cpu"), fixed=fixed)
        paths: list[list[int]] = [[] for _ in range(ROWS)]
        for kind, what in moves:
            if kind == "forget":
                cache.forget(torch.tensor(sorted(what)))
                for row in what:
                    paths[row] = []
                continue
            new = {row: ids if kind == "feed" else [ids] for row, ids in what.items() if kind == "feed" or paths[row]}
            if not new:
                continue
            for row, ids in new.items():
                paths[row] += ids
            lengths = torch.tensor([len(ids) for ids in new.values()])
            found = NET.extend(cache, torch.tensor(list(new)), pad(list(new.values())), lengths)
            for row, state in zip(new, found, strict=True):
                assert torch.allclose(state, alone(paths[row]), atol=1e-5)
        assert cache.counts == [len(path) for path in paths]


def test_steps_have_few_shapes() -> None:
    seen = set()

    def trunk(ids: Any, positions: Any, mask: Any, cache: SlotCache, lengths: Any) -> Any:
        seen.add((len(ids), mask.shape[-1]) if lengths is None else None)
        return trunk_of(NET)(ids, positions, mask, cache, lengths)

    cache = SlotCache(trunk, 6, 1, torch.device("cpu"), fixed=True)
    cache.feed(range(6), [torch.arange(n) for n in (1, 200, 3, 4, 5, 6)])
    for rows in ([0, 1, 2, 3, 4, 5], [0, 1, 2, 4, 5], [1, 3, 5], [1, 3], [1]):
        for _ in range(20):
            cache.step(rows, torch.zeros(len(rows), dtype=torch.long))
    assert seen == {None, (6, 256), (4, 256), (4, 512), (2, 512), (1, 512)}
    assert cache.stepped == 20 * (6 + 5 + 3 + 2 + 1)


class Recorded(SlotCache):
    """A GPU's graphs played on a CPU: what was captured is computed when it is replayed, into the same tensor."""

    def _run(self, reach: int, span: int) -> Any:
        self.running = reach, span
        return super()._run(reach, span)


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A stand-in for `torch.cuda`'s graphs, of the cache that is put into `graphs.of`."""
    found = SimpleNamespace(of=None, replays=0, tries=0, fails=False)

    class Graph:
        def replay(self) -> None:
            found.replays += 1
            found.of.graphs[self.shape][1].copy_(SlotCache._run(found.of, *self.shape))

    @contextmanager
    def graph(one: Graph, pool: Any) -> Iterator[None]:
        found.tries += 1
        yield
        if found.fails:
            raise RuntimeError("operation not permitted when stream is capturing")
        one.shape = found.of.running

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", graph)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", object)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    return found


def say(graphs: Any, steps: int) -> SlotCache:
    """Three rows, of which one stops halfway, through a cache that captures; checked against rows read alone."""
    cache = graphs.of = Recorded(trunk_of(NET), 3, 1, torch.device("cpu"), capture=True)
    paths = [[1, 2], [3], [4, 5, 6]]
    NET.extend(cache, torch.arange(3), pad(paths), torch.tensor([2, 1, 3]))
    for step in range(steps):
        rows = [0, 1, 2] if step < steps // 2 else [0, 2]
        new = [[(7 * step + row) % 300] for row in rows]
        found = NET.extend(cache, torch.tensor(rows), torch.tensor(new), torch.ones(len(rows), dtype=torch.long))
        for row, ids, state in zip(rows, new, found, strict=True):
            paths[row] += ids
            assert torch.allclose(state, alone(paths[row]), atol=1e-5)
    return cache


def test_shapes_are_captured_once_they_were_used_and_replayed_from_then_on(
    graphs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BLOCK", 16)
    cache = say(graphs, 40)
    assert all(reach in (2, 3) and span <= cache.capacity for reach, span in cache.graphs)
    assert graphs.replays > 3 * graphs.tries > 0


def test_a_model_that_can_not_be_captured_is_sampled_without(graphs: Any) -> None:
    graphs.fails = True
    with pytest.warns(UserWarning, match="without CUDA graphs: operation not permitted"):
        cache = say(graphs, 20)
    assert (graphs.tries, graphs.replays, cache.graphs) == (1, 0, {})


@pytest.mark.parametrize(("heads", "n"), [(2, 1), (2, 3), (6, 1), (6, 3)])
def test_shared_keys_are_not_copied_and_give_the_same(heads: int, n: int) -> None:
    query, key, value = (torch.randn(1, h, m, 8) for h, m in ((heads, n), (2, 7), (2, 7)))
    mask = torch.ones(n, 7, dtype=torch.bool).tril(7 - n)
    copied = [x.repeat_interleave(heads // 2, 1) for x in (key, value)]
    expected = torch.nn.functional.scaled_dot_product_attention(query, *copied, attn_mask=mask)
    assert torch.allclose(attend(query, key, value, mask, None), expected, atol=1e-6)
