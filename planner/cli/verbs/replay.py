"""`planner replay`: replays recorded traces."""

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import Json, written


def replay(
    traces: Annotated[
        list[Path],
        typer.Argument(help="torch.profiler traces, plain or gzipped: one, one per rank, or a folder with them."),
    ],
    without: Annotated[
        list[str] | None,
        typer.Option(
            help="Leave out a kind of dependency: threads, launch, synchronise, inter-stream; hidden or unseen time."
        ),
    ] = None,
    scale: Annotated[
        list[str] | None, typer.Option(help="What if durations scaled: gemm=0.5, host=2, or a pattern of kernel names.")
    ] = None,
    bandwidth: Annotated[str | None, typer.Option(help="What if communication were faster: 2x.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="What if the model or its layout changed: layers=2x, hidden=2x, dp=4, pp=2:8."),
    ] = None,
    against: Annotated[
        Path | None, typer.Option(help="An earlier recording, or a folder of one: which kernels changed, came, went.")
    ] = None,
    trace: Annotated[
        Path | None, written(help="Write the replayed and the measured timeline here, for Perfetto.")
    ] = None,
    json: Json = False,
) -> None:
    """Replay torch.profiler traces: steps, critical path, stragglers, what-ifs.

    It leads with what the steps are bound by, how much of them the trace explains, and which rank is slow and why. A
    step ends when its work ends on the device. Clocks of ranks are put right by collectives that all leave together.

    Durations are taken from the trace; dependencies are inferred. The error of a replayed step shows a dependency that
    was inferred wrongly, not one that is missing: a missing one's wait is copied. `explained` leaves out waits and gaps
    that nothing in the trace accounts for. How much shorter a step gets `--without` a kind is what that kind explains.

    `--set layers` and `pp` are refused where a step has no repeating sequence of kernels; `pp` also without a backward
    pass. Of the public traces that were tried, layers are found in those of inference (4, 18 and 24) and in none of
    training (HTA's and DLRM's); `pp` is refused on all.

    Tried on traces of torch 2.13 (CPU), and on public ones of 2023 to 2025 from V100, A100, H100 and B200, of which one
    states its version: torch 2.6.
    """
    from planner.cli import progress, render
    from planner.cli.views import replay_tables as views
    from planner.replay.timing import write_chrome_trace
    from planner.replay.whatif import WhatIfOptions
    from planner.workflows import replaying

    replaying.require_not_overwriting(trace, traces)
    with progress.progress_bar("reading", "traces") as on_progress:
        changes = WhatIfOptions(tuple(scale or ()), bandwidth, tuple(settings or ()))
        answer = replaying.replay_traces(traces, without or (), changes, on_progress)
        compared = replaying.compare_with(answer, against, on_progress) if against else None
    if trace:
        write_chrome_trace(trace, answer.replay, answer.critical_path)
    if json:
        render.emit(True, {**views.summary(answer), "against": compared and views.comparison_answer(compared)})
    else:
        shown = views.comparison_lines(compared) if compared else ()
        render.emit(False, {}, *shown, *views.replay_lines(answer, trace))
