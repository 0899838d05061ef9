"""Streams: whoever is answered first, episodes are those of playing alone, and a place is never shared."""

from functools import partial
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from rollout_toys import corridor

from toolverse.rollout import play
from toolverse.rollout.episode import Reply
from toolverse.rollout.policies import NoisyExpert
from toolverse.rollout.stream import play_stream

NOISY = partial(NoisyExpert, 0.5)


class Whimsical:
    """Answers some of those that asked, in an order of its own."""

    def __init__(self, whims: list[int]) -> None:
        self.name, self.most, self.now = NOISY().name, 0, 0
        self._whims = whims
        self._policies: dict[int, NoisyExpert] = {}
        self._asked: dict[int, Any] = {}

    def begin_stream(self, width: int) -> None:
        self.width = width

    def begin(self, index: int, env: Any, seed: int) -> None:
        assert index == len(self._policies)
        self._policies[index] = NOISY()
        self._policies[index].begin(env, seed)
        self.now += 1
        self.most = max(self.most, self.now)

    def ask(self, index: int, messages: Any, info: Any) -> None:
        assert index not in self._asked
        self._asked[index] = messages, info

    def answers(self) -> list[tuple[int, str | None]]:
        whim = self._whims.pop(0) if self._whims else 0
        order = sorted(self._asked, key=lambda index: (index * 7 + whim) % 5)
        return [(i, self._policies[i].act(*self._asked.pop(i))) for i in order[: 1 + whim % 3]]

    def end(self, index: int) -> None:
        self.now -= 1


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 4), st.integers(0, 7), st.lists(st.integers(0, 20), max_size=60))
def test_episodes_are_those_of_playing_alone(width: int, count: int, whims: list[int]) -> None:
    timing = {"turns": {"__all__": {"latency_s", "policy_latency_s"}}}
    policy = Whimsical(whims)
    found = list(play_stream([corridor() for _ in range(width)], policy, range(count), group_ids=["g"] * count))
    assert sorted(index for index, _, _ in found) == list(range(count))
    for index, trajectory, info in found:
        alone = play(corridor(), NOISY(), seed=index, group_id="g")
        assert trajectory.model_dump(exclude=timing) == alone.model_dump(exclude=timing)
        assert info["score"] == alone.score
    assert policy.most == policy.width == min(width, count)


def test_an_unfinished_message_ends_its_episode_only() -> None:
    class Cut(Whimsical):
        def answers(self) -> list[tuple[int, str | None]]:
            return [
                (i, Reply("ri", finish="length") if i == 1 else None if i == 2 else a) for i, a in super().answers()
            ]

    found = {i: t for i, t, _ in play_stream([corridor(), corridor()], Cut([]), [0, 1, 2, 3])}
    assert [t.truncation_reason for t in found[1].turns] == ["max_tokens"]
    assert found[2].metadata["ended"] == "policy_gave_up"
    assert found[0].turns[-1].terminated or found[0].turns[-1].truncation_reason == "max_turns"
    assert found[3].turns
