"""The order of a pipeline's passes: legal, in memory, no worse than any hand-made one, and bounded."""

from dataclasses import replace
from functools import partial

import pytest

from planner.costs.pricing import pricing_of
from planner.errors import Infeasible, InputError
from planner.orders import bound_fixed_sequence
from planner.plan.legal.plan_laws import violations
from planner.plan.tasks.expand import expand
from planner.scoring.bounds.pipeline_passes import ReplicaPipeline, replica_pipelines
from planner.scoring.score import score
from planner.solve_job import solve_job
from planner.specs.base import with_fields
from planner.strategies import STRATEGIES, parallel_search, pipeline_order, strategy_called
from planner.strategies.pipeline_order import numbered_slots, order_as_text, slowest_pipeline, try_order
from tests.pipelines import made_up
from tests.static_jobs import small_cluster, static_inputs

VARIED = (4096, 512, 3000, 700, 700, 256, 3500, 2048, 1024, 2048)
FIXED = "pp: 4, micro_batch: 1"
ONE_LAYOUT = "pp: 2, micro_batch: 1, vpp: 1, recompute: none"  # but for the division of its layers


def inputs_in(folder, fixed=FIXED, sizes=VARIED, ranks=4, model="llama-3-8b", kept=""):
    """Inputs of few ranks."""
    inputs = static_inputs(folder, model, small_cluster(folder, "h100-80gb", ranks), sizes, fixed, kept)
    return replace(inputs, job=with_fields(inputs.job, strategy="pipeline_order"), effort=1)


@pytest.fixture
def made(tmp_path):
    return partial(inputs_in, tmp_path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("usual")


@pytest.fixture(scope="module")
def usual(folder):
    """The plan of what is made there where nothing is said."""
    return solved(inputs_in(folder))


def solved(inputs):
    return solve_job(inputs, lambda done, of, what: None).plan


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fixed", "sizes", "ranks"),
    [
        pytest.param(FIXED, VARIED, 8, marks=pytest.mark.soak),
        pytest.param(FIXED, (4096,) * 8, 4, marks=pytest.mark.soak),
        (f"{ONE_LAYOUT}, tp: 2, zero: 1", VARIED, 8),
        (f"{ONE_LAYOUT}, tp: 1, zero: 3", (4096,) * 8, 4),
    ],
)
@pytest.mark.every(2)
def test_no_order_made_by_hand_is_better(made, fixed, sizes, ranks):
    inputs = made(fixed, sizes, ranks)
    plan = solved(inputs)
    base = parallel_search.plan(pipeline_order.inputs_for_base(inputs), None)
    assert plan.layouts == base.layouts
    rows, of_base = (list(map(str, each.steps[0].micro_batches)) for each in (plan, base))
    assert sorted(rows) == sorted(of_base)
    assert plan.outcome.value <= base.outcome.value
    orders = [other for other in plan.alternatives if other.strategy == "pipeline_order"]
    assert orders and all(other.value is None or other.value >= plan.outcome.value for other in orders)
    assert not violations(plan)
    again = score(plan)
    assert again.step_seconds == pytest.approx(plan.outcome.value, rel=1e-8)
    assert plan.outcome.bound == pytest.approx(min(again.bound.seconds, again.step_seconds), rel=1e-8)


@pytest.mark.slow
def test_an_order_is_written_out_and_its_bound_is_over_orders(made):
    plan = solved(made("pp: 4, vpp: 1, micro_batch: 1, recompute: full"))
    lines = plan.steps[0].order["llm"]
    assert [sorted(line.split()) for line in lines] == [sorted([f"{p}{k}" for p in "FB" for k in range(10)])] * 4
    assert plan.outcome.bound_by == "order"
    assert (
        plan.outcome.value
        < parallel_search.plan(made("pp: 4, vpp: 1, micro_batch: 1, recompute: full"), None).outcome.value
    )


@pytest.mark.slow
def test_unlike_rows_come_in_another_sequence_which_no_order_of_the_first_can_match(made):
    inputs = made(f"{FIXED}, vpp: 1, recompute: none", (256, 4096, 512, 3000, 700, 3500, 300, 2048), 4)
    plan = solved(inputs)
    base = parallel_search.plan(pipeline_order.inputs_for_base(inputs), None)
    assert plan.steps[0].micro_batches != base.steps[0].micro_batches
    (replica,) = replica_pipelines(base, pricing_of(base), expand(base))
    assert plan.outcome.value < bound_fixed_sequence(replica.pipeline, "step").seconds
    assert "sequences" in plan.outcome.effort


def test_rows_that_no_group_works_in_are_refused():
    with pytest.raises(InputError, match="no group works in some"):
        slowest_pipeline([ReplicaPipeline((0, 2), made_up(0, 2, 2))], 3)


@pytest.mark.slow
def test_what_the_job_says_of_states_is_kept_and_told(made):
    plan = solved(made(f"{FIXED}, tp: 1", (4096,) * 8, 4, kept="zero: 1, recompute: full"))
    (layout,) = plan.layouts.values()
    assert (layout.zero, layout.recompute) == (1, "full")
    fixed = plan.uses.fix.layouts["llm"]
    assert (fixed.zero, fixed.recompute, fixed.vpp) == (1, "full", None)


@pytest.mark.slow
def test_an_illegal_order_is_not_scored(usual):
    found = try_order(usual, "llm", ("F0 B0",) * 4, "")
    assert isinstance(found, Infeasible)
    assert "there is no F" in found.message


def test_letters_become_slots():
    assert [f"{p}{k}" for p, k, _ in numbered_slots("FFIWIW", True)] == ["F0", "F1", "I0", "W0", "I1", "W1"]
    assert order_as_text(("FFIWIW", "FIFWIW"), False) == ("F0 F1 B0 B1", "F0 B0 F1 B1")


@pytest.mark.parametrize(
    ("fixed", "reason"),
    [
        ("tp: 2", "fix.layouts.llm.pp of 2 or more"),
        ("pp: 1", "fix.layouts.llm.pp of 2 or more"),
        ("pp: 2, vpp: 2", "vpp: 1"),
        ("pp: 2, schedule: gpipe", "schedule fixes it"),
    ],
)
def test_what_it_cannot_order_it_says(made, fixed, reason):
    inputs = made(fixed)
    assert reason in pipeline_order.supports(inputs)
    with pytest.raises(InputError, match="pipeline_order"):
        solved(inputs)


def test_what_its_base_cannot_lay_out_it_says(made):
    """Several batches."""
    inputs = made()
    with pytest.raises(InputError, match="parallel_search decides the layout from one batch"):
        solved(replace(inputs, batches=inputs.batches * 2))


def test_without_a_layout_to_start_from_it_refuses(made):
    with pytest.raises(InputError, match="starts from a static layout"):
        pipeline_order.plan(made(), None)


def test_what_refines_and_what_is_refined_are_strategies():
    later = [name for name, listed in STRATEGIES.items() if listed.refines]
    assert later
    for name in later:
        assert STRATEGIES[name].refines in STRATEGIES
        assert callable(strategy_called(name).inputs_for_base)


@pytest.mark.slow
def test_what_the_layout_alone_gives_is_told(usual, made):
    """Where a rank may have several chunks of layers, interleaving may be quicker than any order of whole stages."""
    inputs = made()
    alone = solved(replace(inputs, job=with_fields(inputs.job, strategy="parallel_search")))
    told = [other for other in usual.alternatives if other.strategy == "parallel_search"]
    assert [other.value for other in told] == [alone.outcome.value]
