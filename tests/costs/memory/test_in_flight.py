"""Micro-batches in flight, against schedules that are simulated pass by pass."""

import numpy as np
import pytest

from planner.costs.layout_columns import LayoutColumns
from planner.costs.memory.pipeline_activations import in_flight


def setup(pp, batches, vpp=1, schedule="1f1b"):
    return LayoutColumns(ranks=pp, seq=8, batch=batches, pp=pp, vpp=vpp, schedule=schedule)


def most(ahead, total):
    """Chunks that wait for their backward, where `ahead` go forward before one goes back for each that comes."""
    order = [1] * min(ahead, total) + [1, -1] * (total - min(ahead, total)) + [-1] * min(ahead, total)
    return int(np.max(np.cumsum(order)))


@pytest.mark.parametrize("pp", [1, 2, 4, 7])
@pytest.mark.parametrize("batches", [1, 3, 4, 16])
def test_one_forward_one_backward(pp, batches):
    for stage in range(pp):
        assert in_flight(setup(pp, batches), stage) == most(pp - stage - 1, batches)


@pytest.mark.parametrize("pp", [2, 4, 8])
@pytest.mark.parametrize("vpp", [2, 3, 5])
@pytest.mark.parametrize("rounds", [1, 2, 8])
def test_interleaved(pp, vpp, rounds):
    """Warm-up of Narayanan et al., arXiv 2104.04473, §2.2, as Megatron-LM does it."""
    batches = rounds * pp
    for stage in range(pp):
        ahead = 2 * (pp - stage - 1) + (vpp - 1) * pp
        chunks = most(ahead, batches * vpp)
        assert in_flight(setup(pp, batches, vpp, "interleaved"), stage) * vpp == pytest.approx(chunks)


@pytest.mark.parametrize(("pp", "vpp"), [(8, 3), (35, 3), (4, 8)])
def test_interleaving_costs_the_printed_factor(pp, vpp):
    """L·(1 + (pp − 1)/(pp·vpp)) layers on the first stage, of L/pp each (arXiv 2205.05198, §4.2.3)."""
    plain, interleaved = in_flight(setup(pp, 10 * pp), 0), in_flight(setup(pp, 10 * pp, vpp, "interleaved"), 0)
    assert interleaved / plain == pytest.approx(1 + (pp - 1) / (pp * vpp))


def test_other_schedules():
    assert in_flight(setup(4, 32, schedule="gpipe"), 2) == 32
    assert [in_flight(setup(4, 32, schedule="zb_h1"), stage) for stage in range(4)] == [4] * 4
    assert in_flight(setup(4, 2, schedule="zb_h1"), 0) == 2
    assert [in_flight(setup(4, 32, schedule="zb_h2"), stage) for stage in range(4)] == [7] * 4
