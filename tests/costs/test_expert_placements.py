"""Layers that differ in the placement of their experts: a plan of them takes what its layers take by themselves."""

from pathlib import Path

import pytest

from planner import files
from planner.costs import step_prices
from planner.costs.layout_columns import columns_of
from planner.costs.memory.token_caps import resident_footprint
from planner.costs.pricing import pricing_of
from planner.errors import InputError
from planner.plan.plan_file import ExpertLayout, Plan
from planner.plan.task import Task
from planner.plan.tasks.expand import expand
from planner.scoring.score import score
from planner.specs.base import Layers, with_fields
from planner.specs.framework.memory_coefficients import MemoryCoefficients

GOLDEN = Path(__file__).parents[1] / "golden/by_hand"
PLAN = files.read(GOLDEN / "experts-by-layer/plan.yaml", Plan)
SPEC = PLAN.uses.models["llm"]
WIDE, NARROW = {"ep": 4}, {"ep": 1, "etp": 2, "dispatch": "all_gather"}


def laid(spec=SPEC, recompute="none", **fields) -> Plan:
    """The plan with other experts."""
    layout = with_fields(PLAN.layouts["llm"], **{"experts": {}, "recompute": recompute, **fields})
    return with_fields(PLAN, layouts={"llm": layout}, uses=with_fields(PLAN.uses, models={"llm": spec}))


def said(**ranges) -> dict:
    """`l0_1={...}` as what is said of layers 0-1."""
    return {name[1:].replace("_", "-"): ExpertLayout(**own) for name, own in ranges.items()}


def prices(plan: Plan) -> dict[str, tuple[Task, float, float]]:
    price = step_prices(pricing_of(plan), expand(plan))
    return {task.id: (task, price(task).value, price(task).comm) for task in expand(plan)}


@pytest.mark.parametrize("recompute", ["none", "full", {"0-2": "full", "3": "selective"}])
@pytest.mark.parametrize("own", [WIDE, NARROW])
@pytest.mark.every(2)
def test_ranges_with_the_layouts_placement_are_priced_the_same(own, recompute):
    """To the last bit, in seconds and bytes."""
    usual, ranges = laid(recompute=recompute, **own), laid(recompute=recompute, experts=said(l0_1=own, l2_3=own))
    one, other = score(usual), score(ranges)
    assert one.timeline == other.timeline
    assert one.memory.peaks == other.memory.peaks


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_half_of_the_layers_each_way_take_what_half_of_each_takes(recompute):
    half = prices(laid(recompute=recompute, experts=said(l0_1=WIDE, l2_3=NARROW)))
    wide, narrow = (prices(laid(recompute=recompute, **own)) for own in (WIDE, NARROW))
    for name, (task, seconds, comm) in half.items():
        if task.phase in ("F", "B", "update"):
            assert seconds == pytest.approx((wide[name][1] + narrow[name][1]) / 2.0, rel=1e-9)
            assert comm == pytest.approx((wide[name][2] + narrow[name][2]) / 2.0, rel=1e-9)
    assert any(wide[name][1] != narrow[name][1] for name in half)


def test_what_is_made_again_is_made_again_where_experts_lie_so():
    """Full recomputation of the wide layers alone: not of half of both."""
    again = {"0-1": "full"}
    half = prices(laid(recompute=again, experts=said(l0_1=WIDE, l2_3=NARROW)))
    wide, narrow = prices(laid(recompute="full", **WIDE)), prices(laid(**NARROW))
    for name, (task, seconds, _) in half.items():
        if task.phase == "B":
            assert seconds == pytest.approx((wide[name][1] + narrow[name][1]) / 2.0, rel=1e-9)


def test_layers_without_experts_are_not_asked_how_these_lie():
    """Of a model whose second half alone has experts: what is said of these is said of all that there are."""
    spec = with_fields(SPEC, moe=with_fields(SPEC.moe, dense_layers=2))
    ranges, usual = prices(laid(spec, experts=said(l2_3=WIDE))), prices(laid(spec, **WIDE))
    for name, (task, seconds, comm) in ranges.items():
        if task.phase in ("F", "B", "update"):
            assert (seconds, comm) == pytest.approx(usual[name][1:], rel=1e-12)


def test_states_are_those_of_the_layers_and_what_is_gathered_of_the_largest():
    accounting = MemoryCoefficients()
    for zero in (0, 1, 3):
        layouts = (laid(zero=zero, **own).layouts["llm"] for own in (WIDE, NARROW))
        wide, narrow = (resident_footprint(SPEC, layout, accounting, 0) for layout in layouts)
        mixed = laid(zero=zero, experts=said(l0_2=WIDE, l3=NARROW)).layouts["llm"]
        found = resident_footprint(SPEC, mixed, accounting, 0)
        assert float(found.states) == pytest.approx(0.75 * float(wide.states) + 0.25 * float(narrow.states))
        assert float(found.gathered) == max(float(wide.gathered), float(narrow.gathered))
        assert float(found.fragmentation) == pytest.approx(accounting.fragmentation * float(found.allocated))


def test_activations_are_those_of_each_layer():
    pricing, parts = pricing_of(laid(experts=said(l0_1=WIDE, l2_3={"ep": 1, "etp": 2}))), Layers(range(4))
    task = next(task for task in expand(PLAN) if task.phase == "F")
    held = pricing.module_pricing("llm", "cpu").activation_bytes(parts, False, task.split, task.sizes).layers
    each = [
        pricing.module_pricing("llm", "cpu").activation_bytes(Layers((n,)), False, task.split, task.sizes).layers
        for n in range(4)
    ]
    assert held == pytest.approx(sum(each)) and each[0] < each[3]


def test_one_closed_form_for_all_layers_is_refused():
    with pytest.raises(InputError, match="has no closed form"):
        columns_of(PLAN.layouts["llm"])


def test_fits_are_refused():
    """They do not say what of their seconds is whose."""
    costs = files.read(GOLDEN / "mixed-groups/plan.yaml", Plan).uses.prices.modules["llm"]
    prices = with_fields(PLAN.uses.prices, modules={"llm": costs})
    with pytest.raises(InputError, match="do not say what experts take") as caught:
        pricing_of(with_fields(PLAN, uses=with_fields(PLAN.uses, prices=prices)))
    assert caught.value.where == "uses.prices.modules.llm"
