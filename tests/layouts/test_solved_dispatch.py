"""How tokens get to experts is solved for: the quickest kind that can be launched, and what is simulated has it."""

from dataclasses import replace

import numpy as np
import pytest

from planner.costs import DISPATCHES
from planner.layouts.bounds.space_bound import layout_bounds
from planner.layouts.screening.layout_screening import screen
from planner.layouts.space.launchable_layouts import layouts_of
from planner.layouts.space.layout_fields import DISPATCH
from planner.layouts.space.layout_problem import fixed_fields, layout_problem
from planner.layouts.space.layout_space import layout_at
from planner.specs.base import with_fields
from planner.specs.framework.knobs import Knobs
from planner.specs.layers.components import Experts
from planner.specs.parallelism import DEFAULT_RANK_ORDER
from planner.strategies import parallel_search
from planner.strategies.one_module.simulated_layouts import simulate_layout
from tests.static_jobs import small_cluster, static_inputs

RANKS = 8


@pytest.fixture
def made(tmp_path):
    """A job of experts, of which each token has so many, with these knobs."""

    def write(topk=8, fixed="", knobs=None, ranks=RANKS):
        cluster = small_cluster(tmp_path, "h100-80gb", ranks)
        inputs = static_inputs(tmp_path, "qwen3-30b-a3b", cluster, [4096] * 16, fixed)
        module = with_fields(inputs.spec, moe=Experts(experts=64, topk=topk, ffn=768))
        model = with_fields(inputs.model, modules={inputs.module: module})
        software = with_fields(inputs.software, knobs=knobs or inputs.software.knobs)
        return replace(inputs, model=model, software=software)

    return write


def space_of(inputs):
    problem = layout_problem(inputs)
    return problem, layouts_of(problem, fixed_fields(inputs))


@pytest.mark.parametrize("topk", [1, 4, 8, 9, 16])
@pytest.mark.parametrize("ranks", [8, 16])
@pytest.mark.every(6)
def test_each_layout_has_the_quickest_of_all_kinds(made, topk, ranks):
    """Brute force: the whole step at each kind by itself, in the order of ranks that it is solved for in."""
    knobs = Knobs(rank_orders=(DEFAULT_RANK_ORDER,))
    problem, found = space_of(made(topk, "zero: 1, recompute: none, cp: 1", knobs, ranks))
    chosen = screen(problem, found).seconds
    each = [screen(problem, {**found, DISPATCH: np.full_like(found[DISPATCH], kind)}).seconds for kind in range(3)]
    assert (chosen <= np.min(each, axis=0) * (1 + 1e-8)).all()


def test_all_is_gathered_where_experts_of_a_token_are_as_many_as_ranks(made):
    """MegaScale-MoE (arXiv 2505.11432): 2·k·(b·s·h/n)·(n − 1)/n against 2·b·s·h·(n − 1)/n."""
    gathered = DISPATCHES.index("all_gather")
    for topk in (1, 3, 5, 9):
        _, found = space_of(made(topk, "etp: 1, tp: 1, zero: 1, recompute: none"))
        some = found["ep"] > 1
        assert (found[DISPATCH][some & (topk > found["ep"])] == gathered).all()
        load = 1.25  # no rank of experts has more than a quarter over the mean
        assert (found[DISPATCH][some & (topk * load < found["ep"])] != gathered).all()


def test_only_what_the_framework_has_is_chosen(made):
    knobs = Knobs(dispatch=("all_to_all", "node_level"), node_level_etp="one")
    _, found = space_of(made(8, "", knobs, ranks=16))
    kinds = {DISPATCHES[kind] for kind in np.unique(found[DISPATCH])}
    assert kinds == {"all_to_all", "node_level"}
    assert (found["etp"][found[DISPATCH] == DISPATCHES.index("node_level")] == 1).all()
    every, _ = space_of(made(8, "", Knobs(dispatch=("all_to_all",))))
    assert every.dispatches == ("all_to_all",)


def test_what_the_job_says_is_kept(made):
    for kind in DISPATCHES:
        problem, found = space_of(made(8, f"dispatch: {kind}"))
        assert {layout_at(problem.trained, found, place).dispatch for place in range(0, len(found["tp"]), 99)} == {kind}


def test_a_dense_model_has_no_dispatch(tmp_path):
    inputs = static_inputs(tmp_path, "llama-3-8b", small_cluster(tmp_path, "h100-80gb", 8), [4096] * 16)
    _, found = space_of(inputs)
    assert not found[DISPATCH].any()


@pytest.mark.parametrize("topk", [2, 16])
@pytest.mark.every(2)
def test_what_is_simulated_has_it_and_takes_no_longer_than_with_others(made, topk):
    kinds = ("all_to_all", "all_gather")
    inputs = made(topk, "ep: 8, pp: 1, zero: 1", Knobs(dispatch=kinds))
    plan = parallel_search.plan(inputs, None)
    layout = plan.layouts[inputs.module]
    assert layout.dispatch == ("all_gather" if topk > 8 else "all_to_all")
    for kind in kinds:
        other = simulate_layout(inputs, with_fields(layout, dispatch=kind)).seconds
        assert plan.outcome.quickest.value <= other * (1 + 1e-8)


@pytest.mark.slow
def test_the_bound_holds_for_every_kind(made):
    problem, found = space_of(made(7, "zero: 1, cp: 1", Knobs()))
    least = layout_bounds(problem, found)[0]
    for kind in range(len(DISPATCHES)):
        screened = screen(problem, {**found, DISPATCH: np.full_like(found[DISPATCH], kind)})
        assert (least <= screened.seconds * (1 + 1e-8)).all()
