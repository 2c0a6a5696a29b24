"""The body of one rank of a profile: it runs the pieces it is given, in order, and reports the spans of each."""

from collections.abc import Sequence

from planner.launch.worker import Worker, joined
from planner.profiling.collective_bench import CollectiveBench
from planner.profiling.module_bench import ModuleBench
from planner.profiling.piece import COLLECTIVES, Piece, Span
from planner.specs.layers import Module
from planner.specs.parallelism import Dtype

Report = tuple[int, list[Span]]  # index of the piece, its spans on this rank


def rank_main(worker: Worker, pieces: Sequence[Piece], specs: dict[str, Module], dtype: Dtype) -> None:
    """Every rank is given the same pieces, those of one context together. Reports are (index, spans)."""
    with joined(worker):
        bench: ModuleBench | CollectiveBench | None = None
        context, warm = "", set()
        for index, piece in enumerate(pieces):
            worker.begin(f"profile/{piece.kind}/{'+'.join(map(str, piece.sizes))}")
            if bench is None or piece.context != context:
                bench = None  # frees what it holds before the next takes as much
                bench, context = bench_for(worker, piece, specs, dtype), piece.context
            if (context, piece.kind) not in warm and piece.kind != "kept":
                bench.run(piece)  # what happens only once; later firsts do not move a median
                warm.add((context, piece.kind))
            report: Report = index, bench.run(piece)
            worker.report(report)


def bench_for(worker: Worker, piece: Piece, specs: dict[str, Module], dtype: Dtype) -> ModuleBench | CollectiveBench:
    if piece.kind in COLLECTIVES:
        return CollectiveBench(worker.rank, worker.world_size, worker.device)
    return ModuleBench(specs[piece.context], dtype, worker.device)
