"""Cross attention is priced by the tokens that it reads in the mean of the plan's items."""

from pathlib import Path

import pytest

from planner import files
from planner.costs.pricing import mean_cross_reads, pricing_of
from planner.errors import InputError
from planner.plan.plan_file import Plan
from planner.plan.tasks.expand import expand
from planner.specs.base import with_fields

PLAN = files.read(Path(__file__).parents[1] / "golden/by_hand/encoder-decoder/plan.yaml", Plan)


def with_uses(**said) -> Plan:
    return with_fields(PLAN, uses=with_fields(PLAN.uses, **said))


def test_reads_are_the_mean_over_all_items():
    read = 140 + 90 + 2 * 200 + 160 + 2 * 60  # by hand: two texts are read twice
    assert mean_cross_reads(PLAN) == {"llm": read / sum(PLAN.uses.items["llm"].values())}


def test_longer_texts_cost_the_reader_more_and_the_encoder_s_price_is_of_its_own():
    longer = with_uses(items={**PLAN.uses.items, "encoder": {**PLAN.uses.items["encoder"], 4: 600}})
    tasks = {task.id: task for task in expand(PLAN)}
    for task, more in (("llm[0-3]/F/0/r0", True), ("llm[0-3]/B/0/r0", True), ("encoder[0-3]/F/0/r0", False)):
        before, after = (pricing_of(plan).price(tasks[task]).value for plan in (PLAN, longer))
        assert (after > before) is more and (after == before) is not more


def test_each_tp_rank_gets_all_outputs():
    layout = with_fields(PLAN.layouts["llm"], dp=2, tp=2)
    parted = with_fields(PLAN, layouts={**PLAN.layouts, "llm": layout})
    (send,) = (task for task in expand(PLAN) if task.id == "encoder[0-3]/sendF/0/r0>llm")
    one, two = (pricing_of(plan).send_width(send) for plan in (PLAN, parted))
    assert (one, two) == (128, 256)


def test_fits_of_a_module_with_cross_attention_are_refused():
    fits = files.read(Path(__file__).parents[1] / "golden/by_hand/mixed-groups/plan.yaml", Plan).uses.prices.modules
    prices = with_fields(PLAN.uses.prices, modules={"llm": fits["llm"]})
    with pytest.raises(InputError, match="do not say what its cross attention reads") as error:
        pricing_of(with_uses(prices=prices))
    assert error.value.where == "uses.prices.modules.llm"
