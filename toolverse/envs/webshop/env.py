"""Gymnasium's chat face of the shop."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from toolverse.envs.base import ChatEnv, Opening, Outcome
from toolverse.envs.messages import Parsed
from toolverse.envs.prompts import Prompt
from toolverse.envs.webshop.catalogue import Catalogue
from toolverse.envs.webshop.engine import Shop, parse_action
from toolverse.envs.webshop.expert import EXPERTS
from toolverse.envs.webshop.goals import Draws, GoalList, GoalTable
from toolverse.envs.webshop.lint import is_reachable
from toolverse.envs.webshop.pack import open_catalogue
from toolverse.envs.webshop.profiles import REWARDS, Picker, profile_named
from toolverse.envs.webshop.text import QUERY_PLACE, RENDERERS, prompt
from toolverse.envs.webshop.types import OBSERVATIONS, Session
from toolverse.errors import InvalidInputError
from toolverse.types import JSON, ToolCall, ToolSpec

_TOOLS: Final = (
    ToolSpec(
        name="search",
        description="Search the shop. Shows the first page of results; options chosen so far are forgotten.",
        input_schema={
            "type": "object",
            "properties": {"query": {"type": "string", "description": "What to look for, in words."}},
            "required": ["query"],
            "additionalProperties": False,
        },
    ),
    ToolSpec(
        name="click",
        description="Press a button, open a product by its id, or choose an option, by the name shown on the page.",
        input_schema={
            "type": "object",
            "properties": {"name": {"type": "string", "description": "The name, as written on the page."}},
            "required": ["name"],
            "additionalProperties": False,
        },
    ),
)
_ARGUMENT: Final = {"search": "query", "click": "name"}


def _parse_verbatim(message: str) -> Parsed:
    """The message itself: a blank in front of a command makes it another command in this shop."""
    return Parsed(command=message)


@functools.lru_cache(maxsize=4)
def _goal_table(catalogue: Catalogue, human: bool) -> GoalTable:
    return GoalTable.crowd(catalogue) if human else GoalTable.template(catalogue)


@functools.lru_cache(maxsize=16)
def _shop(catalogue: Catalogue, human: bool, draws: Draws, show_attributes: bool) -> Shop:
    return Shop(catalogue, GoalList(_goal_table(catalogue, human), draws), show_attributes=show_attributes)


class WebShopEnv(ChatEnv):
    """One instruction, one purchase. `step("search[...]")`, `step("click[...]")`.

    `info["score"]` is the engine's reward, 0 until something is bought; the returned reward follows the profile.
    Milestones: `searched`, `target-listed`, `target-opened`, `option:<name>` for each option of the goal, `bought`.

    Args:
        data_dir: folder with the original files; None plays the built-in synthetic catalogue, whose results are not
            comparable with published ones (`info["comparable"]`).
        num_products: read only the first products (default: all of the file; 1,000 synthetic ones).
        goal_index: play this goal of the list, always; None makes the goal from the seed. `options={"goal_index": i}` at
            reset names one for an episode.
        observation: "text", "text_rich", "html" or "url".
        profile: "strict", "upstream", "verl_agent" or "ragen" (see `profiles`).
        split: which goals to draw from; the profile's names, its first by default.
        seed: the engine's own seed, which draws prices and orders the goals (not under "strict", whose list is fixed).
        human_goals: crowd-written instructions instead of template ones.
        nouns: nouns for the reward's type factor: a JSON file, "spacy" or "rule"; None takes the folder's own file.
        predraw: the engine prints through `rich` 13 or newer, which costs its generator one draw (see `goals.Draws`).
        show_attributes: product pages have an Attributes button.
        reward: "score" (the engine's reward) or "success" (1 for a perfect purchase, else 0) instead of the profile's.
        expert: whom `expert_action` asks: "oracle" knows the target and takes the shortest path; "reader" goes by the page.
        skip_malformed: leave malformed rows of the catalogue out, with a warning, instead of refusing the file.
        max_turns: None takes the profile's.
        observation_max_chars: by default pages are never cut.
    """

    family = "WebShop"

    def __init__(
        self,
        *,
        data_dir: str | Path | None = None,
        num_products: int | None = None,
        goal_index: int | None = None,
        observation: str = "text",
        profile: str = "strict",
        split: str | None = None,
        seed: int = 0,
        human_goals: bool = False,
        nouns: str | Path | None = None,
        predraw: bool = True,
        show_attributes: bool = False,
        reward: str | None = None,
        expert: str = "oracle",
        skip_malformed: bool = False,
        max_turns: int | None = None,
        observation_max_chars: int = 2_000_000,
        **settings: Any,
    ) -> None:
        self.profile, self.split = profile_named(profile, split)
        super().__init__(
            max_turns=self.profile.max_turns if max_turns is None else max_turns,
            observation_max_chars=observation_max_chars,
            **settings,
        )
        if observation not in OBSERVATIONS:
            raise InvalidInputError(
                f"unknown observation {observation!r}", where=self.family, expected=f"one of {', '.join(OBSERVATIONS)}"
            )
        if expert not in EXPERTS:
            raise InvalidInputError(f"unknown expert {expert!r}", where=self.family, expected=" or ".join(EXPERTS))
        self._next_action = EXPERTS[expert]
        if reward is not None and reward not in REWARDS:
            raise InvalidInputError(f"unknown reward {reward!r}", where=self.family, expected=" or ".join(REWARDS))
        self._reward_name = reward
        self._reward = self.profile.reward if reward is None else REWARDS[reward]
        if self.prompt_kind == "bare":
            self._parse = _parse_verbatim
        catalogue = open_catalogue(
            None if data_dir is None else str(data_dir),
            num_products=num_products,
            nouns=None if nouns is None else str(nouns),
            skip_malformed=skip_malformed,
        )
        self.observation_kind = observation
        self._render = RENDERERS[observation]
        self.shop = _shop(catalogue, human_goals, self.profile.draws(seed, predraw), show_attributes)
        if not len(self.shop.goals):
            raise InvalidInputError(
                "there are no goals",
                where=catalogue.name,
                expected="products with an instruction (crowd-written ones are in items_human_ins.json)",
            )
        if goal_index is not None:
            self.shop.goals.number(goal_index)  # refuses an index that is out of range
        self._goal_index = goal_index
        self._pick: Picker | None = None
        self._index = 0
        self._session = Session("", self.shop.goals[0])
        self._missing: set[str] = set()
        self._names: tuple[str, ...] | None = None
        self._commands: tuple[str, ...] = ()
        self._reachable = True
        self._fixed_score = 0.0

    @property
    def catalogue(self) -> Catalogue:
        """The products and their search index, shared by all environments with these settings."""
        return self.shop.catalogue

    @property
    def session(self) -> Session:
        """The state of the running session (to look at, not to change)."""
        return self._session

    @functools.cached_property
    def provenance(self) -> str:
        """What a result has to be cited with, as JSON: catalogue, size, goals, profile, split, seed, hash."""
        catalogue = self.shop.catalogue
        return json.dumps(
            {
                "catalogue": Path(catalogue.name).name,
                "products": len(catalogue),
                "comparable": catalogue.comparable,
                "nouns": catalogue.nouns_source,
                "profile": self.profile.name,
                "split": self.split,
                "seed": self.shop.goals.draws.seed,
                "goals": len(self.shop.goals),
                "goals_hash": self.shop.goals.fingerprint,
            }
        )

    # The contract -------------------------------------------------------------------------------------------------------

    def _begin(self, seed: int, options: Mapping[str, Any]) -> Opening:
        index = options.get("goal_index", self._goal_index)
        if index is None:
            if self._pick is None:
                self._pick = self.profile.picker(self.shop.goals, self.split)
            index = self._pick(seed)
        if isinstance(index, bool) or int(index) != index:
            raise InvalidInputError(f"goal_index is {index!r}", where=self.family, expected="an integer")
        self._open(int(index))
        return Opening(self._render(self.shop, self._session), self._session.goal.instruction, self._instance())

    def _open(self, index: int) -> None:
        shop = self.shop
        goal = shop.goals[index]
        self._index = index
        self._session = shop.open(str(index), goal)
        self._missing = set(self.milestone_ids())
        self._fixed_score = 0.0
        self._reachable = is_reachable(shop.catalogue[goal.asin], goal)

    def _instance(self) -> str:
        return f"webshop-{self.shop.goals.fingerprint}-{self._index}"

    def _act(self, command: str) -> Outcome:
        shop, session = self.shop, self._session
        effect = shop.step(session, command)
        error = None
        if not effect.acted:
            error = self._error_of(command, effect.problem)
        elif effect.done:
            self._fixed_score = shop.terms(session, fixed=True).total
        return Outcome(
            self._render(shop, session),
            self._reward(effect.reward) if effect.done else 0.0,
            terminated=effect.done,
            valid=effect.acted,
            error=error,
            milestones=self._latch() if effect.acted else (),
        )

    @staticmethod
    def _error_of(command: str, problem: str) -> str | None:
        """Code for a command that did nothing; None for a well-formed click on something that is not there."""
        if problem:
            return "bad_arguments"
        parsed = parse_action(command)
        return None if parsed is not None and parsed[0] in _ARGUMENT else "unknown_action"

    def _latch(self) -> list[str]:
        """Milestones that the current state reaches for the first time."""
        session, missing = self._session, self._missing
        goal, view = session.goal, session.view
        new: list[str] = []
        if not missing or view == "index":
            return new
        if view == "results":
            new.append("searched")
            if "target-listed" in missing and goal.asin.lower() in self.shop.clickables(session):
                new.append("target-listed")
        elif session.asin == goal.asin:
            new.append("target-opened")
            if isinstance(goal.options, Mapping):
                new += [f"option:{name}" for name, value in goal.options.items() if session.options.get(name) == value]
            else:
                new += [f"option:{value}" for value in goal.options if value in session.options.values()]
        if view == "done" and (session.asin == goal.asin or session.reward == 1.0):
            new.append("bought")
        new = [name for name in new if name in missing]
        missing.difference_update(new)
        return new

    def milestone_ids(self) -> list[str]:
        """Every milestone of the current instance, in the order in which a direct path reaches them."""
        options = self._session.goal.options
        return ["searched", "target-listed", "target-opened", *(f"option:{name}" for name in options), "bought"]

    def _score(self) -> float:
        return self._session.reward

    def _state_hash(self) -> str:
        # The address holds the product, the page and the options; keywords are apart, since it joins them ambiguously.
        session = self._session
        state = (
            f"{self._index}\0{session.url}\0{session.view}\0{session.random_searches}\0{session.reward}\0"
            f"{' '.join(sorted(session.seen))}\0{chr(0).join(session.keywords or ())}"
        )
        return hashlib.blake2b(state.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()

    def _admissible(self) -> list[str]:
        names = self.shop.clickables(self._session)
        if names is not self._names:
            self._names = names
            self._commands = (QUERY_PLACE,) if names == ("search",) else tuple([f"click[{name}]" for name in names])
        return list(self._commands)

    def _extra(self) -> dict[str, JSON]:
        session = self._session
        return {
            "goal_index": self._index,
            "goal_reachable": self._reachable,
            "page": session.view,
            "score_fixed": self._fixed_score,
            "reward_terms": None if session.terms is None else json.dumps(session.terms.to_original()),
            "comparable": self.shop.catalogue.comparable,
            "provenance": self.provenance,
        }

    def _tool_specs(self) -> Sequence[ToolSpec]:
        return _TOOLS

    def _call(self, call: ToolCall) -> Outcome:
        argument = _ARGUMENT.get(call.name)
        if argument is None:
            return super()._call(call)
        value = call.arguments.get(argument)
        if not isinstance(value, str) or set(call.arguments) != {argument}:
            text = f"{call.name} takes exactly one argument, {argument}, a string."
            return Outcome(text, valid=False, error="bad_arguments")
        return self._act(f"{call.name}[{value}]")

    def _expert(self) -> str | Sequence[ToolCall] | None:
        action = self._next_action(self.shop, self._session)
        if action is None or self.prompt_kind != "tools":
            return action
        name, _, value = action[:-1].partition("[")
        return (ToolCall(name=name, arguments={_ARGUMENT[name]: value}),)

    def _spec_settings(self) -> dict[str, JSON]:
        return {
            "goals": self.shop.goals.fingerprint,
            "observation": self.observation_kind,
            "show_attributes": self.shop.show_attributes,
            "profile": self.profile.name,
            "split": self.split,
            **({} if self._reward_name is None else {"reward": self._reward_name}),
        }

    def _save(self) -> JSON:
        session = self._session
        return {
            "index": self._index,
            "url": session.url,
            "view": session.view,
            "keywords": session.keywords,
            "page": session.page,
            # Other results follow from the query; these were drawn.
            "drawn": list(session.hits) if session.keywords and session.keywords[0] == "<r>" else None,
            "asin": session.asin,
            "seen": sorted(session.seen),
            "options": list(session.options.items()),
            "random_searches": session.random_searches,
            "bought": session.done,
            "missing": sorted(self._missing),
        }

    def _load(self, state: JSON) -> None:
        self._open(state["index"])
        session = self._session
        if state["drawn"] is not None:
            session.hits = tuple(state["drawn"])
        elif state["keywords"] is not None:
            self.shop.search(session, list(state["keywords"]))
        session.url, session.view = state["url"], state["view"]
        session.keywords, session.page, session.asin = state["keywords"], state["page"], state["asin"]
        session.seen = set(state["seen"])
        session.options = dict(state["options"])
        session.random_searches = state["random_searches"]
        if state["bought"]:
            session.done = True
            session.terms = self.shop.terms(session)
            session.reward = session.terms.total
            self._fixed_score = self.shop.terms(session, fixed=True).total
        self._missing = set(state["missing"])

    def _default_prompt(self, kind: str) -> Prompt:
        return prompt(kind)
