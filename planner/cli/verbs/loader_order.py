"""`planner loader-order`: in which order nodes of a graph are trained on, and which rows a cache holds."""

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import Json, Seed, written
from planner.errors import InputError


def loader_order(
    graph: Annotated[Path, typer.Argument(help="Edges: a CSV of two node numbers a line, or an .npz of arrays u, v.")],
    train_nodes: Annotated[Path, typer.Option(help="Training nodes: one number a line, or `nodes` of an .npz.")],
    output: Annotated[Path, written("-o", "--output", help="Write order, partition and cache to this .npz.")] = Path(
        "order.npz"
    ),
    batch: Annotated[int, typer.Option(help="Training nodes of a batch.", min=1, max=10**9)] = 200,
    neighbours: Annotated[str, typer.Option(help="Neighbours that are sampled of a node, by layer.")] = "10-5",
    cache: Annotated[float, typer.Option(help="Share of all rows that a cache holds.", min=0, max=1)] = 0.1,
    parts: Annotated[int, typer.Option(help="Parts of the partition, one for each machine.", min=1, max=10_000)] = 4,
    labels: Annotated[
        Path | None, typer.Option(help="Labels of all nodes, one a line; default: the parts of a coarse cut.")
    ] = None,
    imbalance: Annotated[
        float,
        typer.Option(help="How unlike labels of a batch and of all may be, 0 to 1 (total variation).", min=0, max=1),
    ] = 1.0,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Choose the order of training nodes and the cache that move fewest rows to a GPU, counted on a tenth of an epoch.

    Orders: random, breadth-first sequences, blocks of a METIS partition; caches: FIFO, LRU, static by degree or by a
    presample. The .npz has node numbers that DGL, PyG and GraphBolt take. Exit code 3: no order is balanced enough.
    """
    from planner.cli import progress, render
    from planner.cli.views import graph_order_tables
    from planner.extras import require_extra
    from planner.graphs import OrderQuestion
    from planner.workflows.graph_orders import GraphFiles, graph_order

    require_extra("pymetis", "graphs", "loader-order")
    fanouts = tuple(int(each) for each in neighbours.split("-") if each.isdigit() and len(each) < 6)
    if len(fanouts) != len(neighbours.split("-")) or not all(fanouts):
        raise InputError(f"`{neighbours}` says no neighbours by layer", where="--neighbours", fix="such as 10-5")
    asked = OrderQuestion(batch, fanouts, cache, parts, imbalance, seed)
    with progress.progress_bar("counting", "orders") as on_order:
        answer = graph_order(GraphFiles(graph, train_nodes, labels, output), asked, on_order)
    told = graph_order_tables.order_answer(answer, output) if json else {}
    render.emit(json, told, *graph_order_tables.order_lines(answer, output))
