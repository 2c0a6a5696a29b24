"""One micro-batch on a stage: recomputation, the host's pace, layers shared out."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.costs.columns import Setup
from planner.costs.step.stage import Pass, launched, layers_of, mean_layer, stages
from planner.specs.timing import Timing
from tests.costs.static.machines import GPT, LLAMA, MIXTRAL, ideal, shipped

SETUP = Setup(ranks=64, seq=4096, batch=64, tp=2)


@given(first=st.floats(0, 1), second=st.floats(0, 1))
def test_more_recomputed_takes_longer(first, second):
    less, more = sorted((first, second))
    times = [float(mean_layer(LLAMA, replace(SETUP, full=full), shipped()).seconds) for full in (less, more)]
    assert times[0] <= times[1] * (1 + 1e-12)


@pytest.mark.parametrize("again", ["attention", "norm", "mlp", "moe"])
def test_each_part_made_again_costs_and_less_than_the_whole_layer(again):
    none, part, whole = (
        float(mean_layer(MIXTRAL, replace(SETUP, **fields), shipped()).seconds)
        for fields in ({}, {"again": frozenset([again])}, {"full": 1.0})
    )
    assert none <= part < whole and (again == "mlp" or none < part)


def test_full_recomputation_is_one_forward_more():
    plain, full = (mean_layer(LLAMA, replace(SETUP, full=f), shipped()) for f in (0.0, 1.0))
    assert float(full.seconds - plain.seconds) == pytest.approx(float(plain.forward.seconds))


@given(device=st.floats(1e-6, 1.0), host=st.floats(0, 1.0))
def test_the_slower_of_device_and_host_sets_the_pace(device, host):
    seconds = float(launched(Pass(compute=device), host).seconds)
    assert max(device, host) * (1 - 1e-12) <= seconds <= max(device, host) * 2**0.25 * (1 + 1e-12)


def test_a_short_pass_takes_as_long_as_its_launches():
    machine = ideal(Timing(layer_us=1000.0))
    tiny = replace(SETUP, seq=16, tp=1)
    assert float(mean_layer(GPT, tiny, machine).forward.seconds) == pytest.approx(1e-3, rel=0.01)


def test_no_part_is_negative():
    found = mean_layer(MIXTRAL, replace(SETUP, ep=8, balanced=False), shipped(expert_us=3000.0)).backward
    assert min(float(np.min(getattr(found, name))) for name in ("compute", "tp", "cp", "ep")) >= 0


@given(pp=st.sampled_from([1, 2, 4, 8]), vpp=st.sampled_from([1, 2, 4]), layers=st.integers(8, 128))
def test_layers_are_conserved(pp, vpp, layers):
    """But where they do not come out even and stages are whole: then each counts as the fullest, by less than one."""
    each, outer = layers_of(layers, Setup(ranks=64, seq=1, batch=64, pp=pp, vpp=vpp))
    total = float(outer if pp == 1 else 2 * outer + (pp - 2) * each)
    assert total == pytest.approx(layers) or (vpp == 1 and pp > 1 and layers < total < layers + pp)


def test_the_last_stage_has_the_head():
    found = stages(LLAMA, replace(SETUP, pp=4), shipped())
    assert float(found.last.seconds) > float(found.first.seconds) == pytest.approx(float(found.middle.seconds))
