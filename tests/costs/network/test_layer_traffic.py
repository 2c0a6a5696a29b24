"""Volumes of tensor, sequence and expert parallelism against the papers' formulas."""

from dataclasses import replace
from itertools import product
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.costs.compute.expert_load import expert_load
from planner.costs.compute.layer_work import layer_work
from planner.costs.layout_columns import LayoutColumns
from planner.costs.network import layer_traffic as traffic
from planner.costs.network.expert_dispatch import expert_seconds, to_nodes, to_ranks
from planner.costs.network.layer_traffic import (
    layer_groups,
    layer_traffic,
    stage_sends,
    ulysses_seconds,
)
from planner.costs.network_model import CommGroup
from planner.specs.base import with_fields
from planner.specs.framework.timing_coefficients import TimingCoefficients
from planner.specs.shapes import ulysses_elements
from tests.costs.machines import GPT, LLAMA, MIXTRAL, ideal

NEAR, FAR = 300e9, 25e9
TOKENS = 2048


def setup(**fields):
    return LayoutColumns(**{"ranks": 64, "seq": TOKENS, "batch": 64, **fields})


def tensor(module, kind, at, machine):
    return traffic.tensor_seconds(module, kind, at, machine, layer_groups(at, 8))


@given(tp=st.sampled_from([2, 4, 8]))
def test_a_dense_layer_gathers_and_scatters_twice(tp):
    """Korthikanti et al. (2205.05198, section 4.2.2): as much as two all-reduces, 4·(tp − 1)/tp of b·s·h; backward
    gathers twice more.
    """
    forward, backward = tensor(GPT, "dense", setup(tp=tp), ideal())
    once = TOKENS * GPT.hidden * 2 * (tp - 1) / tp / NEAR
    assert (float(forward), float(backward)) == pytest.approx((4 * once, 6 * once))
    plain = tensor(GPT, "dense", setup(tp=tp, sequence_parallel=False), ideal())
    assert (float(plain[0]), float(plain[1])) == pytest.approx((4 * once, 4 * once))


@given(ep=st.sampled_from([2, 4, 8]), tp=st.sampled_from([1, 2]))
def test_experts_get_k_over_n_of_what_tensor_parallelism_moves(ep, tp):
    """A rank of n sends its own tokens k times, away and back: 2·k·s·h/n·(n − 1)/n, beside 4·s·h·(n − 1)/n by tp."""
    forward, backward = expert_seconds(MIXTRAL, "moe", setup(ep=ep, tp=tp), ideal())
    own = TOKENS / tp * 2 * MIXTRAL.hidden * 2
    assert float(forward) == float(backward) == pytest.approx(2 * own * (ep - 1) / ep / NEAR)
    assert expert_seconds(LLAMA, "dense", setup(), ideal()) == (0.0, 0.0)


@given(ep=st.sampled_from([1, 2, 4]), etp=st.sampled_from([1, 2]), tp=st.sampled_from([1, 2]))
def test_gathered_tokens_move_one_over_k_of_copies_to_all_ranks_of_the_experts(ep, etp, tp):
    """An all-gather of n ranks' tokens, and a reduce-scatter of as many outputs: 2·s·h/tp·(n − 1)."""
    ways = ep * etp
    spread = setup(ep=ep, etp=etp, tp=tp, dispatch="all_gather")
    forward, backward = expert_seconds(MIXTRAL, "moe", spread, ideal())
    own = TOKENS / tp * MIXTRAL.hidden * 2
    assert float(forward) == float(backward) == pytest.approx(2 * own * (ways - 1) / NEAR)


@given(topk=st.integers(1, 8), ep=st.sampled_from([2, 4, 8]))
def test_gathering_all_tokens_pays_where_a_token_has_more_experts_than_there_are_ranks(topk, ep):
    """MegaScale-MoE (2505.11432): k/n of what is gathered is sent by copies."""
    module = with_fields(MIXTRAL, moe=with_fields(MIXTRAL.moe, topk=topk))
    copies, tokens = (
        float(expert_seconds(module, "moe", setup(ep=ep, dispatch=how), ideal())[0])
        for how in ("all_to_all", "all_gather")
    )
    assert copies / tokens == pytest.approx(topk / ep)


def test_gathered_tokens_are_as_many_however_uneven_the_experts_are():
    even, uneven = (setup(ep=4, dispatch="all_gather", imbalance=each) for each in (0.0, 1.0))
    machine = ideal(TimingCoefficients(imbalance=0.5))
    assert expert_seconds(MIXTRAL, "moe", even, machine) == expert_seconds(MIXTRAL, "moe", uneven, machine)


def test_uneven_experts_take_longer_and_the_less_the_more_of_them_a_rank_has():
    machine = ideal(TimingCoefficients(imbalance=0.5))
    even = [float(expert_seconds(MIXTRAL, "moe", setup(ep=ep), machine)[0]) for ep in (2, 8)]
    uneven = [float(expert_seconds(MIXTRAL, "moe", setup(ep=ep, imbalance=1.0), machine)[0]) for ep in (2, 8)]
    fullest = [float(expert_load(MIXTRAL, setup(ep=ep, imbalance=1.0), machine.timing).mean) for ep in (2, 8)]
    assert [b / a for a, b in zip(even, uneven, strict=True)] == pytest.approx(fullest)
    assert 1.0 < fullest[0] < fullest[1]


def test_what_is_hidden_is_waited_for_in_part():
    machine = ideal(TimingCoefficients(overlapped=0.25))
    for kind, of, module in (("tp", tensor, GPT), ("ep", expert_seconds, MIXTRAL)):
        plain = setup(tp=4, ep=4) if kind == "ep" else setup(tp=4)
        layer = "moe" if kind == "ep" else "dense"
        hidden = replace(plain, overlap=frozenset([kind]))
        assert float(of(module, layer, hidden, machine)[0]) == pytest.approx(
            0.25 * float(of(module, layer, plain, machine)[0])
        )


@given(topk=st.integers(1, 16), nodes=st.sampled_from([2, 4, 8]))
def test_one_copy_to_each_node_is_never_more_than_all(topk, nodes):
    share = float(to_nodes(topk, setup(ep=8 * nodes, ranks=512), ideal()))
    assert 0 < share <= 1 + 1e-12 and (topk > 1 or share == pytest.approx(1.0))


@given(topk=st.integers(1, 5), ep=st.integers(1, 5))
def test_a_token_goes_once_to_each_rank_that_has_any_of_its_experts(topk, ep):
    """All choices of ranks are equally likely: the mean number of different ones."""
    choices = [len({*chosen}) for chosen in product(range(ep), repeat=topk)]
    assert float(to_ranks(topk, setup(ep=ep))) == pytest.approx(fmean(choices))


def test_a_ring_hides_behind_attention():
    """Keys and values of 2048 tokens go to three others; backward sends their gradients too, and has 2.5 times the
    attention to hide it. Of a long sequence attention hides all.
    """
    block, machine = 2048 * 2 * 1024 * 2, ideal()
    for seq in (8192, 128):
        at = setup(cp=4, seq=seq)
        core = layer_work(LLAMA, "dense", at).attention
        for forward, times in ((True, 1.0), (False, 2.0)):
            found = traffic.ring_traffic(LLAMA, at, machine, core, forward, layer_groups(at, 8))
            sent = times * 3 * block * seq / 8192 / NEAR
            assert float(found.send_seconds * seq) == pytest.approx(sent)
            hidden = float(machine.attention(core, forward))
            assert float(found.exposed(at)) == pytest.approx(max(0.0, sent - hidden))
            assert (float(found.exposed(at)) > 0) == (seq == 128)


@pytest.mark.parametrize(("cp", "heads"), [(2, 2), (4, 2), (4, 4), (4, 1)])
def test_heads_are_exchanged_for_tokens_within_blocks_and_keys_go_around_them(cp, heads):
    """Each pass sends queries, keys, values and the output of a rank's tokens, but for what stays, twice."""
    at, machine = setup(cp=cp, ulysses=heads, tp=2, micro_batch=3), ideal()
    core = layer_work(LLAMA, "dense", at).attention
    own = 3 * TOKENS / cp * ulysses_elements(LLAMA, heads * 2) / 2 * 2
    assert float(ulysses_seconds(LLAMA, at, machine, layer_groups(at, 8))) == pytest.approx(
        own * (heads - 1) / heads / NEAR
    )
    found = layer_traffic(LLAMA, "dense", at, machine, core)
    ring = [
        float(traffic.ring_traffic(LLAMA, at, machine, core, f, layer_groups(at, 8)).exposed(at)) if cp > heads else 0.0
        for f in (True, False)
    ]
    assert [float(each) for each in found.cp] == pytest.approx(
        [own * (heads - 1) / heads / NEAR + each for each in ring]
    )
    assert layer_groups(at, 8) == (
        CommGroup(2, 1, 2),
        CommGroup(heads, 2, 2 * heads),
        CommGroup(cp / heads, 2 * heads, 2 * cp),
    )


def test_a_stage_sends_each_rank_its_part():
    one, split = setup(pp=2, tp=8), setup(pp=2, tp=8, sequence_parallel=False)
    sent, whole = (stage_sends(GPT, at, ideal()) for at in (one, split))
    assert [float(each) for each in sent] == pytest.approx([TOKENS * GPT.hidden * 2 / 8 / FAR] * 2)
    assert [float(each) for each in whole] == pytest.approx([8 * float(sent.through)] * 2)
    assert stage_sends(GPT, setup(), ideal()) == (0.0, 0.0)
