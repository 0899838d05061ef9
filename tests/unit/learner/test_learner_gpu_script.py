"""The GPU benchmark's paths, on toy shapes."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("learner_gpu_benchmark", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_packed_and_sampled_states_agree(script: ModuleType) -> None:
    assert max(script.correctness("cpu").values()) < 1e-4


@pytest.mark.parametrize("rendering", ["append_only", "windowed"])
def test_an_update_of_either_rendering_is_counted(script: ModuleType, rendering: str) -> None:
    found = script.update_seconds("tiny", script.TINY, rendering, "cpu", 1e9)
    turns, tokens = script.TINY.episodes * script.TINY.turns, script.TINY.new + script.TINY.sampled
    if rendering == "windowed":
        tokens = script.TINY.window + script.TINY.sampled
    assert found["update_tokens"] == turns * tokens
    assert found["update_s"] > 0


def test_a_turn_of_sampling_is_measured_against_its_floor(script: ModuleType) -> None:
    found = script.sampling("tiny", script.TINY, "cpu", 1e9)
    assert found["context"] == script.TINY.turns * (script.TINY.new + script.TINY.sampled) // 2
    assert min(found[name] for name in ("step_s", "eager_step_s", "read_s", "share_of_floor")) > 0
    assert found["turn_s"] == found["read_s"] + script.TINY.sampled * found["step_s"]
    assert found["generate_s"] == script.TINY.turns * found["turn_s"]
