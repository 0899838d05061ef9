"""Scripted shoppers: an oracle that knows the target and takes the shortest path, and two that only read the pages.

The `Searcher` dawdles like a person and has a memory; the reader is its plain sister, whose every command is a function of the
page: what a policy that sees one page at a time can imitate.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import Final

from toolverse.envs.webshop.analysis import terms
from toolverse.envs.webshop.engine import BUY, NEXT, PAGE_SIZE, PREV, Shop
from toolverse.envs.webshop.lint import best_options
from toolverse.envs.webshop.reward import option_hits
from toolverse.envs.webshop.types import Goal, Session


def queries(shop: Shop, goal: Goal) -> Iterator[str]:
    """Queries that may bring the target up, the likeliest first; none contains a bracket (the command's own)."""
    product = shop.catalogue[goal.asin]
    for text in (goal.title, f"{goal.title} {goal.query}", product.index_text[:400], goal.instruction, goal.query):
        query = " ".join(text.lower().replace("[", " ").replace("]", " ").split())
        if query and not query.startswith("<"):
            yield query


def route(shop: Shop, goal: Goal) -> tuple[str, int] | None:
    """Query and result page (1-based) that show the target with the fewest turns; None if no query of ours finds it."""
    target = shop.catalogue.position(goal.asin)
    best: tuple[str, int] | None = None
    for query in queries(shop, goal):
        hits = shop.catalogue.search(query)
        if target in hits:
            page = hits.index(target) // PAGE_SIZE + 1
            if best is None or page < best[1]:
                best = query, page
            if page == 1:
                break
    return best


def wanted_options(shop: Shop, goal: Goal) -> dict[str, str]:
    """Options to choose on the target's page: the goal's own, or other values where only those earn the full reward."""
    product = shop.catalogue[goal.asin]
    own: dict[str, str] = {}
    for name, values in product.options.items():
        asked = [goal.options.get(name)] if isinstance(goal.options, Mapping) else list(goal.options)
        if found := [value for value in values if value in asked]:
            own[name] = found[0]
    if option_hits(goal.options, own.values()) == len(goal.options):
        return own
    return best_options(product, goal) or own


def next_action(shop: Shop, session: Session) -> str | None:
    """The oracle's next command from any state of a session; None once something is bought, or if it can't be found.

    From the first page: search, page on, open, one click per option that the reward needs, buy. This is the shortest path that
    the page structure allows.
    """
    goal = session.goal
    if session.done:
        return None
    if session.asin == goal.asin:
        wanted = wanted_options(shop, goal)
        if session.view != "item":
            return f"click[{PREV}]"
        # A value of another option may match by accident: only what is missing is clicked.
        for name, value in wanted.items():
            if session.options.get(name) != value:
                return f"click[{value}]"
        return f"click[{BUY}]"
    way = route(shop, goal)
    if way is None:
        return None
    query, page = way
    if session.view == "results" and session.keywords == query.split(" ") and session.page <= page:
        return f"click[{goal.asin.lower()}]" if session.page == page else f"click[{NEXT}]"
    return f"search[{query}]"


READER_OPENS: Final = 3
"""Products that the reader opens before it is content with an option that is not quite what was asked for."""


def read_action(shop: Shop, session: Session) -> str | None:
    """The reader's next command from any state of a session; None once something is bought, or if nothing is found.

    It searches the instruction's words, opens the first product of the page that it has not opened and whose price is low
    enough, chooses the options that the instruction names, and buys; where the page lacks one of them, it goes back for the
    next. All that it goes by stands on the `text_rich` page: what was opened, what was chosen.
    """
    goal = session.goal
    if session.done:
        return None
    if session.view == "item":
        return _chosen_on(shop, session)
    if session.view not in ("index", "results"):
        return f"click[{PREV}]"
    query = _typed(goal.instruction)
    shown = [shop.catalogue.products[at] for at in shop.shown(session)]
    if shown:
        new = [product for product in shown if product.asin not in session.seen]
        cheap = [product for product in new if max(product.prices) <= goal.cap]
        return f"click[{(cheap or new or shown)[0].asin.lower()}]"
    return f"search[{query}]" if session.keywords != query.split(" ") else None


def _chosen_on(shop: Shop, session: Session) -> str:
    """The reader's command on a product's page."""
    instruction = session.goal.instruction.lower()
    lacks, missing = False, []
    for name, values in shop.product(session).options.items():
        value = _named(instruction, name, values)
        if value is None:
            lacks = lacks or f"{name}: " in instruction
        elif session.options.get(name) != value:
            missing.append(value)
    if lacks and len(session.seen) < min(READER_OPENS, len(session.hits)):
        return f"click[{PREV}]"
    return f"click[{missing[0] if missing else BUY}]"


def _named(instruction: str, name: str, values: Iterable[str]) -> str | None:
    """Which value of an option an instruction names: best behind the option's name, else anywhere; the longest."""
    for start in (f"{name}: ", ""):
        found = [v for v in values if re.search(rf"(?<![\w-]){re.escape(start + v)}(?![\w.-]*\w)", instruction)]
        if found:
            return max(found, key=len)
        if start and start in instruction:
            return None
    return None


EXPERTS: Final[Mapping[str, Callable[[Shop, Session], str | None]]] = {"oracle": next_action, "reader": read_action}
"""Whom an environment may ask what to do next."""


_SMALL_TALK: Final = frozenset(
    terms("find me price lower than dollars i am looking for need want would like please with and")
)


class Searcher:
    """A shopper like a hurried person: searches the instruction's words, opens what looks right, clicks what it was asked for.

    Goes by what the pages show (titles in the results, options and features once it has opened them), never by the target or
    the reward. Its choices are a function of `seed`. With an environment::

        for action in Searcher(seed=0).play(env.unwrapped.shop, env.unwrapped.session):
            env.step(action)

    Args:
        patience: products it opens before it buys the best one so far.
    """

    def __init__(self, seed: int = 0, patience: int = 3) -> None:
        self._rng = random.Random(seed)
        self.patience = patience

    def play(self, shop: Shop, session: Session) -> Iterator[str]:
        """Yield commands; the caller applies each to `session` before asking for the next."""
        asked = {word for word in terms(session.goal.instruction) if word not in _SMALL_TALK}
        yield f"search[{_typed(session.goal.instruction)}]"
        shown = [shop.catalogue.products[at] for at in shop.shown(session)]
        shown.sort(key=lambda product: -_common(asked, product.title))
        best, best_score = None, -1
        for product in shown[: self.patience]:
            yield f"click[{product.asin.lower()}]"
            read = [product.title, *itertools.chain.from_iterable(product.options.values())]
            if self._rng.random() < 0.3:
                yield "click[features]"
                yield f"click[{PREV}]"
                read += product.bullets
            score = _common(asked, " ".join(read))
            if score > best_score:
                best, best_score = product, score
            if score >= 0.8 * len(asked):
                break
            yield f"click[{PREV}]"
        if best is None:
            return
        if session.view != "item":
            yield f"click[{best.asin.lower()}]"
        bought = shop.product(session)
        instruction = session.goal.instruction.lower()
        for values in bought.options.values():
            mentioned = [value for value in values if value in instruction]
            if mentioned:
                yield f"click[{max(mentioned, key=len)}]"
        yield f"click[{BUY}]"


def _common(asked: Set[str], text: str) -> int:
    return len(asked & set(terms(text)))


def _typed(instruction: str) -> str:
    """The instruction as a person types it into the search bar: without the price, without brackets."""
    text = instruction.partition(", and price lower than")[0].lower()
    return " ".join(text.replace("[", " ").replace("]", " ").split())
