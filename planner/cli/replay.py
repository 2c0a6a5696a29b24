"""`planner replay`: recorded traces, replayed."""

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import Json


def replay(
    traces: Annotated[list[Path], typer.Argument(help="A trace of torch.profiler, plain or gzipped; or one a rank.")],
    without: Annotated[
        list[str] | None,
        typer.Option(help="Replay without threads, launch, synchronise, inter-stream, or unseen time."),
    ] = None,
    scale: Annotated[
        list[str] | None, typer.Option(help="What if: gemm=0.5, host=2, or a pattern of kernels' names.")
    ] = None,
    bandwidth: Annotated[str | None, typer.Option(help="What if: communication this much faster, as 2x.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="What if: layers=2x, hidden=2x, dp=4, pp=2:8.")
    ] = None,
    remove: Annotated[
        list[str] | None, typer.Option(help="What if: without a kind of dependency, or 7:84, of two streams.")
    ] = None,
    fuse: Annotated[list[str] | None, typer.Option(help="What if: `launches`, as a captured graph has them.")] = None,
    trace: Annotated[Path | None, typer.Option(help="Write the replayed timeline beside the measured one.")] = None,
    json: Json = False,
) -> None:
    """Replay recorded traces: steps measured beside replayed, the critical path, stragglers, what-ifs.

    Durations are the trace's; who waits for whom is found. The error shows a dependency that is wrong, not one that is
    missing: that wait is copied with the host's time or the device's gaps. What a kind of dependency explains of a step
    is what it loses `--without` it; `explained` leaves out waits of the device that nothing found accounts for.

    `--set layers` and `pp` are refused where a step has no stretch of kernels that repeats itself; `pp` also without a
    backward pass. Of the public traces that were tried, those of inference have layers that are found (4, 18 and 24);
    those of training (HTA's and DLRM's) have none, and `pp` is refused on all.

    Tried on traces of torch 2.13 (CPU) recorded here, and on public ones of 2023 to 2025 from V100, A100, H100 and
    B200, of which one says its version: torch 2.6.
    """
    from planner import replaying
    from planner.cli import progress, render
    from planner.cli import replay_tables as shown
    from planner.replay.whatif.asked import Asked

    options = [tuple(each or ()) for each in (scale, settings, remove, fuse)]
    replaying.not_over(trace, traces)
    with progress.bar("reading", "traces") as on_progress:
        asked = Asked(options[0], bandwidth, *options[1:])
        answer = replaying.replay_traces(traces, without or (), asked, on_progress)
    if trace:
        replaying.write_picture(trace, answer)
    if json:
        render.emit(True, shown.summary(answer))
    else:
        render.emit(False, {}, shown.pictures(answer, trace))
