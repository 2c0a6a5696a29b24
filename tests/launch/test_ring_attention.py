"""Four gloo ranks in one process group: for all rings and sub-groups, attention over all of them equals that of one
rank.
"""

from itertools import product

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from planner.launch.communication.communication_meter import CommunicationMeter
from planner.launch.communication.process_groups import ProcessGroups
from planner.launch.communication.unified_sequence_parallel import SharedMicroBatch, sequence_parallel_over
from planner.launch.processes import launch
from planner.launch.worker import joined_world
from planner.models.kernels.attention import packed_attention
from planner.models.kernels.attention_tiles import Masking, max_tile_tokens, tiles_of, visible_pairs
from planner.specs.layers import Decoder
from planner.specs.sequence_sharding import SequenceSplit, rank_spans, token_count, zigzag
from planner.specs.shapes import attended_pairs, ring_elements, ulysses_elements
from tests.examples import examples
from tests.models.kernels.test_attention import computed_scores

LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=6)
SPEC = Decoder(layers=1, hidden=32, heads=4, kv_heads=2, head_dim=6, ffn=8, vocab=8)


@examples(60)
@given(LENGTHS, st.integers(1, 3), st.integers(1, 5), st.sampled_from([1, 4]))
def test_ranks_hold_everything_once_and_evenly(lengths, ulysses, ring, unit):
    lengths = [unit * length for length in lengths]
    held = [rank_spans(lengths, (ulysses, ring), place, unit) for place in range(ulysses * ring)]
    tokens = sorted((d, token) for spans in held for d, first, last in spans for token in range(first, last))
    assert tokens == [(d, token) for d, length in enumerate(lengths) for token in range(length)]
    assert all(bound % unit == 0 for spans in held for _, *bounds in spans for bound in bounds)
    counts = [token_count(spans) for spans in held]
    assert max(counts) - min(counts) <= 3 * unit  # two between sub-groups, one within them
    blocks = [token_count(spans) for spans in zigzag(lengths, ring, unit)]
    assert max(blocks) - min(blocks) <= 2 * unit and sum(blocks) == sum(lengths)


def seen_by(spans, lengths, masking):
    """Pairs of a rank's token and a token that it attends to, one by one."""
    total = 0
    for _, first, last in spans:
        for token in range(first, last):
            total += min(token + 1, masking.window or token + 1)
    return total


@examples(40)
@given(LENGTHS, st.integers(2, 6), st.sampled_from([None, 7]))
def test_causal_work_is_balanced(lengths, ring, window):
    """Up to two rows of each document, and the missing part of the window of the first tokens."""
    masking = Masking(True, window)
    work = [seen_by(spans, lengths, masking) for spans in zigzag(lengths, ring)]
    assert sum(work) == sum(attended_pairs(length, True, window) for length in lengths)
    allowed = [2 * length if window is None else 2 * window + window**2 // 2 for length in lengths]
    assert max(work) - min(work) <= sum(allowed)
    if window is None and all(length % (2 * ring) == 0 for length in lengths):
        assert len(set(work)) == 1


@pytest.mark.parametrize("window", [None, 1000])
def test_computed_scores_of_a_long_document_are_balanced(window):
    masking, ring = Masking(True, window), 4
    dealings = zigzag([16384], ring)
    most = max_tile_tokens(masking, fused=False)
    cut = [tiles_of(spans, masking, most) for spans in dealings]
    work = [
        sum(computed_scores(pair) for keys in cut for pair in visible_pairs(queries, keys, masking)) for queries in cut
    ]
    assert max(work) - min(work) <= (window or 0) * most * 2
    assert sum(work) <= 1.1 * attended_pairs(16384, True, window) + 16384 * 2 * most
    contiguous = [tiles_of(rank_spans([16384], (ring, 1), place), masking, most) for place in range(ring)]
    naive = [
        sum(computed_scores(p) for keys in contiguous for p in visible_pairs(queries, keys, masking))
        for queries in contiguous
    ]
    assert sum(naive) <= 1.05 * sum(work)
    assert window or max(naive) > 1.6 * max(work)


MASKINGS = [Masking(True), Masking(False), Masking(True, 5), Masking(False, 4)]
CASES = {  # ranks -> split
    "ring 2": ((0, 2), SequenceSplit(1, 2)),
    "ring 3": ((1, 2, 3), SequenceSplit(1, 3)),
    "ring 4": ((0, 1, 2, 3), SequenceSplit(1, 4)),
    "2 x 2": ((0, 1, 2, 3), SequenceSplit(2, 2)),
    "ulysses 2": ((0, 1), SequenceSplit(2, 1)),
}
DOCUMENTS = {"long": [23, 8, 40], "short": [1, 1, 3, 2], "one token": [1], "one": [32]}


def whole(lengths, dtype):
    """q, k, v of another width, and sinks."""
    generator = torch.Generator().manual_seed(3)
    shapes = [(sum(lengths), 4, 6), (sum(lengths), 2, 6), (sum(lengths), 2, 5), (4,)]
    return [torch.randn(shape, generator=generator, dtype=dtype).requires_grad_() for shape in shapes]


def own_rows(spans, lengths):
    starts = torch.tensor([0, *lengths]).cumsum(0).tolist()
    return torch.tensor(
        [starts[d] + token for d, first, last in spans for token in range(first, last)], dtype=torch.long
    )


def check(groups, case, lengths, masking, dtype):
    """The largest error of a rank's outputs, and of the gradients of its rows, against one process."""
    ranks, split = CASES[case]
    tensors = whole(lengths, dtype)
    sinks = tensors[3] if masking.causal else None
    cu_seqlens = torch.tensor([0, *lengths]).cumsum(0).int()
    out = packed_attention(*tensors[:3], cu_seqlens, masking, sinks)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(4), dtype=dtype)
    inputs = tensors if sinks is not None else tensors[:3]
    want = torch.autograd.grad(out, inputs, weights)
    exchange = sequence_parallel_over(groups, SharedMicroBatch(ranks, split, lengths), CommunicationMeter())
    mine = own_rows(exchange.local_spans(lengths), lengths)
    parts = [x.detach()[mine].requires_grad_() for x in tensors[:3]]
    logits = None if sinks is None else sinks.detach().requires_grad_()
    got = exchange.attend(*parts, cu_seqlens, masking, logits)
    leaves = parts if logits is None else [*parts, logits]
    gradients = list(torch.autograd.grad(got, leaves, weights[mine]))
    errors = [got - out[mine], *(g - w[mine] for g, w in zip(gradients[:3], want[:3], strict=True))]
    if logits is not None:
        dist.all_reduce(gradients[3], group=groups[ranks])
        errors.append(gradients[3] - want[3])
    return max(float(error.detach().abs().max()) if error.numel() else 0.0 for error in errors)


def check_bytes(groups, case, backward):
    """The bytes that all ranks send in a forward, or in a forward and its backward."""
    ranks, split = CASES[case]
    meter, lengths = CommunicationMeter(), [64, 32]
    exchange = sequence_parallel_over(groups, SharedMicroBatch(ranks, split, lengths), meter)
    mine = token_count(exchange.local_spans(lengths))
    q, k, v = (torch.randn(mine, heads, 6, requires_grad=True) for heads in (4, 2, 2))
    out = exchange.attend(q, k, v, torch.tensor([0, 64, 96], dtype=torch.int32), Masking(True))
    if backward:
        out.sum().backward()
    sent = torch.tensor(meter.bytes)
    dist.all_reduce(sent, group=groups[ranks])
    return int(sent), meter.calls


def planned_bytes(split, tokens=96):
    """In float32: around the ring in one forward, and in all-to-alls of sub-groups."""
    ring = split.ulysses * split.ring * tokens * ring_elements(SPEC, split.ulysses, split.ring)
    own = (split.ulysses - 1) / split.ulysses
    heads = tokens * ulysses_elements(SPEC, split.ulysses) * own if split.ulysses > 1 else 0
    return 4 * ring, 4 * heads


def body(worker):
    with joined_world(worker, timeout_s=60):
        catalogue = {ranks for ranks, _ in CASES.values()}
        for ranks, split in CASES.values():
            catalogue |= {*map(tuple, split.ulysses_blocks(ranks)), *map(tuple, split.rings(ranks))}
        groups = ProcessGroups(catalogue)
        errors, sent = {}, {}
        for case, (ranks, _) in CASES.items():
            if worker.rank not in ranks:
                continue
            for (name, lengths), masking in product(DOCUMENTS.items(), MASKINGS):
                errors[case, name, str(masking)] = check(groups, case, lengths, masking, torch.float64)
            errors[case, "float32", ""] = check(groups, case, DOCUMENTS["long"], Masking(True), torch.float32)
            sent[case] = [check_bytes(groups, case, backward) for backward in (False, True)]
        return errors, sent


@pytest.fixture(scope="module")
def on_ranks():
    return launch(body, 4)


@pytest.mark.slow
def test_attention_equals_that_of_one_rank(on_ranks):
    for errors, _ in on_ranks:
        for name, error in errors.items():
            assert error <= (1e-12 if "float32" not in name else 1e-5), name
    assert len(on_ranks[2][0]) == 4 * (len(MASKINGS) * len(DOCUMENTS) + 1)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_sent_bytes_equal_the_priced_ones(on_ranks, case):
    """Backward sends keys and values around again, with their gradients; the all-to-alls of Ulysses are reversed."""
    ranks, split = CASES[case]
    ring, heads = planned_bytes(split)
    for rank in ranks:
        (forward, calls), (both, all_calls) = on_ranks[rank][1][case]
        assert forward == ring + heads
        assert both == 3 * ring + 2 * heads
        exchanges = 2 if split.ulysses > 1 else 0
        assert (calls, all_calls) == (split.ring - 1 + exchanges, 3 * (split.ring - 1) + 2 * exchanges)
