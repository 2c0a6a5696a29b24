"""Offload: what hides, what stays on the device, and the fewest ranks that hold an item, each against brute force."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.costs.compute.assumed_rates import ASSUMED_RATES
from planner.costs.layout_columns import columns_of
from planner.costs.memory.allowed_memory import device_accounting
from planner.costs.memory.footprint import layer_token_bytes, loss_bytes
from planner.costs.memory.offload import STEPS, Offloading, offloading_of
from planner.costs.memory.token_caps import ActivationBytes, token_cap
from planner.costs.pricing import Pricing
from planner.plan.plan_file import Layout, Prices
from planner.specs import library
from planner.specs.base import Layers, Ranks, with_fields
from planner.specs.framework.memory_coefficients import PLANNER_RUNTIME_MEMORY
from planner.specs.hardware.cluster import Cluster
from planner.specs.hardware.profile import Profile
from planner.specs.job import Limits
from planner.specs.model import Model
from planner.specs.sequence_sharding import SequenceSplit
from planner.specs.shapes import resident_layers

DEVICE = library.read_named("h100-80gb", Profile)[0].device
MODULE = library.read_named("gpt-7b", Model)[0].modules["llm"]
CLUSTER = library.read_named("h100x64", Cluster)[0]
LAYOUT = Layout(ranks=Ranks(range(64)), dp=64, zero=1)
KIND = CLUSTER.ranks[0].kind


def pricing(device=DEVICE, **layout) -> Pricing:
    """By rates that are assumed."""
    prices = Prices(profile="made up", rates={KIND: ASSUMED_RATES})
    return Pricing({"llm": MODULE}, {"llm": with_fields(LAYOUT, **layout)}, CLUSTER, prices, {KIND: device})


PRICED = pricing()
RANK = PRICED.offloading("llm", KIND, Layers(range(MODULE.layers)))
PASSES = PRICED.module_pricing("llm", KIND).layer_lines
HELD = PRICED.module_pricing("llm", KIND).activation_bytes(Layers(range(MODULE.layers)), True, SequenceSplit(), (1,))
SIZES = st.integers(1, 3_000_000)


def of_layers(held: ActivationBytes, layers: int, ends: bool) -> ActivationBytes:
    """The same of a rank with other layers."""
    return ActivationBytes(held.layers * layers / MODULE.layers, held.head if ends else 0.0, held.recomputed)


@given(SIZES, st.integers(1, 64))
def test_the_largest_ratio_hides_on_any_number_of_ranks_and_no_larger_one_does(size, ranks):
    """T(s)/d against the bytes of the s/d tokens that each rank has, in the faster pass."""
    most = RANK.largest_ratio(size)
    seconds = min(line.item_seconds(size) for line in PASSES) / ranks
    bytes_a_rank = HELD.layers / MODULE.layers * size / ranks
    bandwidth = DEVICE.host_gb_per_s * 1e9
    assert most * bytes_a_rank / bandwidth <= seconds * (1 + 1e-9)
    assert most == 1 or (most + 1 / STEPS) * bytes_a_rank / bandwidth > seconds * (1 - 1e-9)


@pytest.mark.parametrize("name", ["a100-40gb", "a100-80gb", "h100-80gb", "h200"])
def test_gpus_have_a_link_to_their_host_and_the_cpu_has_none(name):
    assert library.read_named(name, Profile)[0].device.host_gb_per_s > 20
    cpu = library.read_named("cpu", Profile)[0].device
    assert cpu.host_gb_per_s is None
    assert offloading_of(PASSES, HELD, MODULE.layers, cpu).largest_ratio(2**21) == 0


def test_the_first_layer_and_the_last_stay():
    """ByteScale's count: two layers stay, and 1 − r of the l − 2 others; with two layers nothing is offloaded."""
    for layers in (1, 2, 3, 32):
        for ratio in (0.0, 0.25, 1.0):
            counted = sum(1.0 if layer in (0, layers - 1) else 1 - ratio for layer in range(layers))
            assert resident_layers(layers, ratio) == pytest.approx(counted)
    assert offloading_of(PASSES, of_layers(HELD, 2, True), 2, DEVICE).largest_ratio(2**21) == 0


@given(st.floats(0, 1), st.integers(1, 40), st.booleans())
def test_what_is_kept_is_what_the_memory_model_counts(ratio, layers, ends):
    accounting, at = device_accounting(DEVICE, PLANNER_RUNTIME_MEMORY), columns_of(LAYOUT)
    each = float(layer_token_bytes(MODULE, "dense", at, accounting)[0])
    rank = offloading_of(PASSES, of_layers(HELD, layers, ends), layers, DEVICE)
    behind = float(loss_bytes(MODULE, at, accounting, 1.0)) if ends else 0.0
    assert rank.held_bytes(0.0) == pytest.approx(layers * each + behind)
    gone = max(0, layers - 2) * each * ratio
    assert rank.kept_share(ratio) == pytest.approx(1 - gone / rank.held_bytes(0.0))
    assert 0 < rank.kept_share(1.0) <= rank.kept_share(ratio) <= 1


class Placement(NamedTuple):
    """The fewest ranks that hold an item, and the least offload ratio that suffices there."""

    ranks: int
    offload: float


def fewest_ranks(rank, size, cap, allowed):
    """D(s): the fewest of the allowed numbers of ranks, of `cap` tokens each, that hold an item; None where none do."""
    most = rank.largest_ratio(size)
    ranks = min((ranks for ranks in allowed if rank.kept_share(most) * size <= ranks * cap), default=None)
    return None if ranks is None else Placement(ranks, rank.least_ratio(size, ranks * cap, most))


@given(SIZES, st.integers(1, 20_000), st.lists(st.integers(1, 300), min_size=1, max_size=40))
def test_the_fewest_ranks_are_those_of_a_search_over_all(size, cap, allowed):
    def holds(ranks: int) -> bool:
        return any(RANK.kept_share(ratio) * size <= ranks * cap for ratio in (0.0, RANK.largest_ratio(size)))

    found = fewest_ranks(RANK, size, cap, allowed)
    best = min(filter(holds, allowed), default=None)
    assert (found.ranks if found else None) == best
    if found:
        assert found.offload <= RANK.largest_ratio(size)
        assert RANK.kept_share(found.offload) * size <= found.ranks * cap
        less = found.offload - 2 / STEPS
        assert found.offload == 0 or less < 0 or RANK.kept_share(less) * size > found.ranks * cap


def test_offload_saves_ranks_only_where_it_hides():
    """Any number of ranks, not powers of two; without a way to the host, as many as the tokens need."""
    stuck = offloading_of(PASSES, HELD, MODULE.layers, with_fields(DEVICE, host_gb_per_s=None))
    cap, everyone = 8192, range(1, 257)
    for size in (1000, 8192, 20_000, 100_000, 2**21):
        plain, helped = fewest_ranks(stuck, size, cap, everyone), fewest_ranks(RANK, size, cap, everyone)
        assert plain == (-(-size // cap), 0.0)
        assert helped.ranks <= plain.ranks and (helped.offload > 0) == (helped.ranks < plain.ranks)
    assert fewest_ranks(RANK, 2**21, cap, everyone).ranks < 256 / 5
    assert fewest_ranks(RANK, 2**21, cap, [1, 2, 4]) is None


@pytest.mark.parametrize("again_kib", [0.0, 500.0])
def test_offloaded_placements_fit_the_memory_of_the_cap(again_kib):
    """With what the backward of a layer makes again, beyond what the ends keep."""
    held = HELD._replace(recomputed=again_kib * 1024)
    rank = offloading_of(PASSES, held, 32, DEVICE)
    cap = token_cap(MODULE, held.times, LAYOUT, DEVICE, Limits(), PLANNER_RUNTIME_MEMORY)
    assert (rank.recomputed_bytes > 0) == (again_kib * 1024 > held.head)
    for size in (50_000, 123_457, 700_001):
        found = fewest_ranks(rank, size, cap, range(1, 65))
        taken = (rank.held_bytes(found.offload) + rank.recomputed_bytes) * size / found.ranks
        assert found.offload and taken <= held.peak * cap * (1 + 1e-12)


def test_without_activations_no_link_is_needed():
    free = Offloading(8, 0.0, 0.0, ((0.0, 0.0),), 1.0)
    assert (free.largest_ratio(5), free.kept_share(1.0)) == (1.0, 1.0)
