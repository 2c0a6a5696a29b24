"""The order of dims over ranks is solved for with each layout, priced as it is simulated, and covered by the bound."""

import random
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from planner.layouts.bounds.space_bound import layout_bounds
from planner.layouts.screening.layout_screening import closed_form_parts, screen
from planner.layouts.space.launchable_layouts import layouts_of
from planner.layouts.space.layout_fields import RANK_ORDER, RANK_ORDERS
from planner.layouts.space.layout_problem import fixed_fields, layout_problem
from planner.layouts.space.layout_space import layout_at
from planner.layouts.space.rank_orders import SEARCHED_ORDERS, order_choices, possible_orders
from planner.specs.base import with_fields
from planner.specs.framework.knobs import Knobs
from planner.specs.parallelism import DEFAULT_RANK_ORDER, MESH_DIMS, ZERO_BUBBLE
from planner.strategies import parallel_search
from planner.strategies.one_module.simulated_layouts import simulate_layout
from planner.strategies.static.static_prediction import predict_job
from tests.examples import share
from tests.static_jobs import small_cluster, static_inputs

SLOW_ADAPTERS = """\
format: planner.cluster/1
name: slow-adapters
source: made up
ranks: [{{kind: h100-80gb, count: {ranks}, per_node: {per_node}}}]
levels:
  - {{name: node, ranks: {per_node}, gb_per_s: 450, latency_us: 6.5}}
  - {{name: rack, ranks: {rack}, gb_per_s: {near}, latency_us: 10}}
  - {{name: cluster, ranks: {ranks}, gb_per_s: {far}, latency_us: 15}}
"""
MOST_PASSES = 200  # of a replica on all its stages


def slow_cluster(folder, ranks=16, per_node=8, rack=16, near=5, far=5):
    """Path of a cluster whose nodes have slow adapters; of three levels where a rack is not all of it."""
    path = folder / "cluster.yaml"
    text = SLOW_ADAPTERS.format(ranks=ranks, per_node=per_node, rack=rack, near=near, far=far)
    path.write_text(text if rack < ranks else "\n".join(text.splitlines()[:-1]) + "\n")
    return str(path)


def with_orders(problem, *orders):
    """The problem of a framework that has these orders alone; of any without one."""
    return replace(problem, knobs=with_fields(problem.knobs, rank_orders=orders))


def space_of(inputs):
    problem = layout_problem(inputs)
    return problem, layouts_of(problem, fixed_fields(inputs))


JOBS = [
    ("llama-3-8b", [8192] * 32, "", {}),
    ("llama-3-8b", [32768] * 16, "zero: 2", {"near": 1}),
    ("llama-3-8b", [4096] * 64, "cp: 1", {"ranks": 32, "rack": 16, "per_node": 4, "far": 2}),
    ("llama-3-8b", [300, 9000, 512, 700, 4096, 1000, 2048, 600] * 4, "zero: 1", {}),
    ("qwen3-30b-a3b", [4096] * 32, "zero: 1", {}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("model", "sizes", "fixed", "of"), JOBS)
@pytest.mark.every(2)
def test_each_layout_that_fits_has_the_quickest_of_its_orders(tmp_path, model, sizes, fixed, of):
    """Brute force: the whole space in each order by itself."""
    problem, found = space_of(static_inputs(tmp_path, model, slow_cluster(tmp_path, **of), sizes, fixed))
    chosen, each = screen(problem, found), [screen(with_orders(problem, order), found) for order in SEARCHED_ORDERS]
    fits = chosen.fits(problem)
    seconds = np.stack([one.seconds for one in each])
    moved = (found["cp"] > 1) & (found["tp"] * found["cp"] <= problem.machine.network.per_node)
    seconds[2, moved] = np.inf  # pp in front of a cp that fits into a node is not tried
    named = (found["ep"] * found["etp"] == found["tp"] * found["cp"]) | (found["pp"] == 1)  # an order that is named
    asked = fits & named if problem.trained.module.routed_experts else fits
    assert chosen.seconds[asked] == pytest.approx(seconds.min(axis=0)[asked], rel=1e-8)
    assert (chosen.seconds[fits] <= seconds.min(axis=0)[fits] * (1 + 1e-8)).all()
    assert all((one.bytes_needed == chosen.bytes_needed).all() for one in each)
    usual = chosen.layouts[RANK_ORDER] == 0
    assert chosen.seconds[usual] == pytest.approx(seconds[0, usual], rel=1e-12)  # of equals the default
    assert (chosen.seconds[~usual] < seconds[0, ~usual]).all() and (~usual).sum() < len(usual) / 2
    assert usual[~fits].all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "sizes", "fixed", "of"),
    [JOBS[0], *(pytest.param(*job, marks=pytest.mark.soak) for job in JOBS[1:] if len(set(job[1])) == 1)],
)
@pytest.mark.every(2)
def test_orders_are_simulated_as_they_are_priced(tmp_path, model, sizes, fixed, of):
    """Exactly, or no farther apart than in the default order: where a send takes longer than a chunk's pass,
    interleaving waits for it, which the closed form does not know. In any of the 120 orders.
    """
    inputs = static_inputs(tmp_path, model, slow_cluster(tmp_path, **of), sizes, fixed)
    problem, found = space_of(inputs)
    screened, draw, errors = screen(problem, found), random.Random(model + fixed), []
    every = ["-".join(dims) for dims in permutations(MESH_DIMS)]
    for place in draw.sample(range(len(found["tp"])), share(400)):
        layout = layout_at(problem.trained, screened.layouts, place)
        passes = layout.pp * layout.vpp * len(sizes) // (layout.dp * layout.replica * layout.micro_batch)
        if layout.pp == 1 or passes > MOST_PASSES or problem.trained.module.layers % (layout.pp * layout.vpp):
            continue
        if isinstance(layout.recompute, dict) or layout.zero == 3 or layout.schedule in ZERO_BUBBLE:
            continue
        usual, *others = (
            simulated_over_closed(inputs, problem, with_fields(layout, rank_order=order))
            for order in (DEFAULT_RANK_ORDER, layout.rank_order, *SEARCHED_ORDERS[1:], draw.choice(every))
        )
        errors += [min(abs(each - usual), abs(each - 1.0)) for each in others]
    assert len(errors) >= 20
    assert max(errors) < 0.05 and np.median(errors) < 1e-3  # what compute cannot hide: by token and once, or at once


def simulated_over_closed(inputs, problem, layout):
    """Seconds of a step, simulated, over those of the closed form."""
    return simulate_layout(inputs, layout).seconds / float(closed_form_parts(problem, layout).seconds)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "sizes", "fixed", "of"), JOBS)
@pytest.mark.every(8)
def test_no_order_is_quicker_than_the_bound(tmp_path, model, sizes, fixed, of):
    inputs = static_inputs(tmp_path, model, slow_cluster(tmp_path, **of), sizes, fixed)
    problem, found = space_of(inputs)
    screened, (least, needed) = screen(problem, found), layout_bounds(problem, found)
    choices, tried = order_choices(problem, found), 0
    for place in random.Random(fixed + model).sample(range(len(least)), share(240)):
        layout = layout_at(problem.trained, screened.layouts, place)
        passes = layout.pp * layout.vpp * len(sizes) // (layout.dp * layout.replica * layout.micro_batch)
        if layout.pp == 1 or passes > MOST_PASSES or needed[place] > problem.allowed:
            continue
        for choice in choices:
            if choice.tried[place]:
                ordered = with_fields(layout, rank_order=choice.rank_order)
                assert least[place] <= simulate_layout(inputs, ordered).seconds * (1 + 1e-9), ordered
                tried += 1
    assert tried >= 8


@pytest.mark.soak
def test_stages_share_nodes_where_that_is_quicker(tmp_path):
    """Long micro-batches between four stages of eight layers, over adapters of 5 GB/s: half a percent of the step."""
    fixed = "cp: 1, tp: 1, pp: 4"
    inputs = static_inputs(tmp_path, "llama-3-8b", slow_cluster(tmp_path), [32768] * 16, fixed)
    plan = parallel_search.plan(replace(inputs, job=with_fields(inputs.job, within=0.0)), None)
    assert plan.layouts["llm"].rank_order == "tp-cp-pp-dp-replica"
    usual = static_inputs(
        tmp_path, "llama-3-8b", slow_cluster(tmp_path), [32768] * 16, f"{fixed}, rank_order: {DEFAULT_RANK_ORDER}"
    )
    assert 1.004 < parallel_search.plan(usual, None).outcome.value / plan.outcome.value < 1.05


def test_on_one_node_every_order_is_the_default(tmp_path):
    inputs = static_inputs(tmp_path, "llama-3-8b", small_cluster(tmp_path, "h100-80gb", 8), [4096] * 16)
    problem, found = space_of(inputs)
    usual, *others = order_choices(problem, found)
    assert usual.tried.all() and not any(choice.tried.any() for choice in others)


def test_a_framework_has_its_own_orders_and_a_job_its_own(tmp_path):
    cluster = slow_cluster(tmp_path)
    inputs = static_inputs(tmp_path, "llama-3-8b", cluster, [8192] * 32)
    problem, found = space_of(inputs)
    assert possible_orders(problem) == SEARCHED_ORDERS
    assert possible_orders(with_orders(problem, "tp-cp-pp-dp-replica", DEFAULT_RANK_ORDER))[0] == DEFAULT_RANK_ORDER
    one = screen(with_orders(problem, DEFAULT_RANK_ORDER), found)
    assert not one.layouts[RANK_ORDER].any()
    kept = static_inputs(tmp_path, "llama-3-8b", cluster, [8192] * 32, "rank_order: tp-pp-cp-dp-replica")
    told, same = space_of(kept)
    assert possible_orders(told) == ("tp-pp-cp-dp-replica",)
    place = int(np.argmax((same["pp"] > 1) & (same["tp"] == 1)))
    assert layout_at(told.trained, screen(told, same).layouts, place).rank_order == "tp-pp-cp-dp-replica"


def test_a_framework_without_the_default_order_has_layouts_in_its_own(tmp_path):
    inputs = static_inputs(tmp_path, "llama-3-8b", slow_cluster(tmp_path), [8192] * 32, "dp: 4, pp: 4, tp: 1")
    own = replace(inputs, software=with_fields(inputs.software, knobs=Knobs(rank_orders=("tp-cp-pp-dp-replica",))))
    problem, found = space_of(own)
    assert len(found["tp"]) > 0
    assert {RANK_ORDERS[n] for n in screen(problem, found).layouts[RANK_ORDER]} == {"tp-cp-pp-dp-replica"}


def test_a_fixed_order_is_predicted_as_it_is_simulated(tmp_path):
    """Not with the price of the default order, which is another one."""
    found = {}
    for order in SEARCHED_ORDERS:
        fixed = f"tp: 1, pp: 4, cp: 1, zero: 1, recompute: full, micro_batch: 1, rank_order: {order}"
        inputs = static_inputs(tmp_path, "llama-3-8b", slow_cluster(tmp_path), [32768] * 16, fixed)
        predicted = predict_job(inputs)
        found[order] = predicted.closed_seconds
        assert predicted.closed_seconds == pytest.approx(predicted.scores[0].step_seconds, rel=0.01)
    assert found[DEFAULT_RANK_ORDER] != pytest.approx(found["tp-cp-pp-dp-replica"], rel=0.01)
