"""Nothing of JAX or TensorFlow is ever imported: proven by forbidding it, because it may well be installed."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

pytest.importorskip("torch")

TESTS = Path(__file__).resolve().parents[2]

SCRIPT = '''
import importlib, importlib.abc, importlib.machinery, pkgutil, sys, tempfile
from pathlib import Path

FORBIDDEN = {"jax", "jaxlib", "flax", "optax", "chex", "orbax", "haiku", "tensorflow"}

class Guard(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Forbidden packages look installed; importing one fails. (PyTorch asks for their specs, which is no import.)"""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in FORBIDDEN:
            return importlib.machinery.ModuleSpec(name, self)

    def exec_module(self, module):
        raise ImportError(f"{module.__name__} is forbidden")

sys.meta_path.insert(0, Guard())
for module in pkgutil.walk_packages(importlib.import_module("toolverse").__path__, "toolverse."):
    if module.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(module.name)
    except ImportError as error:  # an adapter whose trainer is not installed
        assert module.name.startswith("toolverse.adapters."), module.name
        assert "forbidden" not in str(error), (module.name, error)
from learner_kit import small_recipe
from toolverse.learner.train import train_recipe
from toolverse.rollout.export import export
from toolverse.rollout.files import read_trajectories
blocks = {"boxes": 1, "size": [5, 5], "min_pushes": 1, "max_turns": 3, "prompt": "hiper"}
hae = small_recipe(updates=1, credit__estimator="hae", credit__settings={}, env__settings=blocks, policy__max_new_tokens=24)
for recipe in (small_recipe(updates=1), hae):
    folder = Path(tempfile.mkdtemp())
    train_recipe(recipe, folder)
assert export(read_trajectories(folder / "trajectories.jsonl"), folder / "rows.parquet", "hf")
assert not FORBIDDEN & {name.partition(".")[0] for name in sys.modules}
print("clean")
'''


def test_cloning_ppo_and_hae_run_without_jax() -> None:
    path = os.pathsep.join([str(TESTS.parent), str(TESTS)])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=environment, check=False)
    assert done.stdout.endswith("clean\n"), done.stderr


def test_no_requirement_of_any_extra_brings_jax() -> None:
    """What toolverse and its extras need, and what that needs, as far as it is installed here."""
    requirements = pytest.importorskip("packaging.requirements")
    project = tomllib.loads((TESTS.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [
        *project["dependencies"],
        *(line for lines in project["optional-dependencies"].values() for line in lines),
    ]
    seen: set[tuple[str, frozenset[str]]] = set()
    names = set()
    while wanted:
        requirement = requirements.Requirement(wanted.pop())
        name, extras = requirement.name.lower().replace("_", "-"), frozenset(requirement.extras)
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        names.add(name)
        try:
            lines = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        for line in lines:
            marker = requirements.Requirement(line).marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
                wanted.append(line)
    assert {"torch", "transformers", "gymnasium", "numpy", "jinja2"} <= names
    assert not names & {"jax", "jaxlib", "flax", "optax", "chex", "orbax", "dm-haiku", "tensorflow"}
