"""What a step is bound by: the device, the host, communication or the data loader, whichever has most of the critical
path; how far the host runs ahead of the device; and how much of the steps the trace explains.

Of a path's share a small change of what it is made of lengthens the steps by that share, which no utilisation says.
Explained is a step as it is replayed without the time that no operation, no host work and no dependency accounts for;
the rest is waits and gaps, which a replay only copies.
"""

from collections.abc import Sequence
from statistics import median
from typing import Literal, NamedTuple

from planner.plan.task import LOADER
from planner.replay.recording.recorded_names import host_kind, is_communication
from planner.replay.timing.critical_path import PathLink
from planner.replay.timing.timed_replay import Replay, ReplayedStep

Bound = Literal["gpu", "host", "communication", "loader", "unexplained"]
BOUNDS: tuple[Bound, ...] = ("gpu", "host", "communication", "loader", "unexplained")
BOUND_TEXTS: dict[Bound, str] = {
    "gpu": "GPU-bound: work of the device",
    "host": "host-bound: work of the host",
    "communication": "communication-bound: collectives",
    "loader": "loader-bound: the data loader",
    "unexplained": "bound by waits that nothing in the trace explains, which",
}


class Verdict(NamedTuple):
    """What binds the steps; the fields are keys of the JSON answer."""

    bound: Bound
    shares: dict[str, float]  # of the critical path, by what it is made of
    host_ahead: float  # median seconds from when the host ends a step until its work has ended
    explained: float  # share of the measured steps that is replayed without unseen time
    hidden: float  # of that, work within launched graphs that the trace does not show

    @property
    def text(self) -> str:
        """The verdict in words."""
        return BOUND_TEXTS[self.bound]


def step_verdict(
    replay: Replay, path: Sequence[PathLink], explained: Sequence[ReplayedStep], shown: Sequence[ReplayedStep]
) -> Verdict:
    """What binds the steps of a replay; `explained`: the same steps without unseen time; `shown`: without hidden work,
    too.
    """
    seconds = dict.fromkeys(BOUNDS, 0.0)
    for link in path:
        part = link_part(link)
        seconds["unexplained"] += link.unseen
        seconds[part] += link.seconds - link.unseen
    total = sum(seconds.values()) or 1.0
    ahead = [step.host_ahead for graph in replay.graphs for step in graph.steps]
    measured = sum(step.measured for step in explained)
    shares = [sum(step.replayed for step in each) / measured if measured else 1.0 for each in (explained, shown)]
    return Verdict(
        max(BOUNDS, key=lambda bound: seconds[bound]),
        {bound: value / total for bound, value in seconds.items()},
        median(ahead) if ahead else 0.0,
        shares[0],
        max(0.0, shares[0] - shares[1]),
    )


def link_part(link: PathLink) -> Bound:
    """What a link of the path is made of."""
    if link.name:
        return "communication" if is_communication(link.kind) else "gpu"
    if LOADER in map(host_kind, (*link.enclosing.annotations, *link.enclosing.operators)):
        return "loader"
    return "host"
