"""For any shards, the ranks of a group together hold exactly the packed batch."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InputError
from planner.models.inputs.training_items import ROWS_PER_DRAW, synthetic_batch, synthetic_item
from planner.models.sequence_parallel import NO_SEQUENCE_PARALLEL, NoSequenceParallel
from planner.specs.layers import Decoder, Vit
from planner.specs.sequence_sharding import even_sizes, token_range
from tests.examples import examples

DECODER = Decoder(layers=1, hidden=8, heads=2, ffn=8, vocab=100)
VIT = Vit(layers=1, hidden=8, heads=2, ffn=8, patch=2, channels=1, merge=2, out=3)
FIELDS = ("inputs", "targets", "positions")


class Shard(NoSequenceParallel):
    def __init__(self, start, stop):
        self.start, self.stop = start, stop

    def local_spans(self, lengths):
        return token_range(lengths, self.start, self.stop)


def shards(sizes):
    stops = torch.tensor(sizes).cumsum(0).tolist()
    return [Shard(stop - size, stop) for size, stop in zip(sizes, stops, strict=True)]


@examples(40)
@given(st.lists(st.integers(1, 30), max_size=4), st.integers(1, 5), st.sampled_from([DECODER, VIT]))
def test_shards_make_up_the_batch(lengths, ranks, spec):
    unit = spec.tokens_per_output
    documents = [(item, unit * length) for item, length in enumerate(lengths)]
    sizes = even_sizes(unit * sum(lengths), ranks, unit)
    whole = synthetic_batch(spec, documents, 7)
    parts = [synthetic_batch(spec, documents, 7, sequence_parallel=exchange) for exchange in shards(sizes)]
    for field in FIELDS:
        assert torch.equal(torch.cat([getattr(part, field) for part in parts]), getattr(whole, field))
    assert whole.sequence_parallel is NO_SEQUENCE_PARALLEL
    assert whole.cu_seqlens.tolist() == [0, *torch.tensor(lengths, dtype=torch.int).cumsum(0).mul(unit).tolist()]
    assert all(torch.equal(part.cu_seqlens, whole.cu_seqlens) for part in parts)


def test_targets_are_the_next_tokens_across_blocks():
    inputs, targets = synthetic_item(DECODER, 3, (0, 2 * ROWS_PER_DRAW + 5), seed=1)
    assert torch.equal(inputs[1:], targets[:-1])
    assert inputs.min() >= 0 and inputs.max() < DECODER.vocab
    middle = synthetic_item(DECODER, 3, (ROWS_PER_DRAW - 2, ROWS_PER_DRAW + 9), seed=1)
    assert torch.equal(middle[0], inputs[ROWS_PER_DRAW - 2 : ROWS_PER_DRAW + 9])
    assert torch.equal(middle[1], targets[ROWS_PER_DRAW - 2 : ROWS_PER_DRAW + 9])


def test_items_and_seeds_differ():
    draws = [synthetic_item(DECODER, item, (0, 50), seed)[0].tolist() for item in (0, 1) for seed in (0, 1)]
    assert len({tuple(draw) for draw in draws}) == 4


@given(tokens=st.integers(0, 500), ranks=st.integers(1, 9), unit=st.sampled_from([1, 4]))
def test_even_sizes(tokens, ranks, unit):
    sizes = even_sizes(tokens * unit, ranks, unit)
    assert sum(sizes) == tokens * unit and len(sizes) == ranks
    assert max(sizes) - min(sizes) <= unit and all(size % unit == 0 for size in sizes)


@pytest.mark.parametrize(
    ("spec", "documents", "exchange", "says"),
    [
        (VIT, [(5, 6)], NO_SEQUENCE_PARALLEL, "item 5 has 6 tokens"),
        (VIT, [(5, 8)], Shard(0, 6), "cuts through tokens that are merged"),
        (DECODER, [(5, 0)], NO_SEQUENCE_PARALLEL, "item 5 has 0 tokens"),
        (Decoder(layers=1, hidden=8, heads=2, ffn=8, vocab=9, positions="learned", max_positions=3), [(2, 4)],
         NO_SEQUENCE_PARALLEL, "3 learned positions"),
    ],
)  # fmt: skip
def test_invalid_batches_are_refused(spec, documents, exchange, says):
    with pytest.raises(InputError, match=says):
        synthetic_batch(spec, documents, 0, sequence_parallel=exchange)
