"""The workflow of `planner replay`: recorded traces replayed on the event clock, with what-ifs."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from planner.errors import InputError
from planner.pipeline import OnProgress, unheard
from planner.replay import KINDS, Kind, Link, Ranked, Replay, StepTimes, build, critical_path, ranked, read, replay
from planner.replay.collectives import Straggler, stragglers
from planner.replay.job import one_job
from planner.replay.picture import write_chrome
from planner.replay.whatif import Predicted, parse, predict
from planner.replay.whatif.asked import Asked

NOTHING = Asked()


@dataclass(frozen=True, slots=True)
class Answer:
    """A replay with its critical path, stragglers and the prediction of what-ifs."""

    replay: Replay
    explained: list[StepTimes]  # the same steps replayed without unseen time
    path: list[Link]
    operators: list[Ranked]
    stragglers: list[Straggler]
    predicted: Predicted | None
    notes: list[str]


def replay_traces(
    paths: Sequence[Path], without: Sequence[str] = (), asked: Asked = NOTHING, on_progress: OnProgress = unheard
) -> Answer:
    """Replay one trace, or one of each rank.

    `without`: kinds of dependencies to leave out; `options`: what-ifs. Raises InputError.
    """
    left_out, changes = known(without), parse(asked)
    once(paths)
    graphs = []
    for done, path in enumerate(paths):
        on_progress(done, len(paths), path.name)
        graphs.append(build(read(path)))
    graphs, notes = one_job(graphs)
    explained = replay(graphs, [*left_out, "unseen"]).steps
    replayed = replay(graphs, left_out)
    for graph in graphs:
        prefix = f"rank {graph.trace.rank}: " if len(graphs) > 1 else ""
        notes += [prefix + note for note in graph.notes]
    chain = critical_path(replayed)
    late = stragglers(graphs, replayed.met) if len(graphs) > 1 else []
    predicted = predict(replayed, changes, left_out) if changes.any else None
    return Answer(replayed, explained, chain, ranked(chain), late, predicted, [*notes, *replayed.notes])


def known(without: Sequence[str]) -> list[Kind]:
    """Parse names of kinds of dependencies. Raises InputError."""
    for name in without:
        if name not in KINDS:
            raise InputError(
                f"`{name}` is not a kind of dependency", where="--without", fix=f"one of {', '.join(KINDS)}"
            )
    return [kind for kind in KINDS if kind in without]


def once(paths: Sequence[Path]) -> None:
    """Raises InputError when a file is given twice."""
    real = [os.path.realpath(path) for path in paths]
    twice = next((path for path, where in zip(paths, real, strict=True) if real.count(where) > 1), None)
    if twice is not None:
        raise InputError("the same file is given twice", where=str(twice), fix="give each rank's once")


def write_picture(path: Path, answer: Answer) -> None:
    """Write the replayed and the measured timeline for Perfetto, gzipped when the name ends in .gz."""
    write_chrome(path, answer.replay)


def not_over(path: Path | None, traces: Sequence[Path]) -> None:
    """Raises InputError when the output would overwrite one of the traces."""
    if path is not None and os.path.realpath(path) in {os.path.realpath(trace) for trace in traces}:
        raise InputError("that is one of the traces to replay", where=f"--trace {path}", fix="choose another path")
