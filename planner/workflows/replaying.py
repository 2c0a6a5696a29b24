"""The workflow of `planner replay`: recorded traces replayed on the event clock, with what-ifs."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from planner.callbacks import OnProgress, silent
from planner.errors import InputError
from planner.replay import (
    DEPENDENCY_KINDS,
    DependencyKind,
    OperatorShare,
    PathLink,
    Replay,
    ReplayedStep,
    build_graph,
    find_critical_path,
    find_traces,
    rank_operators,
    read_kineto_trace,
    replay_graphs,
)
from planner.replay.timing import (
    ReplayComparison,
    Straggler,
    Verdict,
    compare_replays,
    find_stragglers,
    require_one_job,
    step_verdict,
)
from planner.replay.whatif import WhatIfOptions, WhatIfPrediction, parse_changes, predict_changes

NO_CHANGES = WhatIfOptions()


@dataclass(frozen=True, slots=True)
class ReplayAnswer:
    """A replay with its critical path, stragglers and the prediction of what-ifs."""

    replay: Replay
    verdict: Verdict
    explained: list[ReplayedStep]  # the same steps replayed without unseen time
    critical_path: list[PathLink]
    operators: list[OperatorShare]
    stragglers: list[Straggler]
    predicted: WhatIfPrediction | None
    notes: list[str]


def replay_traces(
    paths: Sequence[Path],
    without: Sequence[str] = (),
    options: WhatIfOptions = NO_CHANGES,
    on_progress: OnProgress = silent,
) -> ReplayAnswer:
    """Replay one trace, or one of each rank; a folder stands for the traces in it.

    `without`: kinds of dependencies to leave out; `options`: what-ifs. Raises InputError.
    """
    left_out, changes = parse_kinds(without), parse_changes(options)
    files, left = find_traces(paths)
    require_distinct_files(files)
    graphs = []
    for done, path in enumerate(files):
        on_progress(done, len(files), path.name)
        graphs.append(build_graph(read_kineto_trace(path)))
    graphs, notes = require_one_job(graphs)
    replayed = replay_graphs(graphs, left_out)
    explained = steps_without(replayed, [*left_out, "unseen"])
    hides = any(work.hidden for graph in graphs for work in graph.op_timings)
    shown = steps_without(replayed, [*left_out, "unseen", "hidden"]) if hides else explained
    for graph in graphs:
        prefix = f"rank {graph.trace.rank}: " if len(graphs) > 1 else ""
        notes += [prefix + note for note in graph.notes]
    chain = find_critical_path(replayed)
    late = find_stragglers(replayed) if len(graphs) > 1 else []
    predicted = predict_changes(replayed, changes, left_out) if changes.any else None
    return ReplayAnswer(
        replayed,
        step_verdict(replayed, chain, explained, shown),
        explained,
        chain,
        rank_operators(chain),
        late,
        predicted,
        [*left, *notes, *replayed.matched.notes],
    )


def steps_without(replayed: Replay, kinds: Sequence[DependencyKind]) -> list[ReplayedStep]:
    """The steps without some kinds, each no longer than measured: what is left out may only have delayed it."""
    steps = replay_graphs(replayed.graphs, kinds, matched=replayed.matched).steps
    return [step._replace(replayed=min(step.replayed, step.measured)) for step in steps]


def compare_with(answer: ReplayAnswer, path: Path, on_progress: OnProgress = silent) -> ReplayComparison:
    """What differs from an earlier recording. Raises InputError."""
    return compare_replays(replay_traces([path], on_progress=on_progress).replay, answer.replay)


def parse_kinds(without: Sequence[str]) -> list[DependencyKind]:
    """Parse names of kinds of dependencies. Raises InputError."""
    for name in without:
        if name not in DEPENDENCY_KINDS:
            raise InputError(
                f"`{name}` is not a kind of dependency", where="--without", fix=f"one of {', '.join(DEPENDENCY_KINDS)}"
            )
    return [kind for kind in DEPENDENCY_KINDS if kind in without]


def require_distinct_files(paths: Sequence[Path]) -> None:
    """Raises InputError when a file is given twice."""
    real = [os.path.realpath(path) for path in paths]
    twice = next((path for path, where in zip(paths, real, strict=True) if real.count(where) > 1), None)
    if twice is not None:
        raise InputError("the same file is given twice", where=str(twice), fix="give each rank's once")


def require_not_overwriting(path: Path | None, traces: Sequence[Path]) -> None:
    """Raises InputError when the output would overwrite one of the traces, or lie among those of a folder."""
    real = {os.path.realpath(trace) for trace in traces}
    if path is not None and {os.path.realpath(path), *map(str, Path(os.path.realpath(path)).parents)} & real:
        raise InputError(
            "that is one of the traces to replay, or in their folder",
            where=f"--trace {path}",
            fix="choose another path",
        )
