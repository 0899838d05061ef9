"""Sampling with a transformers model on one CPU thread: slots against `generate`, and streams against turns in step.

    python tests/benchmarks/bench_sampler.py [--json] [--repeats R]

A Qwen2-shaped model of random weights (4 layers of 128, 4,096 words). Reading: episodes of ten turns, each with 60 new tokens
from the environment and 20 that are sampled; `generate` reads the chat again at each turn, as a rollout loop over it does.
Waiting: messages of 2 to 80 tokens, 20 on average, drawn beforehand; in step everybody waits for the longest of a turn, in a
stream nobody does (`sampler.Sampler` decides when contexts are read). Figures are sampled tokens per CPU-second, medians.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))

from bench_learner import build, noise

from toolverse.learner.pretrained import PretrainedModel
from toolverse.learner.sampler import WORTH, pad

VOCABULARY, TURNS, NEW, SAID = 4_096, 10, 60, 20


def context(episode: int, turn: int) -> list[int]:
    """What the environment says."""
    return [noise(episode * 1_000_003 + turn * 1_009 + k, VOCABULARY) for k in range(NEW)]


def length(episode: int, turn: int) -> int:
    """Tokens of a message: geometric, 20 on average, 2 to 80."""
    draw = (noise(episode * 7_919 + turn, 10**6) + 0.5) / 10**6
    return min(max(math.ceil(math.log(draw) / math.log(1 - 1 / 20)), 2), 80)


def by_generate(model: Any, episodes: int) -> int:
    """transformers' own sampling, once a turn."""
    paths: list[list[int]] = [[] for _ in range(episodes)]
    for turn in range(TURNS):
        for episode, path in enumerate(paths):
            path += context(episode, turn)
        ids = torch.tensor(paths)
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            min_new_tokens=SAID,
            max_new_tokens=SAID,
            pad_token_id=0,
        )
        paths = out.tolist()
    return episodes * TURNS * SAID


def by_slots(net: PretrainedModel, episodes: int, *, again: bool = False) -> int:
    """The same with slots. again: forget everything between turns, and read it again."""
    cache, rows = net.cache(episodes, 64), torch.arange(episodes)
    paths: list[list[int]] = [[] for _ in range(episodes)]
    for turn in range(TURNS):
        news = [[*path[-1:], *context(episode, turn)] for episode, path in enumerate(paths)]
        for path, new in zip(paths, news, strict=True):
            path += new[-NEW:]
        if again:
            cache.forget(rows)
        chunks = paths if again else news
        for _ in range(SAID):
            hidden = net.extend(cache, rows, pad(chunks), torch.tensor([len(chunk) for chunk in chunks]))
            chunks = [[token] for token in net.logits(hidden).argmax(-1).tolist()]
            for path, new in zip(paths, chunks, strict=True):
                path += new
    return episodes * TURNS * SAID


def by_schedule(net: PretrainedModel, episodes: int, slots: int, *, stream: bool) -> int:
    """Messages of different lengths. Without `stream`, `slots` episodes play in step, then the next ones."""
    cache = net.cache(slots, 64)
    free, waiting = list(range(slots)), list(range(episodes))
    row: dict[int, int] = {}
    turn: dict[int, int] = {}
    left: dict[int, int] = {}  # of those in the middle of a message, how many tokens are to come
    asking: list[int] = []
    sampled = 0
    while waiting or row:
        starting = min(len(free), len(waiting)) if stream or not row else 0
        for episode in waiting[:starting]:
            row[episode], turn[episode] = free.pop(0), 0
            cache.forget(torch.tensor([row[episode]]))
            asking.append(episode)
        waiting = waiting[starting:]
        reads = WORTH * len(asking) >= len(asking) + len(left) if stream else not left
        if reads:
            chunks = {e: [1] * (turn[e] > 0) + context(e, turn[e]) for e in asking}
            left |= {e: length(e, turn[e]) for e in asking}
            asking = []
        else:
            chunks = {e: [1] for e in left}
        rows = torch.tensor([row[e] for e in chunks])
        hidden = net.extend(cache, rows, pad(list(chunks.values())), torch.tensor([len(c) for c in chunks.values()]))
        net.logits(hidden).argmax(-1).tolist()
        sampled += len(chunks)
        for e in chunks:
            left[e] -= 1
            if left[e]:
                continue
            del left[e]
            turn[e] += 1
            if turn[e] < TURNS:
                asking.append(e)
            else:
                free.append(row.pop(e))
    return sampled


def rate(run: Callable[[], int], repeats: int) -> float:
    """Tokens per CPU-second, the median of some runs."""
    found = []
    for _ in range(repeats):
        began = time.process_time()
        tokens = run()
        found.append(tokens / (time.process_time() - began))
    return statistics.median(found)


@torch.no_grad()
def measure(repeats: int) -> dict[str, dict[str, float]]:
    """All figures."""
    plain, net = build(VOCABULARY), PretrainedModel.wrap(build(VOCABULARY))
    out: dict[str, dict[str, float]] = {}
    by_generate(plain, 1), by_slots(net, 1)  # what is made at a first call does not count
    for episodes in (1, 16):
        out[f"{episodes} episodes, 20 tokens a turn"] = {
            "generate": rate(lambda n=episodes: by_generate(plain, n), repeats),
            "slots, read again": rate(lambda n=episodes: by_slots(net, n, again=True), repeats),
            "slots": rate(lambda n=episodes: by_slots(net, n), repeats),
        }
    out["24 episodes, 8 at a time, 2 to 80 tokens a turn"] = {
        "in step": rate(lambda: by_schedule(net, 24, 8, stream=False), repeats),
        "stream": rate(lambda: by_schedule(net, 24, 8, stream=True), repeats),
    }
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found = measure(arguments.repeats)
    for case, rates in found.items():
        print(case, file=sys.stderr)
        for name, value in rates.items():
            print(f"    {name:<20}{value:>8.0f} tokens per CPU-second", file=sys.stderr)
    if arguments.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
