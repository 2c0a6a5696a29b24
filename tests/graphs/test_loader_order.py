"""Orders and caches of graphs: every node once, counts by hand, relabelled graphs alike, files that are none."""

from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import Infeasible, InputError
from planner.graphs import OrderQuestion, choose_order, graph_of, read_graph, read_labels, read_nodes
from planner.graphs.choose_order import tried_orders
from planner.graphs.feature_caches import CACHES, misses, static_score
from planner.graphs.node_batches import batch_reads, sampled_neighbours, sampled_nodes
from planner.graphs.partition import cut_graph, metis, two_hop_across
from tests.examples import examples
from tests.graphs.made_graphs import community_graph


@pytest.fixture(scope="module")
def graph():
    return community_graph(3000, 12_000, power=True, mixing=0.1, seed=1, communities=20)


@pytest.fixture(scope="module")
def train(graph):
    return np.sort(np.random.default_rng(2).choice(graph.nodes, 400, replace=False))


def test_every_training_node_once_an_epoch(graph, train):
    orders = tried_orders(graph, train, OrderQuestion(batch=20))
    assert {*orders} == {"random", "blocks-2", "blocks-5", "blocks-20", "bfs-1", "bfs-5"}
    for order in orders.values():
        assert np.array_equal(np.sort(order), train)
    assert len({tuple(order) for order in orders.values()}) >= 5


@examples(60)
@given(st.lists(st.sets(st.integers(0, 30), min_size=1, max_size=9), max_size=12), st.integers(0, 12))
def test_caches_are_those_of_a_counted_reference(batches, capacity):
    reads = [np.array(sorted(each)) for each in batches]
    for cache in ("fifo", "lru"):
        held, moved = OrderedDict(), []
        for batch in reads:
            hit = [node for node in batch if node in held]
            missed = [node for node in batch if node not in held]
            moved.append(len(missed))
            for node in (*(hit if cache == "lru" else ()), *missed):
                held.pop(node, None)
                held[node] = True
            while len(held) > capacity:
                held.popitem(last=False)
        assert misses(cache, reads, capacity, np.zeros(31)) == moved
    score = np.arange(31.0)
    static = {*range(31 - capacity, 31)}
    assert misses("degree", reads, capacity, score) == [len({*map(int, each)} - static) for each in reads]


def test_sampling_takes_distinct_neighbours_and_all_of_few(graph):
    random, nodes = np.random.default_rng(0), np.arange(graph.nodes)
    drawn = sampled_neighbours(graph, nodes, 3, random)
    assert len(drawn) == np.minimum(graph.degrees, 3).sum()
    for node in (int(graph.degrees.argmax()), 5, 17):
        own = {*graph.neighbours[graph.indptr[node] : graph.indptr[node + 1]].tolist()}
        found = sampled_neighbours(graph, np.array([node]), 3, random).tolist()
        assert len({*found}) == len(found) == min(3, len(own)) and {*found} <= own
    whole = sampled_nodes(graph, nodes[:1], (10**4,), random)
    assert {*whole.tolist()} == {0, *graph.neighbours[: graph.indptr[1]].tolist()}


def test_every_neighbour_is_as_likely():
    star = graph_of(np.zeros(8, np.int64), np.arange(1, 9))
    random = np.random.default_rng(0)
    drawn = np.concatenate([sampled_neighbours(star, np.array([0]), 3, random) for _ in range(4000)])
    assert np.abs(np.bincount(drawn, minlength=9)[1:] / 4000 - 3 / 8).max() < 0.03


def test_relabelled_nodes_count_alike(graph, train):
    """What caches move depends on who is read when, and not on how nodes are called."""
    named = np.random.default_rng(7).permutation(graph.nodes)
    reads = [*batch_reads(graph, train, 50, (5, 3), 0)]
    score = static_score("degree", graph, []) + np.arange(graph.nodes) / 1e9  # no two are alike
    again = np.empty_like(score)
    again[named] = score
    for cache in ("degree", "presample", "lru"):
        called = [named[each] for each in reads]
        assert misses(cache, reads, 10**5 if cache == "lru" else 300, score) == misses(
            cache, called, 10**5 if cache == "lru" else 300, again
        )
    start = np.repeat(np.arange(graph.nodes), graph.degrees)
    renamed = graph_of(named[start], named[graph.neighbours], graph.nodes)
    part = np.arange(graph.nodes) % 3
    other = np.empty_like(part)
    other[named] = part
    assert two_hop_across(graph, part, train) == two_hop_across(renamed, other, named[train])


def test_two_hops_are_counted_as_by_hand():
    path = graph_of(np.array([0, 1, 2]), np.array([1, 2, 3]))
    part = np.array([0, 0, 1, 1])
    assert two_hop_across(path, part, np.array([0])) == (1, 3)  # 0-1; 0-1-0, 0-1-2: the last ends elsewhere


def test_parts_are_even_and_cut_less_than_chance(graph, train):
    found = cut_graph(graph, 4, train)
    assert found.uneven <= 1.1
    random = np.random.default_rng(0).integers(4, size=graph.nodes)
    assert two_hop_across(graph, found.part, train)[0] < 0.4 * two_hop_across(graph, random, train)[0]
    assert np.array_equal(metis(graph, 4), metis(graph, 4))


def test_the_choice_moves_less_than_random_order_and_keeps_the_imbalance(graph, train):
    asked = OrderQuestion(batch=20)
    found = choose_order(graph, train, None, asked)
    assert found.chosen is found.counted[0] and found.chosen.rows < found.best_random.rows
    assert len(found.counted) == 6 * len(CACHES) and np.array_equal(np.sort(found.order), train)
    limit = found.best_random.imbalance * 1.01
    near = choose_order(graph, train, None, OrderQuestion(batch=20, imbalance=limit))
    assert near.chosen.imbalance <= limit and near.chosen.rows >= found.chosen.rows
    with pytest.raises(Infeasible, match="no order has batches"):
        choose_order(graph, train, None, OrderQuestion(batch=20, imbalance=0.0))


def test_loops_and_isolated_nodes():
    found = graph_of(np.array([0, 1, 1, 3]), np.array([1, 0, 1, 3]), 6)
    assert found.nodes == 6 and found.loops == 2 and found.degrees.tolist() == [1, 1, 0, 0, 0, 0]
    for order in tried_orders(found, np.array([0, 4]), OrderQuestion(batch=1)).values():
        assert sorted(order) == [0, 4]
    assert choose_order(found, np.array([0, 4]), None, OrderQuestion(batch=1, parts=1)).chosen.rows >= 0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("0,1\n2", "`2` is not two node numbers"),
        ("u,v\n0,x", "`0,x`"),
        ("0,-1", "`0,-1`"),
        ("0,99999999999", "from 0 to"),
    ],
)
def test_edge_lists_that_are_none(tmp_path, text, says):
    (tmp_path / "edges.csv").write_text(text)
    with pytest.raises(InputError, match=says):
        read_graph(tmp_path / "edges.csv")


def test_files_read_back(tmp_path):
    (tmp_path / "edges.csv").write_text("u,v\n0,1\n1,2\n2,2\n")
    np.savez(tmp_path / "edges.npz", u=np.array([0, 1]), v=np.array([1, 2]), nodes=5)
    assert read_graph(tmp_path / "edges.csv").neighbours.tolist() == [1, 0, 2, 1]
    assert read_graph(tmp_path / "edges.npz").nodes == 5
    (tmp_path / "train.csv").write_text("2\n0\n")
    assert read_nodes(tmp_path / "train.csv", 3).tolist() == [2, 0]
    (tmp_path / "labels.csv").write_text("7\n7\n9\n")
    assert read_labels(tmp_path / "labels.csv", 3).tolist() == [0, 0, 1]
    for text, says in (("", "no training nodes"), ("3\n", "not in the graph"), ("1\n1\n", "named twice")):
        (tmp_path / "train.csv").write_text(text)
        with pytest.raises(InputError, match=says):
            read_nodes(tmp_path / "train.csv", 3)
    with pytest.raises(InputError, match="3 labels of 4 nodes"):
        read_labels(tmp_path / "labels.csv", 4)
    np.savez(tmp_path / "edges.npz", u=5, v=5)
    with pytest.raises(InputError, match="in one row"):
        read_graph(tmp_path / "edges.npz")
    (tmp_path / "edges.npz").write_bytes(b"no")
    with pytest.raises(InputError, match="no archive"):
        read_graph(tmp_path / "edges.npz")
