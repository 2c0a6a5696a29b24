"""The workflow of `planner loader-order`: files of a graph in, an order with its partition and its cache out."""

from dataclasses import dataclass
from pathlib import Path

from planner import files
from planner.callbacks import OnProgress, silent
from planner.errors import InputError
from planner.graphs import OrderAnswer, OrderQuestion, choose_order, read_graph, read_labels, read_nodes


@dataclass(frozen=True, slots=True)
class GraphFiles:
    """The files of a question about a graph."""

    graph: Path
    train_nodes: Path
    labels: Path | None
    output: Path


def graph_order(named: GraphFiles, asked: OrderQuestion, on_order: OnProgress = silent) -> OrderAnswer:
    """Choose an order, and write it. Raises InputError and Infeasible."""
    if named.output.suffix != ".npz":
        raise InputError(f"{named.output} is no .npz", where="--output", fix="such as order.npz")
    graph = read_graph(named.graph)
    if asked.parts > graph.nodes:
        message = f"the graph has {graph.nodes:,} nodes, fewer than {asked.parts:,} parts"
        raise InputError(message, where="--parts", fix=f"at most {graph.nodes}")
    train = read_nodes(named.train_nodes, graph.nodes)
    labels = read_labels(named.labels, graph.nodes) if named.labels else None
    answer = choose_order(graph, train, labels, asked, on_order)
    write_order(named.output, answer)
    return answer


def write_order(path: Path, answer: OrderAnswer) -> None:
    """Write `order` (training nodes), `part` (of every node) and `cached` (nodes whose rows a static cache holds)."""
    import numpy as np

    with files.atomic_write(path) as out:
        np.savez(out, order=answer.order, part=answer.partition.part, cached=answer.kept)
