"""Model states: all ranks together hold the model's, and ZeRO removes the copies that it says."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.costs.layout_columns import LayoutColumns, stack_columns
from planner.costs.memory.model_states import (
    StateBytes,
    gathered_bytes,
    per_parameter,
    replicated_parameters,
    stage_layers,
    update_bytes,
    zero_state_bytes,
)
from planner.plan.mesh.even_stages import even_stages
from planner.specs.base import with_fields
from planner.specs.framework.memory_coefficients import MemoryCoefficients
from planner.specs.layers import Decoder, kind_counts, layer_kinds
from planner.specs.layers.components import Experts, LatentAttentionShape
from planner.specs.layers.trained import Lora
from planner.specs.parameters import embedding_head_parameters, parameter_counts
from planner.specs.trained_parameters import trained_parameters
from planner.units import GIB

DENSE = Decoder(layers=12, hidden=64, heads=8, kv_heads=4, ffn=128, vocab=256)
MOE = with_fields(DENSE, moe=Experts(experts=8, topk=2, ffn=32, shared_ffn=16, dense_layers=2))
LATENT = with_fields(MOE, latent=LatentAttentionShape(q_rank=16, kv_rank=8, rope_dim=4, nope_dim=8, value_dim=8))
BIASED = with_fields(DENSE, bias="all", norm="layer", gated=False, positions="learned", max_positions=32)
MEGATRON = MemoryCoefficients()


def over_ranks(module, setup, accounting=MEGATRON):
    """Bytes that all ranks hold together."""
    per_stage = setup.ranks / setup.pp
    each = [zero_state_bytes(module, setup, accounting, stage) for stage in range(setup.pp)]
    return StateBytes(*(per_stage * sum(float(size) for size in sizes) for sizes in zip(*each, strict=True)))


def doubled(module, tp):
    """Parameters that further tensor-parallel ranks hold again."""
    positions = module.max_positions * module.hidden if module.positions == "learned" else 0
    norm = module.hidden * (1 if module.norm == "rms" else 2)
    layers = sum(replicated_parameters(module, kind) * count for kind, count in kind_counts(module).items())
    return (tp - 1) * (layers + positions + norm)


@pytest.mark.parametrize("module", [DENSE, MOE, LATENT, BIASED])
@pytest.mark.parametrize(
    "shape", [{}, {"pp": 4}, {"pp": 2, "vpp": 3}, {"tp": 2, "etp": 2}, {"ep": 4, "tp": 2, "pp": 2}]
)
def test_fully_sharded_ranks_hold_the_states_once(module, shape):
    setup = LayoutColumns(ranks=16, seq=32, batch=16, zero=3, **shape)
    count = parameter_counts(module).total + doubled(module, setup.tp)
    assert over_ranks(module, setup) == pytest.approx((2 * count, 4 * count, 12 * count))


@pytest.mark.parametrize("module", [DENSE, MOE])
def test_without_zero_each_replica_holds_them(module):
    setup = LayoutColumns(ranks=16, seq=32, batch=16, pp=2, ep=2)
    whole = over_ranks(module, setup)
    experts = MOE.moe.experts * 3 * 64 * 32 * 10 if module.moe else 0
    rest = parameter_counts(module).total - experts
    assert whole.weights == pytest.approx(2 * (8 * rest + 4 * experts))
    assert whole.optimizer == pytest.approx(12 * (8 * rest + 4 * experts))


def test_stages_of_zero_take_one_kind_after_the_other():
    rows = [over_ranks(MOE, LayoutColumns(ranks=16, seq=32, batch=16, ep=4, zero=zero)) for zero in range(4)]
    for one, next_ in pairwise(rows):
        assert next_.total < one.total
        assert sum(a > b for a, b in zip(one, next_, strict=True)) == 1


def test_copies_of_shards_hold_them_as_often():
    one, four, all_ = (
        zero_state_bytes(
            DENSE, LayoutColumns(ranks=16, seq=32, batch=16, zero=1, replica=copies), MEGATRON, 0
        ).optimizer
        for copies in (16, 4, 1)
    )
    assert one == pytest.approx(4 * four) and four == pytest.approx(4 * all_)


@pytest.mark.parametrize("module", [DENSE, MOE, with_fields(MOE, layers=10), with_fields(MOE, layers=11)])
@pytest.mark.parametrize(("pp", "vpp"), [(1, 1), (4, 1), (3, 2), (2, 3), (12, 1)])
def test_every_layer_is_on_one_stage(module, pp, vpp):
    setup = LayoutColumns(ranks=pp, seq=32, batch=16, pp=pp, vpp=vpp)
    held = [stage_layers(module, setup, stage) for stage in range(pp)]
    assert {kind: sum(int(each[kind]) for each in held) for kind in held[0]} == kind_counts(module)


def test_embedding_and_head_count_as_a_layer_each_where_that_divides_evenly():
    """As Llama 3 405B was trained: 126 layers on 16 stages (arXiv 2407.21783, §3.3.2)."""
    setup = LayoutColumns(ranks=16, seq=32, batch=16, pp=16)
    counts = [int(stage_layers(with_fields(DENSE, layers=126), setup, stage)["dense"]) for stage in range(16)]
    assert counts == [7, *[8] * 14, 7]


def test_a_tied_head_is_a_second_copy_on_another_stage():
    tied = with_fields(DENSE, tied=True)
    one, two = (over_ranks(tied, LayoutColumns(ranks=pp, seq=32, batch=16, pp=pp)).weights for pp in (1, 2))
    assert one == pytest.approx(2 * parameter_counts(tied).total)
    assert two - one == pytest.approx(2 * 64 * 256)


def test_precisions():
    setup = LayoutColumns(ranks=1, seq=32, batch=1)
    sizes = {
        each: per_parameter(LayoutColumns(ranks=1, seq=32, batch=1, dtype=each), MEGATRON).total for each in PRECISIONS
    }
    assert sizes == PRECISIONS
    fp8 = zero_state_bytes(DENSE, LayoutColumns(ranks=1, seq=32, batch=1, dtype="fp8"), MEGATRON, 0).weights
    stack = parameter_counts(DENSE).all_layers
    assert fp8 == pytest.approx(
        zero_state_bytes(DENSE, setup, MEGATRON, 0).weights + 2 * stack
    )  # the ends stay as they are


PRECISIONS = {"bf16": 18, "fp16": 18, "fp8": 20, "float32": 16}


@pytest.mark.parametrize("module", [DENSE, MOE])
@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_what_is_frozen_has_weights_only(module, zero):
    at = LayoutColumns(ranks=4, seq=32, batch=16, zero=zero)
    frozen = over_ranks(with_fields(module, trained="none"), at)
    assert frozen == (pytest.approx((4 if zero < 3 else 1) * 2 * parameter_counts(module).total), 0.0, 0.0)


def test_adapters_have_states_of_their_own():
    """Whole: two sides of each matrix, in all layers."""
    module = with_fields(DENSE, trained=Lora(rank=8))
    weights, gradients, optimizer = over_ranks(module, LayoutColumns(ranks=4, seq=32, batch=16, zero=0))
    count = trained_parameters(module)
    assert weights == pytest.approx(4 * 2 * (parameter_counts(DENSE).total + count))
    assert gradients + optimizer == pytest.approx(4 * (MEGATRON.gradient_bytes + MEGATRON.optimizer_bytes) * count)


def test_narrow_gradients_are_cast_shard_by_shard():
    narrow = MemoryCoefficients(gradient_bytes=2)
    setup = LayoutColumns(ranks=4, seq=32, batch=16, zero=1)
    assert 4 * update_bytes(MOE, setup, narrow, 0) == pytest.approx(4 * parameter_counts(MOE).total)
    assert update_bytes(MOE, setup, MEGATRON, 0) == 0


def test_only_zero_3_gathers_and_a_stage_that_stays_gathered_is_whole():
    setup = LayoutColumns(ranks=8, seq=32, batch=16, pp=2, zero=3)
    assert gathered_bytes(DENSE, LayoutColumns(ranks=8, seq=32, batch=16, zero=2), MEGATRON, 0) == 0
    passing = gathered_bytes(DENSE, setup, MEGATRON, 0)
    staying = gathered_bytes(DENSE, setup, MemoryCoefficients(keeps_gathered=True), 0)
    layers = parameter_counts(DENSE).all_layers / 2 + (embedding_head_parameters(DENSE) - 64) / 2
    assert staying == pytest.approx(6 * layers) and passing < staying


def test_many_at_once_are_each_by_itself():
    setups = [
        LayoutColumns(ranks=16, seq=32, batch=16, tp=tp, pp=pp, vpp=vpp, ep=ep, zero=zero)
        for tp, pp, vpp, ep, zero in [(1, 1, 1, 8, 0), (2, 4, 3, 2, 1), (4, 2, 2, 4, 2), (2, 2, 1, 1, 3)]
    ]
    last = np.array([setup.pp - 1 for setup in setups])
    together = zero_state_bytes(MOE, stack_columns(setups), MEGATRON, last)
    for index, setup in enumerate(setups):
        alone = zero_state_bytes(MOE, setup, MEGATRON, setup.pp - 1)
        assert [kind[index] for kind in together] == pytest.approx([float(kind) for kind in alone])


def test_freed_gradients_make_room_for_the_update():
    """Below ZeRO-3 a float32 copy and temporaries stand in the place of gradients that were copied; under it these
    stay. Buckets are there while passes run, where several ranks have gradients.
    """
    keeps = MemoryCoefficients(gradient_bytes=2.0, update_bytes=8.0, bucket_gib=1.0)
    frees = with_fields(keeps, releases_gradients=True)
    for zero in range(4):
        setup = LayoutColumns(ranks=8, seq=32, batch=16, zero=zero)
        gradients = float(zero_state_bytes(DENSE, setup, keeps, 0).gradients) if zero < 3 else 0.0
        kept, freed = (float(update_bytes(DENSE, setup, each, 0)) for each in (keeps, frees))
        assert freed == pytest.approx(max(0.0, kept - gradients))
        without = with_fields(keeps, bucket_gib=0.0)
        more = gathered_bytes(DENSE, setup, keeps, 0) - gathered_bytes(DENSE, setup, without, 0)
        assert float(more) == pytest.approx(GIB)
    assert float(gathered_bytes(DENSE, LayoutColumns(ranks=1, seq=32, batch=16), keeps, 0)) == 0.0


def said_stages(cuts, vpp):
    """Layouts of stages with these cuts."""
    pp = (len(cuts) - 1) // vpp
    return LayoutColumns(ranks=2 * pp, seq=32, batch=16, pp=pp, vpp=vpp, cuts=tuple(cuts))


PARTITIONS = st.sampled_from([(2, 1), (4, 1), (2, 2), (3, 2), (12, 1)]).flatmap(
    lambda each: st.tuples(
        st.sets(st.integers(1, 11), min_size=each[0] * each[1] - 1, max_size=each[0] * each[1] - 1), st.just(each[1])
    )
)


@given(PARTITIONS, st.sampled_from([DENSE, MOE, BIASED]))
def test_stages_that_are_said_hold_their_own_layers_and_together_all(partition, module):
    """Counted by hand: each rank's layers by kind, and outside of them embedding or head."""
    cuts, vpp = [0, *sorted(partition[0]), module.layers], partition[1]
    setup, kinds = said_stages(cuts, vpp), layer_kinds(module)
    for rank in range(setup.pp):
        chunks = [range(*each) for each in [*pairwise(cuts)][rank :: setup.pp]]
        own = Counter(kinds[layer] for chunk in chunks for layer in chunk)
        assert {kind: count for kind, count in stage_layers(module, setup, rank).items() if count} == own
    count = parameter_counts(module).total
    assert over_ranks(module, setup).weights == pytest.approx(2 * 2 * count)  # two replicas, two bytes


@given(st.sampled_from([(2, 1), (3, 1), (4, 3), (6, 2)]), st.sampled_from([DENSE, MOE]))
def test_even_stages_are_the_same_said_or_not(pipeline, module):
    pp, vpp = pipeline
    said = said_stages([0, *(stage[-1] + 1 for stage in even_stages(module.layers, pp * vpp))], vpp)
    assert over_ranks(module, said) == over_ranks(module, replace(said, cuts=()))
