"""Which order of training nodes, with which cache, moves fewest rows: every pair is counted on a part of an epoch.

Of each order the first batches are sampled, at most a tenth of them; static caches are counted over all, the others
behind the first ones, which fill them. Orders whose batches have labels too unlike those of all training nodes are left
out: the imbalance of an order is the total variation between both, in the mean of its batches.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.callbacks import OnProgress, silent
from planner.errors import Infeasible
from planner.graphs.feature_caches import CACHES, STATIC, highest, misses, static_score
from planner.graphs.node_batches import batch_reads, bfs_order, block_order, random_order
from planner.graphs.partition import Partition, cut_graph, metis, two_hop_across
from planner.graphs.read_graph import Graph, Ints

SAMPLED, FEWEST = 0.1, 2  # share of an epoch's batches that is counted, and at least so many
TOGETHER, SEQUENCES = (2, 5, 20), (1, 5)  # blocks at a time, and breadth-first sequences, that are tried
LABELS = 10  # parts of a coarse cut that stand for labels where none are given
PRESAMPLE = 10**6  # seed, apart from those of batches that are counted


@dataclass(frozen=True, slots=True)
class OrderQuestion:
    """What is asked: batches, neighbours by layer, the cache as a share of all nodes, parts, and the imbalance of
    labels that is allowed.
    """

    batch: int = 200
    fanouts: tuple[int, ...] = (10, 5)
    cache: float = 0.1
    parts: int = 4
    imbalance: float = 1.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class CountedOrder:
    """An order with a cache: rows that an epoch moves, by the sample, and its imbalance of labels."""

    order: str
    cache: str
    rows: float
    imbalance: float


@dataclass(frozen=True, slots=True, eq=False)
class OrderAnswer:
    """What was chosen, and all that was counted, the least rows first."""

    chosen: CountedOrder
    counted: tuple[CountedOrder, ...]
    order: Ints  # training nodes
    kept: Ints  # whose rows a static cache holds; none of the others
    partition: Partition
    across: tuple[int, int]  # walks of at most two edges that leave their part, and all
    sampled: int  # batches of each order, of
    batches: int

    @property
    def best_random(self) -> CountedOrder:
        """The random order with the best cache for it."""
        return next(each for each in self.counted if each.order == "random")


def choose_order(
    graph: Graph, train: Ints, labels: Ints | None, asked: OrderQuestion, on_order: OnProgress = silent
) -> OrderAnswer:
    """The order and the cache that move fewest rows. Raises Infeasible where no order is within the imbalance."""
    partition = cut_graph(graph, asked.parts, train)
    classes = metis(graph, min(LABELS, graph.nodes)) if labels is None else labels
    orders = tried_orders(graph, train, asked)
    batches = -(-len(train) // asked.batch)
    most = min(batches, max(FEWEST, int(batches * SAMPLED)))
    apart = orders["random"][::-1]  # from its end: of other batches than are counted
    presampled = [*batch_reads(graph, apart, asked.batch, asked.fanouts, PRESAMPLE + asked.seed, most)]
    scores = {cache: static_score(cache, graph, presampled) for cache in CACHES}
    capacity, counted = int(asked.cache * graph.nodes), list[CountedOrder]()
    for number, (name, order) in enumerate(orders.items()):
        on_order(number, len(orders), name)
        reads = [*batch_reads(graph, order, asked.batch, asked.fanouts, asked.seed, most)]
        unlike = label_imbalance(order, classes, asked.batch)
        for cache in CACHES:
            rows = steady_rows(misses(cache, reads, capacity, scores[cache]), cache, batches)
            counted.append(CountedOrder(name, cache, rows, unlike))
    on_order(len(orders), len(orders), "")
    counted.sort(key=lambda each: (each.rows, each.order, each.cache))
    chosen = next((each for each in counted if each.imbalance <= asked.imbalance), None)
    if chosen is None:
        least = min(each.imbalance for each in counted)
        message = f"no order has batches whose labels are within {asked.imbalance:g} of all, at best {least:.2f}"
        raise Infeasible(message, where="--imbalance", fix=f"{least + 0.01:.2f}, or larger batches")
    static = chosen.cache in STATIC
    kept = np.sort(highest(scores[chosen.cache], capacity)) if static else np.zeros(0, np.int64)
    across = two_hop_across(graph, partition.part, train)
    return OrderAnswer(chosen, (*counted,), orders[chosen.order], kept, partition, across, most, batches)


def tried_orders(graph: Graph, train: Ints, asked: OrderQuestion) -> dict[str, Ints]:
    """The orders that are counted, by name; two blocks have about as many training nodes as a batch."""
    random = np.random.default_rng((asked.seed, len(train)))
    blocks = metis(graph, min(graph.nodes, max(2, round(2 * len(train) / asked.batch))))
    orders = {"random": random_order(train, random)}
    orders |= {f"blocks-{count}": block_order(train, blocks, count, random) for count in TOGETHER}
    return orders | {f"bfs-{count}": bfs_order(graph, train, count, random) for count in SEQUENCES}


def steady_rows(moved: Sequence[int], cache: str, batches: int) -> float:
    """Rows that an epoch of so many batches moves, by those of its first ones."""
    counted = moved if cache in STATIC else moved[len(moved) // 2 :]
    return float(np.mean(counted)) * batches


def label_imbalance(order: Ints, labels: Ints, size: int) -> float:
    """Total variation between the labels of a batch and of all training nodes, in the mean of batches."""
    classes = int(labels.max()) + 1
    whole = np.bincount(labels[order], minlength=classes) / len(order)
    parts = [order[first : first + size] for first in range(0, len(order), size)]
    shares = [np.bincount(labels[each], minlength=classes) / len(each) for each in parts]
    return float(np.mean([np.abs(share - whole).sum() / 2 for share in shares]))
