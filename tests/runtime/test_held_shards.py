"""Each shard of a checkpoint is written once, by a rank that holds it, and ranks share what several of them hold."""

from hypothesis import given
from hypothesis import strategies as st

from planner.models.tensor_region import whole_region
from planner.runtime.checkpoint.held_shards import divide
from tests.examples import examples

SHARDS = {
    (f"w{at}", whole_region((4, 6)).select(0, [span])): 8 * 6 * (span[1] - span[0])
    for at in range(3)
    for span in ((0, 1), (1, 4))
}


@examples(60)
@given(st.lists(st.sets(st.sampled_from(sorted(SHARDS, key=str)), max_size=6), min_size=1, max_size=4))
def test_each_is_written_once_by_one_that_holds_it(held):
    ranks = [{name: (region, SHARDS[name, region]) for name, region in of_rank} for of_rank in held]
    written = [(name, ranks[rank][name][0]) for rank, names in enumerate(divide(ranks)) for name in names]
    assert len(written) == len({*written})
    assert {*written} == {(name, region) for of_rank in ranks for name, (region, _) in of_rank.items()}


@examples(30)
@given(st.lists(st.integers(1, 1000), min_size=1, max_size=30), st.integers(1, 5))
def test_replicas_write_equal_shares(sizes, replicas):
    held = {f"w{at}": (whole_region((size,)), 8 * size) for at, size in enumerate(sizes)}
    loads = [sum(held[name][1] for name in names) for names in divide([held] * replicas)]
    assert sum(loads) == 8 * sum(sizes)
    assert max(loads) <= sum(loads) / replicas + 8 * max(sizes)
