"""Recipes: everything that decides a training run, as one typed object and one small TOML file.

`load("sokoban-tiny")` reads the bundled file, `load("path/to/mine.toml")` a file of your own, and `with_settings` changes single
fields (`--set update.epochs=4`). A run stores its recipe whole, so that it can be resumed and repeated without this folder.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from toolverse.envs.prompts import Prompt
from toolverse.errors import InvalidInputError, NotFoundError
from toolverse.learner.tiny import TinyConfig
from toolverse.learner.tokenizer import WordTokenizer
from toolverse.learner.update import UpdateSettings
from toolverse.types import JSON, Model


class EnvSettings(Model):
    """Which environment, and how training and held-out instances differ (`split`, say)."""

    id: str
    settings: dict[str, JSON] = Field(default_factory=dict)
    train: dict[str, JSON] = Field(default_factory=dict)
    held_out: dict[str, JSON] = Field(default_factory=dict)

    def on_side(self, *, held_out: bool) -> dict[str, JSON]:
        """The settings of one side."""
        return {**self.settings, **(self.held_out if held_out else self.train)}


class PolicySettings(Model):
    """The model.

    Args:
        model: "tiny", or a path or name of a transformers causal LM.
        width, layers, heads, places, recent, copies, matches, alike, composed: of the tiny policy (see `tiny`; `composed` gives
            it the words in its tokens).
        patterns, left_out: pieces that its tokenizer takes whole, and pieces of prompts that it is not shown.
        uncased: the tokenizer reads and says lower case only.
        critic: `shared` trunk, `separate` trunk, or `none`.
        device: where the model is; "auto" takes a GPU if there is one, unless the model is the tiny one.
        lora: rank of adapters for a transformers model; 0 trains everything.
        rendering: see `render`.
        temperature, max_new_tokens: of sampling.
        slots: episodes that a transformers model plays here at a time, the next starting as one ends; 0: all of them. Keys and
            values are kept for so many.
        sampler: "local", or the url of a server that returns token ids (http://host:8000/v1); it needs `lora`.
        served_model: what that server calls the base model; `model` if empty.
        workers: who steps the environments: this process, or a crew of `rollout` (whole episodes cross, never steps), which
            needs a server to sample and no critic.
        parallel: episodes that a crew plays at a time.
    """

    model: str = "tiny"
    width: int = Field(default=128, ge=8)
    layers: int = Field(default=2, ge=1)
    heads: int = Field(default=4, ge=1)
    places: int = Field(default=128, ge=0)
    recent: int = Field(default=0, ge=0)
    copies: bool = False
    matches: int = Field(default=0, ge=0)
    alike: bool = False
    composed: bool = False
    patterns: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    uncased: bool = False
    critic: Literal["shared", "separate", "none"] = "shared"
    device: str = "auto"
    lora: int = Field(default=0, ge=0)
    rendering: Literal["windowed", "append_only"] = "windowed"
    temperature: float = Field(default=1.0, gt=0)
    max_new_tokens: int = Field(default=16, ge=1)
    slots: int = Field(default=0, ge=0)
    sampler: str = "local"
    served_model: str = ""
    workers: Literal["local", "threads", "processes", "ray"] = "local"
    parallel: int = Field(default=16, ge=1)

    def tiny(self, vocabulary: int) -> TinyConfig:
        """The sizes of the tiny policy with so many words."""
        return TinyConfig(
            vocabulary,
            self.width,
            self.layers,
            self.heads,
            places=self.places,
            recent=self.recent,
            copies=self.copies,
            matches=self.matches,
            alike=self.alike,
        )

    @model_validator(mode="after")
    def _tiny_fits(self) -> Self:
        """Said before the expert has played for a minute."""
        if self.model == "tiny":
            self.tiny(1)
            WordTokenizer(self.patterns, left_out=self.left_out)
        return self

    @model_validator(mode="after")
    def _server_takes_adapters(self) -> Self:
        if self.sampler != "local":
            if not self.sampler.startswith(("http://", "https://")):
                raise ValueError(f"sampler={self.sampler!r} is neither 'local' nor a url")
            if not self.lora:
                raise ValueError("a server takes adapters after each update, not whole models: lora must be above 0")
            if self.slots:
                raise ValueError(
                    "slots are of models that sample here: a server has its own (parallel is how much it is asked)"
                )
        elif self.workers != "local":
            raise ValueError(f"workers={self.workers!r} needs a server that samples: set sampler")
        if self.slots and self.model == "tiny":
            raise ValueError("slots are of transformers models: the tiny policy plays all episodes in step")
        if self.workers != "local" and self.critic != "none":
            raise ValueError(
                f"workers={self.workers!r} can't read a critic's values of cut episodes: set critic='none'"
            )
        return self


class PromptSettings(Model):
    """A windowed prompt of the recipe's own (see `envs.prompts`); without `window` the environment's is used."""

    system: str = ""
    window: str = ""
    history_line: str = "{action}"
    history_length: int = Field(default=0, ge=0)
    list_item: str = "{item}"
    list_join: str = "; "

    def template(self) -> Prompt | None:
        if not self.window:
            return None
        return Prompt(
            system=self.system,
            window_text=self.window,
            history_line=self.history_line,
            history_length=self.history_length,
            list_item=self.list_item,
            list_join=self.list_join,
            source="recipe",
        )


class CloneSettings(Model):
    """Behaviour cloning of the expert: the warm start.

    Args:
        episodes: expert episodes on training instances; 0 starts from the bare model. Of `data`, at most so many chats.
        data, split: a chat dataset to copy instead of the expert (see `demonstrations`).
        epochs, batch_rows, learning_rate, warmup_steps, weight_decay: of AdamW with a cosine to zero.
    """

    episodes: int = Field(default=200, ge=0)
    data: str = ""
    split: str = "train"
    epochs: int = Field(default=10, ge=1)
    batch_rows: int = Field(default=64, ge=1)
    learning_rate: float = Field(default=1e-3, gt=0)
    warmup_steps: int = Field(default=30, ge=0)
    weight_decay: float = Field(default=0.01, ge=0)


class CreditSettings(Model):
    """Who gets the credit: an estimator of `toolverse.credit`, its settings, and shapers that run before it.

    `gamma` and the like go into `settings`. `base` is the estimator below a re-weighter.
    """

    estimator: str = "gae"
    settings: dict[str, JSON] = Field(default_factory=dict)
    base: str = "grpo"
    shapers: tuple[dict[str, JSON], ...] = ()
    reward_scale: float = Field(default=1.0, gt=0)
    outcome: Literal["rewards", "score"] = "rewards"
    segments: Literal["subgoals", "milestones"] = "subgoals"


class Recipe(Model):
    """A training run.

    Args:
        episodes: per update; a multiple of `group_size`. Episodes of one group play one instance.
        updates: of PPO.
        held_out_episodes: size of the panel that `success_start` and `success_end` are measured on.
        evaluate_every: updates between evaluations on `evaluate_episodes` panel instances; 0 evaluates at the ends only.
        checkpoint_every: updates between checkpoints (the last one is always kept).
        record_episodes: episodes of each update and evaluation that are written down for `toolverse diagnose`; 0 writes none.
        status: what is known about this recipe, printed with it.
    """

    name: str
    status: str = ""
    env: EnvSettings
    policy: PolicySettings = PolicySettings()
    prompt: PromptSettings = PromptSettings()
    clone: CloneSettings = CloneSettings()
    credit: CreditSettings = CreditSettings()
    update: UpdateSettings = UpdateSettings()
    updates: int = Field(default=50, ge=0)
    episodes: int = Field(default=64, ge=1)
    group_size: int = Field(default=1, ge=1)
    held_out_episodes: int = Field(default=256, ge=1)
    evaluate_every: int = Field(default=10, ge=0)
    evaluate_episodes: int = Field(default=128, ge=1)
    checkpoint_every: int = Field(default=10, ge=1)
    record_episodes: int = Field(default=64, ge=0)
    seed: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _whole_groups(self) -> Self:
        if self.episodes % self.group_size:
            raise ValueError(f"episodes={self.episodes} is no multiple of group_size={self.group_size}")
        return self


def names() -> list[str]:
    """Bundled recipes, sorted."""
    folder = resources.files("toolverse.learner") / "recipes"
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def load(name: str | Path, changes: Mapping[str, Any] | None = None) -> Recipe:
    """A bundled recipe by name, or a file.

    Args:
        changes: dotted field names and values, as `--set` gives them.

    Raises:
        NotFoundError: no such recipe, with near matches.
        InvalidInputError: not TOML, or a field that does not fit; with file and field.
    """
    text, where = _read(str(name))
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInputError(f"is not TOML ({error})", where=where) from error
    data.setdefault("name", Path(str(name)).stem)
    for key, value in (changes or {}).items():
        _change(data, key, value)
    return Recipe.parse(data, where=where)


def parse_changes(pairs: Sequence[str]) -> dict[str, Any]:
    """`["update.epochs=4"]` -> `{"update.epochs": 4}`; values are JSON or plain text.

    Raises:
        InvalidInputError: an entry without "=".
    """
    out: dict[str, Any] = {}
    for pair in pairs:
        key, found, value = pair.partition("=")
        if not found or not all(part.isidentifier() for part in key.split(".")):
            raise InvalidInputError(f"{pair!r}", where="--set", expected="FIELD=VALUE, such as update.epochs=4")
        try:
            out[key] = json.loads(value)
        except ValueError:
            out[key] = value
    return out


def _change(data: dict[str, Any], key: str, value: Any) -> None:
    *path, last = key.split(".")
    for part in path:
        data = data.setdefault(part, {})
        if not isinstance(data, dict):
            raise InvalidInputError(f"{part!r} holds no fields", where=f"--set {key}")
    data[last] = value


def _read(name: str) -> tuple[str, str]:
    if name.endswith(".toml"):
        try:
            return Path(name).read_text(encoding="utf-8"), name
        except OSError as error:
            raise NotFoundError(f"can't be read ({error.strerror})", where=name) from error
    if name not in names():
        close = difflib.get_close_matches(name, names(), n=3)
        raise NotFoundError(
            f"there is no recipe {name!r}",
            expected=f"one of {', '.join(names())}, or the path of a .toml file",
            fix=f"did you mean {' or '.join(close)}?" if close else None,
        )
    return (resources.files("toolverse.learner") / "recipes" / f"{name}.toml").read_text("utf-8"), f"recipe {name}"
