"""The shopper that goes by the page: what it searches, opens, chooses and leaves."""

from __future__ import annotations

import gymnasium
import pytest

import toolverse
from toolverse.envs.webshop import GoalList, WebShopEnv
from toolverse.envs.webshop.engine import Shop
from toolverse.envs.webshop.expert import READER_OPENS, read_action
from toolverse.envs.webshop.types import Goal, Session
from toolverse.errors import InvalidInputError

assert toolverse.__version__  # the import registers the environment


def shopped(shop: Shop, goal: Goal) -> tuple[Session, list[str]]:
    session, said = shop.open("0", goal), []
    while (action := read_action(shop, session)) is not None:
        assert shop.step(session, action).acted
        said.append(action)
    return session, said


def test_it_does_nearly_as_well_as_the_shop_allows_without_knowing_the_target(shop: Shop, goals: GoalList) -> None:
    rewards = [shopped(shop, goals[index])[0].reward for index in range(0, len(goals), 11)]
    assert sum(reward == 1.0 for reward in rewards) > 0.9 * len(rewards)


def test_it_searches_words_of_the_instruction_only(shop: Shop, goals: GoalList) -> None:
    for index in range(0, len(goals), 50):
        query = shopped(shop, goals[index])[1][0].removeprefix("search[").removesuffix("]")
        assert goals[index].instruction.lower().startswith(query)


def test_it_knows_nothing_but_what_the_page_and_the_instruction_say(shop: Shop, goals: GoalList) -> None:
    one = goals[7]
    other = next(goal for goal in goals if goal.asin != one.asin)
    stranger = Goal(
        **{
            **{name: getattr(other, name) for name in Goal.__dataclass_fields__},
            "instruction": one.instruction,
            "cap": one.cap,  # stands in the instruction
        }
    )
    assert shopped(shop, stranger)[1] == shopped(shop, one)[1]


def test_it_opens_no_product_that_is_too_dear_while_there_is_another(shop: Shop, goals: GoalList) -> None:
    session = shop.open("0", goals[0])
    shop.step(session, str(read_action(shop, session)))
    opened = str(read_action(shop, session)).removeprefix("click[").removesuffix("]").upper()
    shown = [shop.catalogue.products[at] for at in shop.shown(session)]
    affordable = [product.asin for product in shown if max(product.prices) <= goals[0].cap]
    assert opened == affordable[0]


def test_it_goes_back_from_a_product_without_the_option_but_not_for_ever(shop: Shop, goals: GoalList) -> None:
    for goal in goals:
        session, said = shopped(shop, goal)
        assert said.count("click[< prev]") < READER_OPENS
        assert session.done
        if said.count("click[< prev]") == 1:
            break
    else:
        pytest.fail("no goal made it go back")
    first = shop.catalogue[said[1].removeprefix("click[").removesuffix("]").upper()]
    assert isinstance(goal.options, dict)
    assert any(value not in first.options.get(name, ()) for name, value in goal.options.items())


def test_it_finds_its_way_back_from_a_sub_page(shop: Shop, goals: GoalList) -> None:
    session = shop.open("0", goals[3])
    for _ in range(2):
        shop.step(session, str(read_action(shop, session)))
    shop.step(session, "click[features]")
    assert read_action(shop, session) == "click[< prev]"


def test_an_environment_asks_the_expert_it_was_given() -> None:
    env = gymnasium.make("toolverse/WebShop-v0", num_products=200, expert="reader", goal_index=3).unwrapped
    assert isinstance(env, WebShopEnv)
    env.reset(seed=0)
    assert env.expert_action() == read_action(env.shop, env.session)
    with pytest.raises(InvalidInputError, match="oracle or reader"):
        WebShopEnv(num_products=200, expert="clairvoyant")


def test_the_reward_may_be_success_instead_of_the_score() -> None:
    rewards = {}
    for reward in (None, "score", "success"):
        env = WebShopEnv(num_products=200, goal_index=3, reward=reward)
        env.reset(seed=0)
        for _ in range(2):
            env.step(str(env.expert_action()))
        _, rewards[reward], *_, info = env.step("click[buy now]")  # the right product without its options
        assert 0.0 < info["score"] < 1.0
    assert rewards[None] == rewards["score"] == info["score"]
    assert rewards["success"] == 0.0
    with pytest.raises(InvalidInputError, match="score or success"):
        WebShopEnv(num_products=200, reward="praise")
