"""Data-parallel communication of gradients and parameters, and the optimizer's step."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.costs.layout_columns import LayoutColumns
from planner.costs.network.replica_exchange import (
    exposed_dp_seconds,
    exposed_part,
    replica_exchange,
    replicated_on_stage,
)
from planner.costs.network_model import strided_group
from planner.costs.packing_problem import ENDLESS
from planner.specs.framework.memory_coefficients import MemoryCoefficients
from planner.specs.framework.timing_coefficients import TimingCoefficients
from planner.specs.parameters import expert_parameters, parameter_counts, parameters_of_layers
from tests.costs.machines import GPT, LLAMA, MIXTRAL, ideal, shipped

WIDTHS = ("float32", "bf16")  # as gradients are exchanged


def sharers(part):
    return part.shard.size * part.copies.size


def of(part, at, machine):
    return replica_exchange(part, at, machine.network, machine.timing)


SETUP = LayoutColumns(ranks=64, seq=4096, batch=256, zero=1)
BUSY = (1e3, 1e3)  # seconds of compute: all is hidden that can be


@pytest.mark.parametrize("module", [GPT, LLAMA, MIXTRAL])
@pytest.mark.parametrize(("tp", "pp", "ep"), [(1, 1, 1), (4, 2, 4), (8, 4, 2)])
def test_the_ranks_of_a_first_stage_hold_its_layers_and_the_embedding(module, tp, pp, ep):
    """Of one stage all parameters; learned positions are whole on each rank."""
    dense, sparse = replicated_on_stage(module, replace(SETUP, tp=tp, pp=pp, ep=ep), 8)
    positions = (tp if pp > 1 else 1) * module.max_positions * module.hidden if module.positions == "learned" else 0
    first = parameters_of_layers(module, range(module.layers // pp)) + module.vocab * module.hidden + positions
    whole = parameter_counts(module).total if pp == 1 else first
    assert dense.count * tp + sparse.count * ep == pytest.approx(whole)
    assert tp * pp * sharers(dense) == ep * pp * sharers(sparse) == 64


def test_sharding_moves_what_an_all_reduce_moves():
    """A reduce-scatter of gradients and an all-gather of as many bytes are an all-reduce (arXiv 1910.02054, 7.2)."""
    machine = ideal(TimingCoefficients(gradient_bytes=2.0))
    part, _ = replicated_on_stage(LLAMA, SETUP, 8)
    plain, sharded = (of(part, replace(SETUP, zero=zero), machine) for zero in (0, 1))
    assert float(sharded.reduce + sharded.gather) == pytest.approx(float(plain.reduce)) and float(plain.gather) == 0.0


@pytest.mark.parametrize(("gradient_bytes", "share"), [(4.0, 0.5), (2.0, 1.0)])
def test_gradients_in_bf16_take_half_of_float32_to_be_summed(gradient_bytes, share):
    """Within a node, where an all-to-all moves what a ring does. What is all-reduced between shards stays as it was."""
    machine, within = ideal(TimingCoefficients(gradient_bytes=gradient_bytes)), replace(SETUP, ranks=8)
    part, _ = replicated_on_stage(LLAMA, within, 8)
    for zero, left in ((0, (1 + share) / 2), (1, share)):
        full, half = (of(part, replace(within, zero=zero, gradients=each), machine) for each in WIDTHS)
        assert float(half.reduce) == pytest.approx(left * float(full.reduce)) and half.gather == full.gather
    copied = replace(SETUP, replica=8)
    part, _ = replicated_on_stage(LLAMA, copied, 8)
    full, half = (of(part, replace(copied, gradients=each), machine) for each in WIDTHS)
    scattered = part.count * gradient_bytes * 7 / 8 / 300e9
    assert float(full.reduce - half.reduce) == pytest.approx((1 - share) * scattered)


def test_compute_hides_all_but_the_ends():
    shown = [float(exposed_dp_seconds(LLAMA, SETUP, shipped(dp_window=1.0), (busy, busy))) for busy in (0.0, 0.1, 1e3)]
    assert shown[0] > shown[1] > shown[2] > 0
    assert shown[2] == pytest.approx(shown[0] / LLAMA.layers)


def test_zero_three_gathers_for_every_micro_batch():
    once, each = (float(exposed_dp_seconds(LLAMA, replace(SETUP, zero=zero), shipped(), (0.0, 0.0))) for zero in (1, 3))
    assert each > once * 3  # four micro-batches, two gathers each


@given(
    st.floats(0, 10),
    st.lists(st.floats(0, 10), min_size=2, max_size=2).map(sorted),
    st.sampled_from([0.0, 0.3, 1.0]),
    st.floats(0, 0.99),
)
def test_compute_hides_no_more_than_its_window_and_never_what_stands_alone(seconds, beside, window, alone):
    """More compute hides more; none hides nothing, nor does a window of none."""
    less, more = (float(exposed_part(seconds, each, window, alone)) for each in beside)
    assert seconds * alone <= more <= less <= seconds
    assert seconds - less <= window * beside[0] + 1e-12
    assert float(exposed_part(seconds, 0.0, window, alone)) == seconds
    endless = float(exposed_part(seconds, ENDLESS, window, alone))
    assert endless == (seconds * alone if window else seconds)


@pytest.mark.parametrize("pp", [1, 4])
def test_under_a_pipeline_parameters_are_gathered_for_every_micro_batch_unless_they_stay(pp):
    at = replace(SETUP, zero=3, pp=pp)
    stays = replace(shipped(), accounting=MemoryCoefficients(keeps_gathered=True))
    each, once = (float(exposed_dp_seconds(LLAMA, at, machine, (0.0, 0.0))) for machine in (shipped(), stays))
    assert each / once == pytest.approx(at.micro_batches if pp > 1 else 1.0)


def test_experts_are_reduced_over_their_copies_alone():
    """Of 64 ranks with ep 8, each expert is on 8; those are the ranks eight apart."""
    at = replace(SETUP, ep=8)
    dense, sparse = replicated_on_stage(MIXTRAL, at, 8)
    assert (dense.shard, sparse.shard) == (strided_group(64, 1), strided_group(8, 8))
    assert sparse.count == 32 * expert_parameters(MIXTRAL) / 8
    assert (
        replicated_on_stage(LLAMA, at, 8)[1].count
        == 0
        == float(of(replicated_on_stage(LLAMA, at, 8)[1], at, shipped()).reduce)
    )


@pytest.mark.parametrize("module", [LLAMA, MIXTRAL])
@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_weights_gathered_before_the_forward_are_waited_for_in_full(module, zero):
    """All of a gather below ZeRO-3, of which some was hidden; nothing else changes."""
    at = replace(SETUP, zero=zero)
    ahead, before = (shipped(dp_window=0.5, gathers_ahead=each) for each in (True, False))
    added = exposed_dp_seconds(module, at, before, BUSY) - exposed_dp_seconds(module, at, ahead, BUSY)
    gather = sum(float(of(part, at, ahead).gather) for part in replicated_on_stage(module, at, 8))
    hidden = gather * (1.0 - 1.0 / module.layers)
    assert float(added) == pytest.approx(hidden if zero in (1, 2) else 0.0, abs=1e-12)
    assert hidden > 0.0 or zero == 0
