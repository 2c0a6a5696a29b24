"""What a backward makes again is in the cap and in every peak, by one rule: whatever fits by one fits by the other."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.costs.memory.footprint import footprint
from planner.costs.memory.token_caps import ActivationBytes, token_cap
from planner.costs.pricing import pricing_of
from planner.errors import Infeasible
from planner.layouts.space.layout_fields import columns_for
from planner.layouts.space.layout_problem import layout_problem
from planner.orders.slot_timing import fits_memory
from planner.plan.tasks.expand import expand
from planner.scoring.bounds.pipeline_passes import passes_by_group, pipelines_of_groups, replica_pipelines
from planner.scoring.plan_memory import PlanMemory, exceeds_memory
from planner.scoring.score import require_memory, score
from planner.specs.base import Layers, with_fields
from planner.specs.framework.memory_coefficients import PLANNER_RUNTIME_MEMORY
from planner.specs.hardware.profile import ModuleCosts, PassCosts
from planner.specs.job import Limits
from planner.specs.sequence_sharding import SequenceSplit
from planner.strategies.static.fixed_layout import fixed_layout
from planner.strategies.static.layouts_plan import draft_of_layouts
from planner.units import GIB, KIB
from tests.plans import staged_plan
from tests.scoring.priced import FIT, priced
from tests.static_jobs import small_cluster, static_inputs

KEPT, AMOUNT = 3.0, st.floats(0.0, 100.0)


def costs_of(again: float, ends: float) -> ModuleCosts:
    layer = PassCosts(forward=FIT, backward=FIT, activation_kib_per_token=KEPT, working_kib_per_token=again)
    outside = PassCosts(forward=FIT, backward=FIT, activation_kib_per_token=ends)
    return ModuleCosts(source="measured", spread=0.1, layer=layer, ends=outside, recomputing={"full": layer})


def made_again(pp: int, tokens: list[int], again: float, ends: float):
    """A pipeline of stages of two layers that are made again."""
    plan = priced(staged_plan(pp, len(tokens), "gpipe"))
    prices = with_fields(plan.uses.prices, modules={"llm": costs_of(again, ends)})
    uses = with_fields(plan.uses, prices=prices, items={"llm": dict(enumerate(tokens))})
    return with_fields(plan, uses=uses, layouts={"llm": with_fields(plan.layouts["llm"], recompute="full")})


@given(AMOUNT, AMOUNT, st.integers(1, 40))
def test_a_token_holds_its_layers_and_the_larger_of_the_ends_and_what_is_made_again(again, ends, layers):
    basis = pricing_of(made_again(1, [1], again, ends)).module_pricing("llm", "toy")
    whole = basis.activation_bytes(Layers(range(layers)), True, SequenceSplit(), (1,))
    assert whole.peak == pytest.approx((KEPT * layers + max(ends, again)) * KIB)
    assert basis.activation_bytes(Layers(range(layers)), False, SequenceSplit(), (2, 3)).peak == pytest.approx(
        (KEPT * layers + again) * KIB * 5
    )


@pytest.mark.parametrize(("again", "ends"), [(0.0, 7.0), (5.0, 7.0), (7.0, 5.0), (90.0, 0.0)])
def test_a_rank_filled_up_to_its_cap_fits_and_one_more_token_does_not(again, ends):
    plan = made_again(1, [1], again, ends)
    module, layout, device = plan.uses.models["llm"], plan.layouts["llm"], plan.uses.devices["toy"]
    pricing = pricing_of(plan)
    one: ActivationBytes = pricing.module_pricing("llm", "toy").activation_bytes(
        Layers(range(2)), True, SequenceSplit(), (1,)
    )
    holding = PlanMemory(plan, pricing)
    cap = token_cap(module, one.times, layout, device, Limits(), PLANNER_RUNTIME_MEMORY)
    assert cap * one.peak <= holding.allowed_bytes(0) - holding.static_bytes(0) < (cap + 1) * one.peak
    full, beyond = (made_again(1, [tokens], again, ends) for tokens in (cap, cap + 1))
    require_memory(full, score(full))
    with pytest.raises(Infeasible, match="rank 0 would hold"):
        require_memory(beyond, score(beyond))


@given(st.integers(1, 4), st.lists(st.integers(1, 500), min_size=1, max_size=5), AMOUNT, AMOUNT)
def test_a_peak_is_higher_by_the_backward_that_runs_when_most_is_kept(pp, tokens, again, ends):
    """All of a step's micro-batches are kept as the first of them goes back. Only the last stage has ends."""
    with_it, without = (score(made_again(pp, tokens, each, ends)).memory.peaks for each in (again, 0.0))
    for stage in range(pp):
        more = again if stage < pp - 1 else max(0.0, again - ends)
        assert without[stage] <= with_it[stage]
        assert with_it[stage] <= without[stage] + more * KIB * max(tokens) + 1
        assert with_it[stage] >= without[stage] + more * KIB * min(tokens) - 1


@pytest.mark.parametrize("how", ["none", "selective", "full", "[norm]", "[attention, mlp]"])
@pytest.mark.parametrize("spread", ["tp: 1, pp: 1", "tp: 2, pp: 2", "tp: 1, pp: 4", "tp: 4, pp: 1"])
@pytest.mark.every(4)
def test_of_one_micro_batch_the_simulated_peak_is_the_static_footprint(spread, how, tmp_path):
    cluster, fixed = small_cluster(tmp_path, "h100-80gb", 4), f"{spread}, cp: 1, micro_batch: 1, recompute: {how}"
    replicas = 4 // (int(spread[4]) * int(spread[-1]))
    inputs = static_inputs(tmp_path, "llama-3-8b", cluster, (4096,) * replicas, fixed, "zero: 1")
    problem, layout = layout_problem(inputs), fixed_layout(inputs)
    s, at = score(draft_of_layouts(inputs, {inputs.module: layout})), columns_for(layout, problem.trained)
    for stage in range(layout.pp):
        rank, counted = stage * (4 // layout.pp), footprint(problem.trained.module, at, problem.accounting, stage)
        passes = replace(counted, update=0.0).fragmented(problem.accounting.fragmentation)
        assert s.memory.peaks[rank] == pytest.approx(float(passes.total), rel=1e-9)
        assert float(s.plan_memory.peak_footprint(rank, s.memory.peaks[rank], s.tasks).total) == pytest.approx(
            float(counted.total)
        )


@pytest.mark.parametrize("tokens", [[40, 40, 40], [10, 200, 30], [300, 20, 100], [1, 2, 400]])
def test_orders_leave_room_for_it(tokens):
    """What fits beside the most that is made again fits; whatever fits, fits beside the least. Each order of three
    micro-batches, on devices that have just its peak, and a byte less, or only room for states.
    """
    plan = made_again(1, tokens, 11.0, 4.0)
    orders = [word for word in map("".join, product("FB", repeat=6)) if ballot(word)]
    in_order = {
        word: with_fields(plan, steps=(with_fields(plan.steps[0], order={"llm": (slots(word),)}),)) for word in orders
    }
    peaks = {word: score(each).memory.peaks[0] for word, each in in_order.items()}
    verdicts = set()
    pricing = pricing_of(plan)
    for cap in {
        PlanMemory(plan, pricing).static_bytes(0),
        *(peak + more for peak in peaks.values() for more in (0.0, -1.0)),
    }:
        devices = {"toy": with_fields(plan.uses.devices["toy"], memory_gib=cap / GIB)}
        limits = Limits(memory_margin=0.0, oom_chance=1.0)
        small = with_fields(plan, uses=with_fields(plan.uses, devices=devices, limits=limits))
        pricing, tasks = pricing_of(small), expand(small)
        (surely,) = replica_pipelines(small, pricing, tasks)
        (maybe,) = pipelines_of_groups(small, pricing, tasks, passes_by_group(tasks), min)
        for word, peak in peaks.items():
            order = (word.replace("B", "IW"),)
            said = (
                fits_memory(surely.pipeline, order),
                not exceeds_memory(peak, PlanMemory(small, pricing).allowed_bytes(0)),
                fits_memory(maybe.pipeline, order),
            )
            assert said == tuple(sorted(said))
            verdicts.add(said)
    assert {(False,) * 3, (True,) * 3} <= verdicts
    assert len(verdicts) == 2 or len(set(tokens)) > 1


def ballot(word: str) -> bool:
    """Whether each micro-batch goes back once it came."""
    return word.count("F") == word.count("B") and all(
        word[:end].count("B") <= word[:end].count("F") for end in range(len(word))
    )


def slots(word: str) -> str:
    """In numbers: `F0 F1 B0 B1`."""
    return " ".join(f"{letter}{word[:at].count(letter)}" for at, letter in enumerate(word))
