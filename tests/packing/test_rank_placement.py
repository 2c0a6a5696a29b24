"""Groups lie within nodes, or on whole ones; no rank is in two of them; what greed places can be placed."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.costs.cost_lines import CostLine
from planner.costs.packing_problem import GroupShape, PackingProblem, RankPool
from planner.packing.makespan_search import search_makespans
from planner.packing.packed_groups import packing_seconds
from planner.packing.rank_placement import FreeNodes, align_groups, make_nodes, place_packing
from tests.examples import examples
from tests.groupings import fits_on_nodes, nodes_of, require_lies_well, require_possible, simple, warm_start


def on_nodes(pools: tuple[RankPool, ...], shapes: tuple[tuple[int, int], ...]) -> PackingProblem:
    """One item, and shapes of (degree, pool)."""
    line = CostLine(0.0, 1.0, 0.0)
    return PackingProblem({0: 1}, pools, tuple(GroupShape(d, pool, 100, line) for d, pool in shapes), 0.0, 0.0, {})


@st.composite
def requests(draw):
    """Pools of any nodes, and groups to place on them one after another."""
    pools, first = [], draw(st.integers(0, 9))
    for _ in range(draw(st.integers(1, 2))):
        pools.append(RankPool(first, draw(st.integers(1, 20)), draw(st.integers(1, 9))))
        first += pools[-1].ranks
    shapes = tuple((d, number) for number, pool in enumerate(pools) for d in range(1, pool.ranks + 1))
    return on_nodes(tuple(pools), shapes), draw(st.lists(st.integers(0, len(shapes) - 1), max_size=12))


@examples(300)
@given(requests())
def test_no_group_straddles_nodes_and_no_rank_is_taken_twice(request):
    problem, wanted = request
    nodes, taken = FreeNodes(make_nodes(problem)), Counter()
    for shape in wanted:
        before, free = list(nodes.free), nodes.free
        first = nodes.place_group(shape, problem.shapes[shape].degree)
        if first is None:
            assert free == before
            continue
        require_lies_well(problem, shape, first)
        taken.update(range(first, first + problem.shapes[shape].degree))
        assert min(free) >= 0 and sum(before) - sum(free) == problem.shapes[shape].degree
    assert all(times == 1 for times in taken.values())
    assert sum(taken.values()) == problem.ranks - sum(nodes.free)


@examples(200)
@given(requests())
def test_a_group_finds_no_place_only_where_there_is_none(request):
    """The first group of a micro-batch always does; a later one, beside those that lie already."""
    problem, wanted = request
    nodes = make_nodes(problem)
    places = FreeNodes(nodes)
    for shape in wanted:
        free = places.free
        degree, begin, end = problem.shapes[shape].degree, int(nodes.first_node[shape]), int(nodes.end_node[shape])
        sizes, now = nodes.size[begin:end].tolist(), free[begin:end]
        if degree <= sizes[0]:
            possible = max(now) >= degree
        else:
            whole = [left == size for left, size in zip(now, sizes, strict=True)]
            runs = [(i, j) for i in range(len(now)) for j in range(i + 1, len(now) + 1) if all(whole[i:j])]
            possible = any(sum(sizes[i:j]) >= degree for i, j in runs)
        assert (places.place_group(shape, degree) is not None) == possible


@pytest.mark.slow
@examples(400)
@given(requests())
def test_a_group_lies_where_a_look_at_every_node_would_put_it(request):
    """In the node that it fills best, of equal ones the first; a wider one on the first whole nodes."""
    problem, wanted = request
    nodes = make_nodes(problem)
    places, free = FreeNodes(nodes), nodes.size.tolist()
    for shape in wanted:
        degree = problem.shapes[shape].degree
        assert places.place_group(shape, degree) == place_among_all(nodes, shape, degree, free)
        assert places.free == free


def place_among_all(nodes, shape, degree, free):
    """The first rank of a group, found by comparing all nodes; its ranks are taken from `free`."""
    begin, end, size = int(nodes.first_node[shape]), int(nodes.end_node[shape]), nodes.size.tolist()
    if degree <= size[begin]:
        runs = [(node, node + 1) for node in range(begin, end) if free[node] >= degree]
        runs.sort(key=lambda run: (free[run[0]], run[0]))
    else:
        ends = ((i, j) for i in range(begin, end) for j in range(i + 1, end + 1))
        runs = [(i, j) for i, j in ends if free[i:j] == size[i:j] and sum(size[i:j]) >= degree]
    if not runs:
        return None
    (run, after), left = runs[0], degree
    first = int(nodes.first_rank[run]) + size[run] - free[run]
    for node in range(run, after):
        taken = min(left, free[node])
        free[node] -= taken
        left -= taken
    return first


class CountedReads(list):
    """A list that counts how often an entry is read."""

    reads = 0

    def __getitem__(self, at):
        self.reads += 1
        return super().__getitem__(at)


@pytest.mark.parametrize("degrees", [(1,), (8,), (16,), (3, 5, 1), (16, 5, 3, 2)])
def test_work_of_placing_groups_grows_with_ranks_alone(degrees):
    """Not with ranks times groups: on 8 times as many, at most 8 times as often a node is looked at."""
    reads = {}
    for ranks in (512, 4096):
        problem = on_nodes((RankPool(0, ranks, 8),), tuple((degree, 0) for degree in degrees))
        places = FreeNodes(make_nodes(problem))
        places.free = CountedReads(places.free)
        for shape, degree in enumerate(degrees):
            for _ in range(ranks // degree // len(degrees) + 1):
                places.place_group(shape, degree)
        reads[ranks] = places.free.reads
    assert reads[4096] <= 9 * reads[512]


@examples(200)
@given(requests())
def test_what_greed_places_can_be_placed(request):
    problem, wanted = request
    wanted = wanted[:5]
    micro_batch = [(shape, (number,)) for number, shape in enumerate(wanted)]
    packed = place_packing(problem, [micro_batch])
    if packed is None:
        return
    assert fits_on_nodes(problem, tuple(wanted))
    assert sorted((group.shape, group.items) for group in packed[0]) == sorted(micro_batch)
    for group in packed[0]:
        require_lies_well(problem, group.shape, group.first_rank)


@given(st.sampled_from([(8, 1), (8, 4), (32, 8), (64, 8)]), st.randoms(use_true_random=False))
def test_powers_of_two_fill_their_nodes(machine, chance):
    """Wide first, no rank is lost: whatever has few enough ranks fits."""
    ranks, per_node = machine
    degrees = [2**k for k in range(ranks.bit_length())]
    problem = on_nodes((RankPool(0, ranks, per_node),), tuple((degree, 0) for degree in degrees))
    left, micro_batch = ranks, []
    while left:
        shape = chance.choice([number for number, degree in enumerate(degrees) if degree <= left])
        micro_batch.append((shape, (len(micro_batch),)))
        left -= degrees[shape]
    (groups,) = place_packing(problem, [micro_batch])
    covered = [rank for g in groups for rank in range(g.first_rank, g.first_rank + degrees[g.shape])]
    assert sorted(covered) == [*range(ranks)]


@pytest.mark.slow
@given(st.sampled_from([(8, 1), (8, 4), (16, 8), (16, 16)]), st.integers(0, 2**20).map(Random))
def test_powers_of_two_lie_on_multiples_of_themselves(machine, chance):
    """Wherever a fill put them."""
    ranks, per_node = machine
    sizes = [chance.randint(1, 40 * ranks) for _ in range(40)]
    degrees = tuple(2**k for k in range(ranks.bit_length()))
    problem = simple(sizes, ranks, degrees, cap=40, per_node=per_node, micro_batch_seconds=1.0)
    packed = search_makespans(problem, warm_start(problem), 1)[0]
    assert all(
        group.first_rank % problem.shapes[group.shape].degree == 0 for micro_batch in packed for group in micro_batch
    )
    require_possible(problem, align_groups(problem, packed))
    assert packing_seconds(problem, align_groups(problem, packed)) == packing_seconds(problem, packed)


def test_nodes_of_all_pools_follow_each_other():
    problem = on_nodes((RankPool(4, 5, 2), RankPool(9, 3, 8)), ((1, 0), (3, 0), (2, 1)))
    nodes = make_nodes(problem)
    assert (nodes.first_rank.tolist(), nodes.size.tolist()) == ([4, 6, 8, 9], [2, 2, 1, 3])
    assert (nodes.first_node.tolist(), nodes.end_node.tolist()) == ([0, 0, 3], [3, 3, 4])
    assert sum(map(nodes_of, problem.pools), ()) == (2, 2, 1, 3)


@pytest.mark.parametrize(
    ("ranks", "degrees", "firsts"),  # widest first
    [
        (8, (3, 3), [0, 4]),  # a node each, never 3..5
        (8, (3, 3, 1, 1), [0, 4, 3, 7]),
        (8, (3, 3, 2), None),
        (8, (6, 2), [0, 6]),  # the wide one leaves two ranks of the second node
        (8, (5, 3), [0, 5]),
        (12, (5, 4, 3), [0, 8, 5]),
        (12, (5, 5), None),  # the second would begin on the third node, which is the last
        (12, (12,), [0]),
        (6, (5, 1), [0, 5]),  # the last node has two ranks only
        (6, (4, 2), [0, 4]),
        (6, (3, 3), None),
    ],
)
def test_degrees_that_do_not_divide_a_node(ranks, degrees, firsts):
    """On nodes of four ranks."""
    shapes = tuple(sorted({*degrees}))
    problem = on_nodes((RankPool(0, ranks, 4),), tuple((degree, 0) for degree in shapes))
    assert fits_on_nodes(problem, tuple(map(shapes.index, degrees))) == (firsts is not None)
    packed = place_packing(problem, [[(shapes.index(degree), ()) for degree in degrees]])
    assert (packed and [group.first_rank for group in packed[0]]) == firsts


@pytest.mark.parametrize("degrees", [(3,), (3, 5), (2, 3, 6), (5, 12), (7,)])
def test_nothing_that_is_searched_straddles_a_node(degrees):
    """Also where every group leaves ranks of its node idle."""
    sizes = [37 * number % 90 + 1 for number in range(50)]
    problem = simple(sizes, 16, degrees, cap=40, per_node=4 if 12 in degrees else 8, micro_batch_seconds=3.0)
    require_possible(problem, search_makespans(problem, warm_start(problem), 1)[0])
