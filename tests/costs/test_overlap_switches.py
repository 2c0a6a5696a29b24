"""Overlap switched on and off: without switches nothing changes, and switching on never slows down."""

from itertools import pairwise, product

import pytest

from planner.costs.price_table import with_overlap
from planner.errors import InputError
from planner.plan.plan_file import Plan
from planner.plan.tasks.expand import expand
from planner.scoring.score import score
from planner.simulate import simulate
from planner.specs.base import with_fields
from planner.specs.framework.overlap import AS_PRICED, Overlap, parse_overlap
from planner.specs.hardware.profile import ModuleCosts, PassCosts, PassFit
from planner.strategies.static.fixed_layout import fixed_layout
from planner.strategies.static.layouts_plan import draft_of_layouts
from tests.plans import staged_plan
from tests.static_jobs import small_cluster, static_inputs

KINDS = ("tp", "pp", "dp", "ep")
CASES = [
    ("llama-3-8b", 16, (4096,) * 32, "tp: 2, cp: 1, pp: 2, vpp: 4, zero: 1, recompute: full"),
    ("llama-3-8b", 16, (4096,) * 32, "tp: 4, cp: 1, pp: 2, zero: 2, recompute: none"),
    ("llama-3-8b", 8, (4096,) * 16, "tp: 2, cp: 2, pp: 1, zero: 3, recompute: selective"),
    ("qwen3-30b-a3b", 16, (4096,) * 32, "tp: 2, cp: 1, pp: 2, ep: 4, zero: 1, recompute: full, schedule: gpipe"),
]


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]} {case[3]}")
def plan(request, tmp_path) -> Plan:
    model, ranks, sizes, fixed = request.param
    inputs = static_inputs(tmp_path, model, small_cluster(tmp_path, "a100-80gb", ranks, 4), sizes, fixed)
    return draft_of_layouts(inputs, {inputs.module: fixed_layout(inputs)})


def seconds(plan: Plan, overlap: Overlap) -> float:
    return score(plan, 0, overlap).step_seconds


def test_no_switch_changes_nothing(plan):
    assert with_overlap(plan, AS_PRICED) is plan


@pytest.mark.slow
@pytest.mark.every(2)
def test_switching_overlap_on_is_never_slower(plan):
    """From any set of switches, turning one more on; the plan without switches is between all off and all on."""
    found = {on: seconds(plan, Overlap(**dict(zip(KINDS, on, strict=True)))) for on in product((False, True), repeat=4)}
    for on, value in found.items():
        for at in range(4):
            more = (*on[:at], True, *on[at + 1 :])
            assert found[more] <= value * (1 + 1e-9)
    assert found[True, True, True, True] <= seconds(plan, AS_PRICED) * (1 + 1e-9)
    assert seconds(plan, AS_PRICED) <= found[False, False, False, False] * (1 + 1e-9)


@pytest.mark.every(6)
def test_each_switch_that_is_off_costs_what_the_layout_exchanges(plan):
    """Kinds that a layout has are slower without overlap, others are not."""
    ((_, layout),) = plan.layouts.items()
    at_all = {
        "tp": layout.tp > 1,
        "pp": layout.pp > 1,
        "dp": layout.dp > 1,
        "ep": layout.ep > 1,
    }
    all_on = seconds(plan, Overlap(tp=True, pp=True, dp=True, ep=True))
    for kind in KINDS:
        off = seconds(plan, Overlap(**{each: each != kind for each in KINDS}))
        assert (off > all_on * (1 + 1e-6)) == at_all[kind], kind


def test_a_synchronous_send_holds_compute():
    plan = staged_plan(2, 3, "gpipe")
    tasks = expand(plan)
    price = pricing_of_sends(plan)
    apart = simulate(tasks, price, plan.size)
    held = simulate(tasks, price, plan.size, held_streams=Overlap(pp=False).occupied_streams)
    for timeline in (apart, held):
        assert [event.id for event in timeline.events] == [task.id for task in tasks]
    alone = [e for e in held.events if e.phase in ("F", "B", "send") and 0 in e.ranks]
    assert all(a.end <= b.start for a, b in pairwise(alone))
    assert apart.step_seconds < held.step_seconds


def pricing_of_sends(plan: Plan):
    from planner.costs.cost_lines import Cost

    return lambda task: Cost({"F": 1.0, "B": 2.0, "send": 0.5}.get(task.phase, 0.0), "measured", 0.0)


def test_fits_that_include_communication_refuse_switches(plan):
    layout = plan.layouts["llm"]
    fit = PassCosts(forward=PassFit(ms=1.0), backward=PassFit(ms=2.0))
    costs = ModuleCosts(source="published", spread=0.1, layer=fit, sharding="included")
    measured = with_fields(
        plan, uses=with_fields(plan.uses, prices=with_fields(plan.uses.prices, modules={"llm": costs}))
    )
    inside = {"tp": layout.tp > 1, "ep": layout.ep > 1, "dp": layout.zero == 3, "pp": False}
    for kind, there in inside.items():
        switched = Overlap(**{kind: True})
        if there:
            with pytest.raises(InputError, match=f"do not say what of its {kind} exchanges"):
                with_overlap(measured, switched)
        else:
            assert with_overlap(measured, switched).uses.prices.modules == {"llm": costs}


@pytest.mark.parametrize(
    ("text", "overlap"),
    [
        (None, AS_PRICED),
        ("tp=off,pp=on", Overlap(tp=False, pp=True)),
        (" dp = on ", Overlap(dp=True)),
        ("all=off", Overlap(tp=False, pp=False, dp=False, ep=False)),
    ],
)
def test_switches_are_read(text, overlap):
    assert parse_overlap(text) == overlap


@pytest.mark.parametrize("text", ["", "tp", "tp=yes", "cp=on", "tp=on,tp=off", "all=on,ep=off", "tp=on,", "=on"])
def test_other_words_are_refused(text):
    with pytest.raises(InputError):
        parse_overlap(text)
