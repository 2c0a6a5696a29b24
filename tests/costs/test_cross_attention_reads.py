"""Cross attention is priced by the tokens that it reads in the mean of the plan's items."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import files
from planner.costs.layer_pass import NO_READS, mean_cross_reads, reads_by_item, reads_of
from planner.costs.pricing import pricing_of
from planner.errors import InputError
from planner.plan.plan_file import Plan
from planner.plan.tasks.expand import expand
from planner.specs.base import with_fields
from tests.examples import examples

PLAN = files.read(Path(__file__).parents[1] / "golden/by_hand/encoder-decoder/plan.yaml", Plan)


def with_uses(**said) -> Plan:
    return with_fields(PLAN, uses=with_fields(PLAN.uses, **said))


def test_reads_are_the_mean_over_all_items():
    read = 140 + 90 + 2 * 200 + 160 + 2 * 60  # by hand: two texts are read twice
    (mean,) = mean_cross_reads(PLAN, reads_by_item(PLAN)).values()
    assert (mean.per_token, mean.readers) == (read / sum(PLAN.uses.items["llm"].values()), 1.0)


@examples(60)
@given(st.lists(st.tuples(st.integers(1, 99), st.integers(0, 99)), max_size=6))
def test_what_items_read_is_in_three_numbers(items):
    reads = reads_of(items)
    if not items:
        assert reads == NO_READS
        return
    own, squared = sum(tokens for tokens, _ in items), sum(tokens**2 for tokens, _ in items)
    assert reads.per_token * own == pytest.approx(sum(read for _, read in items))
    assert reads.pairs * squared == pytest.approx(sum(tokens * read for tokens, read in items))
    assert reads.readers * own == pytest.approx(sum(tokens for tokens, read in items if read))


def test_a_longer_text_costs_those_more_that_read_it_and_no_other():
    longer = with_uses(items={**PLAN.uses.items, "encoder": {**PLAN.uses.items["encoder"], 4: 600}})
    passes = [task for task in expand(PLAN) if task.phase in ("F", "B")]
    reading = {task.id for task in passes if task.module == "llm" and {4, 5} & {*task.items}}
    assert reading and len(reading) < len([task for task in passes if task.module == "llm"])
    one, other = pricing_of(PLAN), pricing_of(longer)
    for task in passes:
        before, after = one.price(task).value, other.price(task).value
        assert (after > before) is (task.id in reading) and (after == before) is (task.id not in reading)


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
