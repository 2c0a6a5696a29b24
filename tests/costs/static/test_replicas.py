"""Gradients, parameters and the update over replicas."""

from dataclasses import replace

import pytest

from planner.costs.network.replicas import exchanged, held, unhidden, update
from planner.costs.columns import Setup
from planner.specs.parameters import parameters
from planner.specs.timing import Timing
from tests.costs.static.machines import GPT, LLAMA, MIXTRAL, ideal, shipped

SETUP = Setup(ranks=64, seq=4096, batch=256, zero=1)
BUSY = (1e3, 1e3)  # seconds of compute: all is hidden that can be


@pytest.mark.parametrize("module", [GPT, LLAMA, MIXTRAL])
@pytest.mark.parametrize(("tp", "pp", "ep"), [(1, 1, 1), (4, 2, 4), (8, 4, 2)])
def test_all_ranks_of_a_replica_hold_all_parameters(module, tp, pp, ep):
    dense, sparse = held(module, replace(SETUP, tp=tp, pp=pp, ep=ep))
    assert dense.count * tp * pp + sparse.count * ep * pp == pytest.approx(parameters(module).total)
    assert dense.replicas * tp * pp == sparse.replicas * ep * pp == 64


def test_sharding_moves_what_an_all_reduce_moves():
    """A reduce-scatter of gradients and an all-gather of as many bytes are an all-reduce (arXiv 1910.02054, 7.2)."""
    machine = ideal(Timing(gradient_bytes=2.0))
    part, _ = held(LLAMA, SETUP)
    plain, sharded = (exchanged(part, replace(SETUP, zero=zero), machine) for zero in (0, 1))
    assert float(sharded.reduce + sharded.gather) == pytest.approx(float(plain.reduce)) and float(plain.gather) == 0.0


@pytest.mark.parametrize(("gradient_bytes", "share"), [(4.0, 0.5), (2.0, 1.0)])
def test_gradients_in_bf16_take_half_of_float32_to_be_summed(gradient_bytes, share):
    """Within a node, where an all-to-all moves what a ring does. What is all-reduced between shards stays as it was."""
    machine, within = ideal(Timing(gradient_bytes=gradient_bytes)), replace(SETUP, ranks=8)
    part, _ = held(LLAMA, within)
    for zero, left in ((0, (1 + share) / 2), (1, share)):
        full, half = (exchanged(part, replace(within, zero=zero, compressed=c), machine) for c in (False, True))
        assert float(half.reduce) == pytest.approx(left * float(full.reduce)) and half.gather == full.gather
    part, _ = held(LLAMA, SETUP)
    full, half = (exchanged(part, replace(SETUP, shard=8, compressed=c), machine) for c in (False, True))
    scattered = part.count * gradient_bytes * 7 / 8 / 300e9
    assert float(full.reduce - half.reduce) == pytest.approx((1 - share) * scattered)


def test_nothing_is_owed_by_one_replica():
    alone = replace(SETUP, ranks=8, tp=8, batch=8)
    assert float(unhidden(LLAMA, alone, shipped(), BUSY)) == 0.0


def test_compute_hides_all_but_the_ends():
    shown = [float(unhidden(LLAMA, SETUP, shipped(dp_window=1.0), (busy, busy))) for busy in (0.0, 0.1, 1e3)]
    assert shown[0] > shown[1] > shown[2] > 0
    assert shown[2] == pytest.approx(shown[0] / LLAMA.layers)


def test_zero_three_gathers_for_every_micro_batch():
    once, each = (float(unhidden(LLAMA, replace(SETUP, zero=zero), shipped(), (0.0, 0.0))) for zero in (1, 3))
    assert each > once * 3  # four micro-batches, two gathers each


def test_adapters_owe_nothing():
    assert float(unhidden(LLAMA, replace(SETUP, adapters=True), shipped(), BUSY)) == 0.0
    assert float(update(LLAMA, replace(SETUP, adapters=True), shipped())) == 0.0


def test_a_shard_is_updated_sooner():
    times = [float(update(LLAMA, replace(SETUP, zero=z, shard=s), shipped())) for z, s in ((0, 0), (1, 8), (1, 0))]
    assert times[0] == pytest.approx(8 * times[1]) and times[1] == pytest.approx(8 * times[2])
