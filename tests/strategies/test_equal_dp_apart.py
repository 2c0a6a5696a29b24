"""Cards of modules apart with equal dp: no other choice is quicker by its own objective; stages as level as can be."""

from itertools import pairwise, product
from math import ceil

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from planner.strategies.modality.equal_dp_apart import ModuleApart, equal_dp_layouts
from planner.strategies.modality.level_stages import chunks_of_counts, level_counts
from tests.examples import examples

SECONDS = st.floats(0.01, 10.0)
MODULES = st.lists(
    st.builds(lambda seconds, most, least: ModuleApart(seconds, most, min(most, least)), SECONDS,
              st.integers(1, 12), st.integers(1, 3)),
    min_size=1, max_size=3,
)  # fmt: skip


def brute_force(modules, cards, batch, every=False):
    """The least objective over all numbers of replicas and of cards of each module."""
    least = float("inf")
    for dp in range(1, min(cards, batch) + 1):
        for shares in product(*(range(each.least, each.most + 1) for each in modules)):
            if dp * sum(shares) > cards or (every and dp * sum(shares) < cards):
                continue
            slowest = max(each.seconds / share for each, share in zip(modules, shares, strict=True))
            least = min(least, ceil(batch / dp) * slowest)
    return least


@examples(200)
@given(MODULES, st.integers(1, 24), st.integers(1, 20), st.booleans())
def test_no_choice_is_quicker(modules, cards, batch, every):
    found = equal_dp_layouts(modules, cards, batch, every)
    assert min((each.seconds for each in found), default=float("inf")) == brute_force(modules, cards, batch, every)
    assert all(first.seconds <= second.seconds for first, second in pairwise(found))
    for each in found:
        assert each.dp * sum(each.cards) <= cards and (not every or each.dp * sum(each.cards) == cards)
        assert all(of.least <= share <= of.most for of, share in zip(modules, each.cards, strict=True))


def compositions(total, parts):
    """All ways to write a number as so many positive ones."""
    if parts == 1:
        yield (total,)
    else:
        yield from (
            (first, *rest) for first in range(1, total - parts + 2) for rest in compositions(total - first, parts - 1)
        )


@examples(100)
@given(st.integers(1, 4), st.integers(0, 8), SECONDS, st.data())
def test_stages_are_as_level_as_can_be(stages, more, seconds, data):
    beside = data.draw(st.lists(st.floats(0.0, 20.0), min_size=stages, max_size=stages))

    def slowest(counts):
        return max(other + seconds * count for other, count in zip(beside, counts, strict=True))

    counts = level_counts(stages + more, seconds, beside)
    assert sum(counts) == stages + more and min(counts) >= 1
    least = min(slowest(each) for each in compositions(stages + more, stages))
    assert np.isclose(slowest(counts), least, rtol=1e-12)


@examples(100)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.data())
def test_chunks_cover_the_layers_once_and_in_order(counts, data):
    vpp = data.draw(st.integers(1, min(counts)))
    chunks = chunks_of_counts(counts, vpp)
    assert [layer for chunk in chunks for layer in chunk] == list(range(sum(counts)))
    for rank, count in enumerate(counts):
        own = [len(chunk) for chunk in chunks[rank :: len(counts)]]
        assert sum(own) == count and max(own) - min(own) <= 1 and min(own) >= 1
