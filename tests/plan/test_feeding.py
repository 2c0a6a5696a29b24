"""Outputs of encoders stand one after the other at the head of the items that read them."""

import pytest

from planner.plan.feeding import Fed, fed_tokens, feeding
from planner.plan.legal import violations
from planner.plan.model import Edge, Group, Layout, Step
from planner.specs.base import Ranks, changed
from planner.specs.layers import Audio
from tests.plans import decoder, encoder_plan, plan_of, uses, vit

EAR = Audio(layers=1, hidden=16, heads=4, ffn=16, mels=4, pool=2, out=32)


def plan_with(items, feeds, specs=None, steps=None):
    specs = {"llm": decoder(), "vit": changed(vit(), merge=2), "ear": EAR, **(specs or {})}
    ranks = Ranks((0,))
    layouts = {name: Layout(ranks=ranks, dp=1) for name in specs}
    row = {name: {"g": tuple(of_module)} for name, of_module in items.items()}
    edges = (Edge(source="vit", target="llm"), Edge(source="ear", target="llm"))
    plan = plan_of(1, uses(1, specs, items, feeds), layouts, {"g": Group(ranks=ranks)}, Step(
        sync="step", micro_batches=(row,)), edges)  # fmt: skip
    return changed(plan, steps=steps) if steps else plan


ITEMS = {"llm": {7: 12, 8: 5}, "vit": {3: 8, 1: 16, 2: 4}, "ear": {0: 6, 4: 2}}
FEEDS = {"vit": {3: 7, 1: 7, 2: 8}, "ear": {0: 7, 4: 8}}


def test_by_edge_then_by_number_without_gaps():
    assert feeding(plan_with(ITEMS, FEEDS)) == {
        ("vit", 1): Fed(("llm", 7), 0, 4),
        ("vit", 3): Fed(("llm", 7), 4, 2),
        ("ear", 0): Fed(("llm", 7), 6, 3),
        ("vit", 2): Fed(("llm", 8), 0, 1),
        ("ear", 4): Fed(("llm", 8), 1, 1),
    }
    assert fed_tokens(plan_with(ITEMS, FEEDS)) == {("llm", 7): 9, ("llm", 8): 2}
    assert not violations(plan_with(ITEMS, FEEDS))


def test_an_item_may_be_made_of_outputs_alone_and_no_more():
    assert not violations(plan_with({**ITEMS, "llm": {7: 9, 8: 2}}, FEEDS))
    (violation,) = violations(plan_with({**ITEMS, "llm": {7: 8, 8: 2}}, FEEDS))
    assert "item 7 of `llm` has 8 tokens, and 9 outputs" in violation.message


@pytest.mark.parametrize(
    ("specs", "says"),
    [
        ({"vit": vit().__class__(layers=1, hidden=16, heads=4, ffn=16, patch=2, out=31)}, "31 wide"),
        ({"vit": decoder()}, "gives a loss"),
        ({"llm": vit()}, "reads no tokens"),
    ],
)
def test_only_what_fits_is_fed(specs, says):
    assert says in violations(plan_with(ITEMS, FEEDS, specs))[0].message


def test_an_item_is_fed_in_its_own_step():
    plan = encoder_plan()
    first, second = plan.steps[0].micro_batches
    later = {"vit": first["vit"], "llm": second["llm"]}, {"vit": second["vit"], "llm": first["llm"]}
    steps = tuple(Step(sync="step", micro_batches=(row,)) for row in later)
    assert "in another step" in violations(changed(plan, steps=steps))[0].message
