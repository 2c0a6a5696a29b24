"""Seconds of one micro-batch on a stage: recomputation, launches of the host, layers per stage."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.costs.layout_columns import LayoutColumns
from planner.costs.memory.model_states import stage_layers
from planner.costs.step.stage_seconds import (
    MicroBatchSeconds,
    PassSeconds,
    bound_by_host,
    fullest_and_last,
    head_seconds,
    item_seconds,
    mean_layer_seconds,
    one_rank,
    stage_seconds,
    through_uneven_stages,
)
from planner.plan.schedules import schedule_slots
from planner.specs.base import with_fields
from planner.specs.framework.timing_coefficients import TimingCoefficients
from tests.costs.machines import GPT, LLAMA, MIXTRAL, ideal, shipped

SETUP = LayoutColumns(ranks=64, seq=4096, batch=64, tp=2)


@given(first=st.floats(0, 1), second=st.floats(0, 1))
def test_more_recomputed_takes_longer(first, second):
    less, more = sorted((first, second))
    times = [
        float(mean_layer_seconds(LLAMA, replace(SETUP, full_recompute=full), shipped()).seconds)
        for full in (less, more)
    ]
    assert times[0] <= times[1] * (1 + 1e-12)


@pytest.mark.parametrize("again", ["attention", "norm", "mlp", "moe"])
def test_each_recomputed_part_costs_less_than_the_whole_layer(again):
    none, part, whole = (
        float(mean_layer_seconds(MIXTRAL, replace(SETUP, **fields), shipped()).seconds)
        for fields in ({}, {"recomputed_parts": frozenset([again])}, {"full_recompute": 1.0})
    )
    assert none <= part < whole and (again == "mlp" or none < part)


@given(device=st.floats(1e-6, 1.0), host=st.floats(0, 1.0))
def test_the_slower_of_device_and_host_is_critical(device, host):
    seconds = float(bound_by_host(PassSeconds(compute=device), host).seconds)
    assert max(device, host) * (1 - 1e-12) <= seconds <= max(device, host) * 2**0.25 * (1 + 1e-12)


def test_a_short_pass_takes_as_long_as_its_launches():
    machine = ideal(TimingCoefficients(layer_us=1000.0))
    tiny = replace(SETUP, seq=16, tp=1)
    assert float(mean_layer_seconds(GPT, tiny, machine).forward.seconds) == pytest.approx(1e-3, rel=0.01)


@given(pp=st.sampled_from([1, 2, 4, 8]), vpp=st.sampled_from([1, 2, 4]), layers=st.integers(8, 128))
def test_the_fullest_stage_and_the_last_have_as_many_layers_as_plans_give_them(pp, vpp, layers):
    """Where chunks are several and do not come out even, ranks have their mean, to less than a layer a chunk."""
    at = LayoutColumns(ranks=64, seq=1, batch=64, pp=pp, vpp=vpp)
    most, last = (float(each) for each in fullest_and_last(layers, at))
    *others, behind = (int(stage_layers(with_fields(GPT, layers=layers), at, stage)["dense"]) for stage in range(pp))
    even = vpp == 1 or 0 in (layers % (pp * vpp), (layers + 2) % (pp * vpp))
    assert abs(most - max(others, default=0)) < (1e-9 if even else vpp)
    assert abs(last - behind) < (1e-9 if even else vpp)


@given(pp=st.sampled_from([2, 4, 7, 8]), layers=st.integers(9, 80), said=st.none() | st.randoms())
def test_the_slowest_stage_is_that_of_all_stages_and_through_is_their_sum(pp, layers, said):
    module, machine = with_fields(LLAMA, layers=layers), shipped(micro_batch_ms=0.3)
    cuts = (0, *sorted(said.sample(range(1, layers), pp - 1)), layers) if said else ()
    at = replace(SETUP, pp=pp, ranks=2 * pp, cuts=cuts)
    layer, behind = mean_layer_seconds(module, at, machine), head_seconds(module, at, machine)
    counts = [int(stage_layers(module, at, stage)["dense"]) for stage in range(pp)]
    each = [count * float(layer.seconds) + 6e-4 for count in counts]
    each[-1] += float(behind.seconds)
    found = stage_seconds(module, at, machine)
    assert float(found.slowest.seconds) == pytest.approx(max(each))
    assert float(found.all_stages) <= sum(each) * (1 + 1e-9)
    assert said or float(found.all_stages) == pytest.approx(sum(each))
    first = each[0] if said else (sum(each) - float(behind.seconds)) / pp
    assert float(found.first.seconds) == pytest.approx(first)


@given(
    degrees=st.sampled_from([{}, {"tp": 4}, {"cp": 2, "pp": 2}, {"zero": 3, "offload": 0.5}]), size=st.integers(2, 9999)
)
def test_items_take_on_one_rank_what_a_step_of_them_does_whatever_the_layout(degrees, size):
    layouts, machine = replace(SETUP, **{name: np.full(3, each) for name, each in degrees.items()}), shipped()
    (found,) = item_seconds(LLAMA, one_rank(layouts), machine, (size,))
    alone, nothing = (LayoutColumns(ranks=1, seq=float(tokens), batch=1) for tokens in (size, 1))
    each, least = (stage_seconds(LLAMA, at, machine.without_launches).all_stages for at in (alone, nothing))
    assert found == pytest.approx(float(each - least), rel=1e-12)


def one_f_one_b(forward, backward, micro_batches):
    """Seconds of a step of 1F1B, by when each pass can begin: its stage is free, and what it waits for has ended."""
    stages, ends = len(forward), {}
    orders = [schedule_slots("1f1b", stages, micro_batches)[stage] for stage in range(stages)]
    queue, free = [list(order) for order in orders], [0.0] * stages
    while any(queue):
        for stage, slots in enumerate(queue):
            while slots:
                phase, number = slots[0][:2]
                needs = ("F", number, stage - 1) if phase == "F" else ("B", number, stage + 1)
                if needs[2] == stages:
                    needs = ("F", number, stage)
                if needs[2] >= 0 and needs not in ends:
                    break
                start = max(free[stage], ends.get(needs, 0.0))
                free[stage] = ends[phase, number, stage] = start + (forward if phase == "F" else backward)[stage]
                slots.pop(0)
    return max(free)


@given(pp=st.integers(2, 7), layers=st.integers(8, 60), count=st.integers(1, 40), drawn=st.randoms())
def test_steps_over_said_stages_are_no_longer_than_simulated_and_little_shorter(pp, layers, count, drawn):
    cuts = (0, *sorted(drawn.sample(range(1, layers), pp - 1)), layers)
    at = LayoutColumns(ranks=pp, seq=64, batch=count, pp=pp, cuts=cuts)
    layer = MicroBatchSeconds(PassSeconds(compute=1.0), PassSeconds(compute=2.0))
    head = MicroBatchSeconds(PassSeconds(compute=1.5), PassSeconds(compute=3.0))
    held = np.diff(cuts)
    forward, backward = 1.0 * held + 0.1, 2.0 * held + 0.1
    forward[-1], backward[-1] = forward[-1] + 1.5, backward[-1] + 3.0
    simulated = one_f_one_b(forward.tolist(), backward.tolist(), count)
    slowest = float(np.max(forward + backward))
    found = (count - 1) * slowest + float(through_uneven_stages(layer, head, 0.1, at))
    assert 0.9 * simulated <= found <= simulated * (1 + 1e-9)
