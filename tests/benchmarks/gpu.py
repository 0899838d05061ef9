"""The learner on an accelerator, in one command of at most eight minutes; every path also runs on a CPU with tiny shapes.

    python tests/benchmarks/gpu.py --json out.json              on a GPU: Qwen2.5 shapes with random weights
    python tests/benchmarks/gpu.py --cpu                        anywhere, seconds: the same code on toy shapes

Five parts: correctness (log-probabilities of sampler and learner, with and without CUDA graphs, packed rows against rows
alone), ceilings (matrix product, copy), sampling (a turn of all episodes at once in the middle of an append-only run), updates in
the shape of HiPER's ALFWorld runs (episodes x turns of 60 new and 40 sampled tokens) with tokens per second, share of the ceiling
and peak memory for both renderings, and a learning run of the bundled tiny policy. Figures are medians, `seconds` says what each
part took; nothing is asserted except correctness.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

SHAPES = {
    "tiny": {"hidden_size": 32, "intermediate_size": 64, "layers": 2, "heads": 4, "kv": 2, "vocabulary": 512},
    "0.5B": {"hidden_size": 896, "intermediate_size": 4864, "layers": 24, "heads": 14, "kv": 2, "vocabulary": 151_936},
    "1.5B": {"hidden_size": 1536, "intermediate_size": 8960, "layers": 28, "heads": 12, "kv": 2, "vocabulary": 151_936},
    "7B": {"hidden_size": 3584, "intermediate_size": 18_944, "layers": 28, "heads": 28, "kv": 4, "vocabulary": 151_936},
}


@dataclass(frozen=True)
class Plan:
    """How much is run: episodes and turns of an update, tokens of a turn, and of a repeated window."""

    shapes: tuple[str, ...]
    episodes: int
    turns: int
    new: int
    sampled: int
    window: int
    micro_tokens: int
    matrix: int


TINY = Plan(("tiny",), 2, 3, 6, 4, 12, 256, 64)
FULL = Plan(("0.5B", "1.5B", "7B"), 128, 50, 60, 40, 757, 32_768, 8192)


def build(shape: str, device: str, lora: int = 0) -> Any:
    """A backbone with random weights in a Qwen2.5 shape."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from toolverse.learner.pretrained import PretrainedModel

    s = SHAPES[shape]
    config = Qwen2Config(
        vocab_size=s["vocabulary"],
        hidden_size=s["hidden_size"],
        intermediate_size=s["intermediate_size"],
        num_hidden_layers=s["layers"],
        num_attention_heads=s["heads"],
        num_key_value_heads=s["kv"],
        max_position_embeddings=32_768,
        tie_word_embeddings=shape != "7B",
    )
    torch.manual_seed(0)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    with torch.device(device):
        model = Qwen2ForCausalLM(config).to(dtype)
    return PretrainedModel.wrap(model, lora=lora)


def correctness(device: str) -> dict[str, float]:
    """Largest differences of hidden states, on the toy shape in float32: packed against alone, sampled against read."""
    backbone = build("tiny", "cpu").float()
    rows = [list(range(1, n + 1)) for n in (5, 2, 7, 1)]
    lengths = torch.tensor([len(row) for row in rows])
    from toolverse.learner.sampler import pad

    with torch.no_grad():
        packed = backbone.hidden(pad(rows), torch.arange(4), lengths - 1, lengths)
        alone = torch.cat(
            [
                backbone.hidden(pad([row]), torch.tensor([0]), torch.tensor([len(row) - 1]), torch.tensor([len(row)]))
                for row in rows
            ]
        )
        cache = backbone.cache(4, 0)
        sampled = backbone.extend(cache, torch.arange(4), pad(rows), lengths)
    found = {
        "log_probabilities": sampled_log_probabilities(device),
        "packed": float((packed - alone).abs().max()),
        "sampled": float((packed - sampled).abs().max()),
    }
    assert max(found["packed"], found["sampled"]) < 1e-4, found
    return found


def sampled_log_probabilities(device: str) -> float:
    """Largest difference between what the sampler reports of its tokens and what the learner reads, in the type of the device.

    Three rows say twelve tokens each, are told two more and say twelve again: on a GPU most of it by CUDA graphs.
    """
    from toolverse.learner.policy import PolicyModel
    from toolverse.learner.sampler import choose, pad

    policy = PolicyModel(build("tiny", device), "none").to(device)
    backbone, paths, steps = policy.backbone, [[5, 9, 2], [7], [3, 3, 8, 1, 4]], 12
    cache, rows = backbone.cache(3, 0), torch.arange(3)
    at, targets, told = [], [], []
    news = [list(path) for path in paths]
    with torch.no_grad():
        for _ in range(2):
            for _ in range(steps):
                hidden = backbone.extend(cache, rows, pad(news), torch.tensor([len(new) for new in news]))
                chosen, logp = choose(backbone.logits(hidden).float(), 0.0, None)
                told.append(logp.cpu())
                news = [[token] for token in chosen.tolist()]
                for row, (path, new) in enumerate(zip(paths, news, strict=True)):
                    at.append((row, len(path) - 1))
                    targets += new
                    path += new
            for path, new in zip(paths, news, strict=True):
                new += [6, 1]
                path += [6, 1]
        places = torch.tensor(at)
        lengths = torch.tensor([len(path) for path in paths])
        hidden = backbone.hidden(pad(paths), places[:, 0], places[:, 1], lengths)
        read, _ = policy.log_probs(hidden, torch.tensor(targets))
    if device == "cuda":
        assert cache.graphs, "the step could not be captured as a CUDA graph"
    found = float((read.cpu() - torch.cat(told)).abs().max())
    limit = 1e-2 if device == "cuda" else 1e-4
    assert found < limit, f"sampler and learner differ by {found} nats, more than {limit}"
    return found


def sampling(shape: str, plan: Plan, device: str, bandwidth: float) -> dict[str, Any]:
    """A turn of all episodes at once in the middle of an append-only run: reading what is new, then one token after the other.

    `step_s` is one token for all, `eager_step_s` the same without CUDA graphs (on a CPU: with the shapes of the moment instead of
    the few that a GPU sees), `read_s` reading `plan.new` tokens each, `turn_s` one reading and `plan.sampled` steps, `generate_s`
    all turns of an update. `share_of_floor`: of the time that reading weights and keys once takes.
    """
    from toolverse.learner.sampler import choose
    from toolverse.learner.slots import USES, SlotCache

    backbone = build(shape, device)
    s, batch = SHAPES[shape], plan.episodes
    context = (plan.new + plan.sampled) * plan.turns // 2
    rows, ones = torch.arange(batch), torch.ones(batch, dtype=torch.long)
    uniform = torch.linspace(0, 0.99, batch, dtype=torch.float64)

    def some(count: int) -> torch.Tensor:
        return torch.randint(0, s["vocabulary"], (batch, count), device=device)

    found: dict[str, Any] = {"shape": shape, "episodes": batch, "context": context}
    for name, fixed in (("step_s", True), ("eager_step_s", False)):
        room = context + 8 * (plan.new + plan.sampled)
        trunk = backbone.cache(1, 1).trunk
        cache = SlotCache(trunk, batch, room, backbone.device, fixed=fixed, capture=fixed and device == "cuda")

        @torch.no_grad()
        def extend(count: int, cache: SlotCache = cache) -> torch.Tensor:
            hidden = backbone.extend(cache, rows, some(count), ones * count)
            return choose(backbone.logits(hidden).float(), 1.0, uniform)[0].cpu()

        extend(context)
        for _ in range(USES + 1):
            extend(1)
        found[name] = timed(lambda extend=extend: extend(1), device, repeats=8)
        if fixed:
            found["read_s"] = timed(lambda extend=extend: extend(plan.new), device)
            found["graphs"] = len(cache.graphs)
        del cache, extend
    size = 2 if device == "cuda" else 4
    keys = 2 * s["kv"] * s["hidden_size"] // s["heads"] * s["layers"] * size
    floor = (sum(p.numel() for p in backbone.parameters()) * size + batch * context * keys) / bandwidth
    turn = found["read_s"] + plan.sampled * found["step_s"]
    return {
        **found,
        "tokens_per_s": batch / found["step_s"],
        "share_of_floor": floor / found["step_s"],
        "turn_s": turn,
        "generate_s": plan.turns * turn,
    }


def timed(run: Callable[[], Any], device: str, repeats: int = 3) -> float:
    """Median seconds of a call, after one that does not count."""
    seconds = []
    for _ in range(repeats + 1):
        if device == "cuda":
            torch.cuda.synchronize()
        began = time.perf_counter()
        run()
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds[1:])


def ceilings(device: str, size: int) -> dict[str, float]:
    """FLOP/s of a matrix product and bytes/s of a copy."""
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    c = torch.empty_like(a)
    return {
        "matmul_flop_s": 2 * size**3 / timed(lambda: torch.mm(a, b, out=c), device),
        "copy_bytes_s": 2 * a.numel() * a.element_size() / timed(lambda: c.copy_(a), device),
    }


def update_seconds(shape: str, plan: Plan, rendering: str, device: str, ceiling: float) -> dict[str, Any]:
    """One pass forwards and backwards over an update's tokens, the head at sampled tokens only, and the optimiser's step."""
    from toolverse.learner.policy import PolicyModel

    lora = 16 if shape == "7B" else 0
    policy = PolicyModel(build(shape, device, lora), "shared").to(device)
    turn = plan.new + plan.sampled
    if rendering == "append_only":
        row, rows, said = turn * plan.turns, plan.episodes, plan.sampled * plan.turns
    else:
        row, rows, said = plan.window + plan.sampled, plan.episodes * plan.turns, plan.sampled
    per_micro = max(1, min(plan.micro_tokens // row, rows))
    ids = torch.randint(0, SHAPES[shape]["vocabulary"], (per_micro, row), device=device)
    lengths = torch.full((per_micro,), row, device=device)
    step = turn if rendering == "append_only" else row
    places = torch.arange(row, device=device)
    columns = places[(places % step) >= step - plan.sampled] - 1
    columns = columns.repeat(per_micro)
    at = torch.arange(per_micro, device=device).repeat_interleave(said)
    trained = [p for p in policy.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-6, fused=device == "cuda")
    targets = ids.flatten()[: len(columns)] if len(columns) <= ids.numel() else ids.flatten()

    def micro() -> None:
        logp, _ = policy.log_probs(policy.backbone.hidden(ids, at, columns, lengths), targets)
        (-logp.mean()).backward()

    def step_weights() -> None:
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    seconds = timed(micro, device)
    stepping = timed(step_weights, device)
    total = rows * row
    count = (
        sum(p.numel() for p in policy.backbone.parameters())
        - SHAPES[shape]["vocabulary"] * SHAPES[shape]["hidden_size"]
    )
    flop = (4 if lora else 6) * count * per_micro * row
    return {
        "shape": shape,
        "rendering": rendering,
        "lora": lora,
        "update_tokens": total,
        "tokens_per_s": per_micro * row / seconds,
        "update_s": seconds * rows / per_micro + stepping,
        "share_of_ceiling": flop / seconds / ceiling,
        "peak_bytes": torch.cuda.max_memory_allocated() if device == "cuda" else None,
    }


def learning(tiny: bool) -> dict[str, Any]:
    """The bundled tiny policy learns Sokoban (on the CPU of the machine: it is far too small for an accelerator)."""
    from toolverse.learner.recipe import load
    from toolverse.learner.train import train_recipe

    small = {"clone.episodes": 16, "clone.epochs": 1, "updates": 1, "episodes": 8, "held_out_episodes": 8}
    with tempfile.TemporaryDirectory() as folder:
        return train_recipe(load("sokoban-tiny", small if tiny else {"updates": 30}), Path(folder) / "run")


def run(plan: Plan, device: str) -> dict[str, Any]:
    """All parts, as JSON."""
    out: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "torch": torch.__version__,
        "seconds": {},
    }

    def part(name: str, does: Callable[[], Any]) -> None:
        began = time.perf_counter()
        out[name] = does()
        out["seconds"][name] = round(time.perf_counter() - began, 1)
        print(json.dumps({name: out[name]}), file=sys.stderr)

    def each(does: Callable[[], Any]) -> Any:
        found = does()
        if device == "cuda":
            torch.cuda.empty_cache()
        return found

    part("correctness", lambda: correctness(device))
    part("ceilings", lambda: ceilings(device, plan.matrix))
    matmul, copy = (out["ceilings"][name] for name in ("matmul_flop_s", "copy_bytes_s"))
    part("sampling", lambda: [each(lambda s=s: sampling(s, plan, device, copy)) for s in plan.shapes])
    cases = [(shape, rendering) for shape in plan.shapes for rendering in ("append_only", "windowed")]
    part("updates", lambda: [each(lambda c=c: update_seconds(c[0], plan, c[1], device, matmul)) for c in cases])
    part("learning", lambda: learning(plan is TINY))
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cpu", action="store_true", help="toy shapes, on the CPU")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() and not arguments.cpu else "cpu"
    found = run(TINY if device == "cpu" else FULL, device)
    text = json.dumps(found, indent=1)
    if arguments.json is not None:
        arguments.json.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
