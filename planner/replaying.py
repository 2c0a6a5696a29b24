"""Recorded traces, replayed: what `planner replay` does."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from planner import files
from planner.errors import InputError
from planner.pipeline import OnProgress, unheard
from planner.replay import KINDS, Graph, Kind, Link, Ranked, Replay, build, critical_path, ranked, read, replay
from planner.replay.collectives import Straggler, rank_of, stragglers
from planner.replay.picture import to_chrome
from planner.replay.whatif import Predicted, parse, predict
from planner.replay.whatif.asked import Asked

NOTHING = Asked()


@dataclass(frozen=True, slots=True)
class Answer:
    """A replay, what its length is made of, who keeps whom waiting, and what changes would give."""

    replay: Replay
    explained: Replay  # with nothing kept that only the trace shows: no unseen time
    path: list[Link]
    operators: list[Ranked]
    stragglers: list[Straggler]
    predicted: Predicted | None
    notes: list[str]


def replay_traces(
    paths: Sequence[Path], without: Sequence[str] = (), asked: Asked = NOTHING, on_progress: OnProgress = unheard
) -> Answer:
    """One trace, or one of each rank. Raises InputError."""
    left_out, changes = known(without), parse(asked)
    graphs = []
    for done, path in enumerate(paths):
        on_progress(done, len(paths), path.name)
        graphs.append(build(read(path)))
    graphs.sort(key=lambda graph: (graph.trace.rank is None, graph.trace.rank or 0))
    notes = list(missing(graphs_ranks(graphs), graphs[0].trace.world_size))
    made = replay(graphs, left_out)
    for g, graph in enumerate(graphs):
        prefix = f"rank {rank_of(graphs, g)}: " if len(graphs) > 1 else ""
        notes += [prefix + note for note in graph.notes]
    explained = made if "unseen" in left_out else replay(graphs, [*left_out, "unseen"])
    chain = critical_path(made)
    late = stragglers(graphs, made.met) if len(graphs) > 1 else []
    predicted = predict(made, changes, left_out) if changes.any else None
    return Answer(made, explained, chain, ranked(chain), late, predicted, [*notes, *made.notes])


def known(without: Sequence[str]) -> list[Kind]:
    """Kinds of dependencies, as they are spelled. Raises InputError."""
    for name in without:
        if name not in KINDS:
            raise InputError(f"`{name}` is no kind of dependency", where="--without", fix=f"one of {', '.join(KINDS)}")
    return [kind for kind in KINDS if kind in without]


def graphs_ranks(graphs: Sequence[Graph]) -> list[int]:
    """The ranks of traces that say theirs. Raises InputError when one stands twice."""
    ranks = [graph.trace.rank for graph in graphs if graph.trace.rank is not None]
    twice = next((rank for rank in ranks if ranks.count(rank) > 1), None)
    if twice is not None:
        raise InputError(f"two traces are of rank {twice}", where="TRACE", fix="give each rank's once")
    return ranks


def missing(ranks: Sequence[int], world_size: int | None) -> list[str]:
    """What is said when not all ranks of a job are here."""
    if world_size is None or len(ranks) >= world_size or world_size == 1:
        return []
    given = ", ".join(map(str, ranks))
    return [f"traces of {len(ranks)} of {world_size} ranks are given ({given}): a collective lasts as it did there"]


def write_picture(path: Path, answer: Answer) -> None:
    """The replayed timeline beside the measured one, for Perfetto."""
    files.write_text(path, files.json_text(to_chrome(answer.replay)))
