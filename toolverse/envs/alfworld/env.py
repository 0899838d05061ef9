"""Gymnasium's chat face of ALFWorld."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final

from toolverse.envs.alfworld.diagnosis import diagnose, other_dialect, same_location
from toolverse.envs.alfworld.engine import TWO_OBJECTS, Engine
from toolverse.envs.alfworld.expert import solve
from toolverse.envs.alfworld.explorer import Explorer
from toolverse.envs.alfworld.generator import NOT_COMPARABLE, generate_game
from toolverse.envs.alfworld.goals import Milestones, score
from toolverse.envs.alfworld.loader import SHORT_NAMES, Library, data_path, open_library, read_game
from toolverse.envs.alfworld.prompts import PARSER_OF, TOOLS, format_valid, prompt, tool_specs
from toolverse.envs.alfworld.state_codec import decode_state, encode_state
from toolverse.envs.alfworld.types import NOTHING, Diagnosis, Game
from toolverse.envs.base import ChatEnv, Opening, Outcome
from toolverse.envs.prompts import Prompt
from toolverse.errors import InvalidInputError, SnapshotError
from toolverse.types import JSON, ToolCall, ToolSpec

REWARDS: Final = {
    "sparse": "1.0 at the step that wins, else 0",
    "verl_agent": "10.0 at the step that wins, else 0 (GiGPO's and HiPER's trainers)",
    "progress": "the change of `score`, so the rewards of an episode add up to its last score minus its first",
}
EXPERTS: Final = ("oracle", "explorer")
_NOTHING_WRONG: Final = Diagnosis("", "", "")
_INITIAL_PROMPT_DIALECT: Final = "move"


class ALFWorldEnv(ChatEnv):
    """One household task.

    Which game: `game_file` (always this one), else the games of `data_dir` (a folder or archive of official games, or the
    variable ALFWORLD_DATA), else games made from the seed. `reset(options=...)` takes `game_file`, `game` (the name of a
    game of the data) or `game_index` (its position in the split, in name order), each for this episode.

    `score` is the share of goal conditions met (see `goals.score`). Extra keys of `info`: `won`, `task_type`, `game` (its
    name), `dialect`, `format_valid` (see `prompts.format_valid`), `failed_precondition`, `diagnosis` and `suggestion`
    (why a command did nothing and what was probably meant), `same_location` (receptacles between which `go to` does
    nothing), `notice` (at reset of a made game: its numbers are not comparable with published ones).

    Args:
        game_file: path of a `game.tw-pddl`, of its folder, or of either inside an archive (`games.tar.xz::member`).
        data_dir: folder or archive with official games.
        split: which games of `data_dir`; None takes `train` if there is one, else all.
        task_types: only these types of tasks (names as in ALFRED, or put, look, clean, heat, cool, two).
        fixes: departures from the published game (`engine.FIXES`), by name.
        difficulty, knobs: of made games: "easy", "medium" or "hard", and single knobs that differ from it, such as
            {"clutter": 0.1} (`generator.Difficulty`).
        dialect: of made games: "move" (data 2.1.2 and later) or "put" (2.1.1).
        profile: the reward (`REWARDS`).
        expert: whom `expert_action` asks: "oracle" knows the state and takes the shortest way; "explorer" knows only what it
            has read, and searches. The explorer's memory is no part of a snapshot: after `restore` it has no advice until
            the next reset.
    """

    family = "ALFWorld"

    def __init__(
        self,
        *,
        game_file: str | Path | None = None,
        data_dir: str | Path | None = None,
        split: str | None = None,
        task_types: Sequence[str] | None = None,
        fixes: Sequence[str] = (),
        difficulty: str = "medium",
        knobs: Mapping[str, float] | None = None,
        dialect: str = "move",
        profile: str = "sparse",
        expert: str = "oracle",
        max_turns: int = 50,
        **settings: Any,
    ) -> None:
        if expert not in EXPERTS:
            raise InvalidInputError(f"unknown expert {expert!r}", where=self.family, expected=" or ".join(EXPERTS))
        self._explores = expert == "explorer"
        self._explorer: Explorer | None = None
        if profile not in REWARDS:
            raise InvalidInputError(
                f"unknown profile {profile!r}", where=self.family, expected=f"one of {list(REWARDS)}"
            )
        self._made = partial(_made, difficulty=difficulty, knobs=tuple(sorted((knobs or {}).items())), dialect=dialect)
        self._task_types = tuple(SHORT_NAMES.get(name, name) for name in task_types) if task_types else None
        self._source = "" if game_file is None else str(game_file)
        self._fixed = read_game(game_file) if game_file is not None else None
        folder = None if game_file is not None else data_path(data_dir)
        self._library: Library | None = _library(folder) if folder is not None else None
        self._names = self._game_names(split) if self._library is not None else []
        self._split = split
        self._profile = profile
        self._fixes = tuple(fixes)
        super().__init__(max_turns=max_turns, **settings)
        self._parse = PARSER_OF[self.prompt_kind]
        self._origin: JSON = None
        game = self._fixed or self._made(0, None)
        self._engine = Engine(game, self._fixes)
        self._milestones = Milestones(game)
        self._progress = 0.0
        self._diagnosis = _NOTHING_WRONG
        self._well_formed = True
        self._thoughts = 0
        self._notice: str | None = None

    def _game_names(self, split: str | None) -> list[str]:
        assert self._library is not None
        if split is None and any(record.split == "train" for record in self._library.records):
            split = "train"
        records = self._library.split(split)
        if self._task_types is not None:
            records = [record for record in records if record.task_type in self._task_types]
        if not records:
            raise InvalidInputError(
                f"no game of the task types {list(self._task_types or ())}", where=str(self._library.source)
            )
        return [record.name for record in records]

    @property
    def game(self) -> Game:
        """The compiled game of this episode."""
        return self._engine.game

    @property
    def engine(self) -> Engine:
        """The running engine. Change its state only through `step` or `restore`."""
        return self._engine

    # What the base class asks for -------------------------------------------------------------------------------------

    def _begin(self, seed: int, options: Mapping[str, Any]) -> Opening:
        game = self._choose(seed, options)
        self._engine = Engine(game, self._fixes)
        self._milestones = Milestones(game)
        self._progress = score(game, self._engine.state)
        self._diagnosis, self._well_formed, self._thoughts = _NOTHING_WRONG, True, 0
        self._notice = NOT_COMPARABLE if game.generated else None
        if self.prompt.source == "alfworld":
            self.prompt = prompt(self.prompt_kind, game.dialect)
        task = game.task.partition(":")[2].strip() or game.task
        opening = self._engine.reset()
        self._explorer = Explorer(opening) if self._explores else None
        return Opening(opening, task, f"alfworld-{game.sha256[:16]}")

    def _choose(self, seed: int, options: Mapping[str, Any]) -> Game:
        if "game_file" in options:
            self._origin = ["file", str(options["game_file"])]
            return read_game(options["game_file"])
        if self._fixed is not None:
            self._origin = ["file", self._source]
            return self._fixed
        if self._library is not None:
            name = options.get("game") or self._names[int(options.get("game_index", seed)) % len(self._names)]
            self._origin = ["data", name]
            return self._library.load(name)
        number = seed % 2**31
        kind = self._task_types[number % len(self._task_types)] if self._task_types is not None else None
        self._origin = ["made", number, kind]
        return self._made(number, kind)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self._well_formed = self.prompt_kind in ("bare", "react", "tools") or format_valid(self.prompt_kind, action)
        self._notice = None
        return super().step(action)

    def _act(self, command: str) -> Outcome:
        if self.prompt_kind == "react" and command.lower().startswith("think:"):
            return self._think()
        engine = self._engine
        outcome = engine.step(self._mended(command) if self._fixes else command)
        if self._explorer is not None:
            self._explorer.observe(command, outcome.observation)
        if not outcome.action:
            self._diagnosis = diagnose(engine, command)
            unknown = self._diagnosis.code in ("unknown_command", "unknown_object", "other_dialect", "spelling")
            return Outcome(outcome.observation, valid=False, error="unknown_action" if unknown else None)
        self._diagnosis = _NOTHING_WRONG
        reached = self._milestones.update(engine.state, outcome)
        won = False
        before = self._progress
        game = engine.game
        if engine.can_matter(outcome):
            self._progress = score(game, engine.state)
            won = self._progress == 1.0
        reward = self._progress - before if self._profile == "progress" else float(won)
        if self._profile == "verl_agent":
            reward *= 10.0
        return Outcome(outcome.observation, reward, terminated=won, milestones=reached)

    def _think(self) -> Outcome:
        """ReAct: a thought is answered and not counted, but only `max_turns` of them, so that an episode always ends."""
        self._diagnosis = _NOTHING_WRONG
        self._thoughts += 1
        if self._thoughts <= self.max_turns:
            self._turn -= 1
        return Outcome("OK.")

    def _mended(self, command: str) -> str:
        """The command with the chosen leniencies applied (`engine.FIXES`)."""
        text = command.strip()
        if "forgiving" in self._fixes:
            words = text.lower().rstrip(".").split()
            text = " ".join(word for word in words if word not in ("a", "an", "the"))
        if "aliases" in self._fixes:
            text = other_dialect(self._engine, text) or text
        return text

    def _refuse(self, parsed: Any) -> Outcome:
        # The world's own answer, as the published trainers show it; what was wrong stands in info.
        self._diagnosis = Diagnosis("unreadable", parsed.detail, "")
        return Outcome("Nothing happens.", valid=False, error=parsed.error)

    def _answer(self, text: str) -> Outcome:
        self._diagnosis = Diagnosis("unreadable", "the message holds no tool call", "")
        return Outcome("Nothing happens.", valid=False, error="no_tag")

    def _expert(self) -> str | Sequence[ToolCall] | None:
        if self._explores:
            choice = self._explorer.act(self._engine.admissible()) if self._explorer is not None else None
            plan = [choice] if choice is not None else []
        else:
            plan = solve(self._engine.game, self._engine.state) or []
        if not plan:
            return None
        if self.prompt_kind != "tools":
            return plan[0]
        action, o, r = self._engine.match(plan[0])
        name = "examine" if action == "examineobject" else next(n for n, tool in TOOLS.items() if tool[0] == action)
        values = [self._engine.game.objects[o]] if o != NOTHING else []
        if r != NOTHING:
            things = self._engine.game.objects if action in TWO_OBJECTS else self._engine.game.receptacles
            values.append(things[r])
        keys = [key for key, _ in TOOLS[name][2]]
        return [ToolCall(name=name, arguments=dict(zip(keys, values, strict=True)))]

    def _score(self) -> float:
        return self._progress

    def _state_hash(self) -> str:
        return f"{self._engine.state.digest:016x}"

    def _admissible(self) -> list[str]:
        return self._engine.admissible()

    def _fields(self, observation: str, admissible: list[str] | None) -> dict[str, Any]:
        fields = super()._fields(observation, admissible)
        if self.prompt_kind in ("verl_agent", "hiper"):
            fields["admissible_actions"] = [command for command in admissible or () if command != "help"]
        return fields

    def _extra(self) -> dict[str, JSON]:
        engine, wrong = self._engine, self._diagnosis
        return {
            "won": self._progress == 1.0,
            "task_type": engine.game.task_type,
            "game": engine.game.name,
            "dialect": engine.game.dialect,
            "format_valid": self._well_formed,
            "failed_precondition": wrong.code or None,
            "diagnosis": wrong.detail or None,
            "suggestion": wrong.suggestion or None,
            "same_location": same_location(engine.game, engine.state),
            "notice": self._notice,
        }

    def _tool_specs(self) -> Sequence[ToolSpec]:
        return tool_specs(self._engine.game.rules.inserts)

    def _call(self, call: ToolCall) -> Outcome:
        if call.name not in TOOLS or (call.name == "put_into" and not self._engine.game.rules.inserts):
            return super()._call(call)
        action, _, parameters = TOOLS[call.name]
        names = [name for name, _ in parameters]
        if set(call.arguments) != set(names) or not all(isinstance(v, str) for v in call.arguments.values()):
            wanted = ", ".join(names) or "no arguments"
            return Outcome(f"{call.name} takes {wanted}, each a text.", valid=False, error="bad_arguments")
        parts = self._engine.game.voice.templates[action]
        values = [call.arguments[name].strip() for name in names]
        return self._act("".join(part + value for part, value in zip(parts, [*values, ""], strict=True)))

    def _default_prompt(self, kind: str) -> Prompt:
        return prompt(kind, _INITIAL_PROMPT_DIALECT)

    def _spec_settings(self) -> dict[str, JSON]:
        return {"fixes": sorted(self._fixes), "profile": self._profile}

    # Snapshots ----------------------------------------------------------------------------------------------------------

    def _save(self) -> JSON:
        game, marks = self._engine.game, self._milestones
        wrong = self._diagnosis
        return [
            self._origin, game.sha256[:16], encode_state(game, self._engine.state),
            marks.seen, marks.held, tuple(marks.latched), self._progress, list(wrong) if wrong.code else None,
            self._well_formed, self._thoughts, self._notice,
        ]  # fmt: skip

    def _load(self, state: JSON) -> None:
        (self._origin, prefix, code, seen, held, latched, self._progress, wrong, self._well_formed, self._thoughts,
         self._notice) = state  # fmt: skip
        self._explorer = None
        # A new engine in any case: after a fork, the old one belongs to the environment that was copied.
        same = self._engine.game.sha256.startswith(prefix)
        game = self._engine.game if same else self._game_of(self._origin, prefix)
        self._engine = Engine(game, self._fixes, decode_state(game, code))
        self._milestones = Milestones(game, seen, held, latched)
        self._diagnosis = Diagnosis(*wrong) if wrong else _NOTHING_WRONG
        if not same and self.prompt.source == "alfworld":
            self.prompt = prompt(self.prompt_kind, game.dialect)

    def _game_of(self, origin: Sequence[Any], prefix: str) -> Game:
        if origin[0] == "made":
            game = self._made(origin[1], origin[2])
        elif origin[0] == "data" and self._library is not None:
            game = self._library.load(origin[1])
        else:
            game = read_game(origin[1])
        if not game.sha256.startswith(prefix):
            raise SnapshotError(f"the game {origin[1]!r} is not the one of the snapshot", where=self.family)
        return game


@lru_cache(maxsize=8)
def _library(folder: Path) -> Library:
    """One look at the data for all environments of a process: walking a folder of 3,500 games takes a while."""
    return open_library(folder)


@lru_cache(maxsize=512)
def _made(
    number: int, kind: str | None, *, difficulty: str, knobs: tuple[tuple[str, float], ...], dialect: str
) -> Game:
    return generate_game(number, task_type=kind, difficulty=difficulty, dialect=dialect, **dict(knobs)).game
