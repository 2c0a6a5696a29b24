"""A job that waits for GPUs of a cluster, and the GPUs that there are.

What a job takes is known as seconds for all of its work, by kind and number of GPUs: from a table of throughputs, from
the duration that somebody states, or from planner's own search. A kind or number that is not there is unknown, and the
job does not run on it.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, NamedTuple

import msgspec

from planner.errors import Infeasible
from planner.specs.base import Amount, Count, Positive, RankCount, Spec
from planner.specs.hardware.cluster import RankKind
from planner.units import plural

SecondsByCount = dict[RankCount, Positive]  # number of GPUs → seconds for all of a job's work
JobId = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class ClusterJob(Spec, kw_only=True):
    """A job: when it was submitted, how many GPUs it asks for, and how long all of its work takes on which."""

    id: JobId
    submit_s: Amount
    gpus: Count  # that it asks for
    seconds: dict[str, SecondsByCount]  # kind of GPU → number of GPUs → seconds
    layouts: dict[str, dict[RankCount, str]] = {}  # kind → number of GPUs → the layout with which it takes so long
    model: str = ""
    beside: dict[str, dict[str, Positive]] = {}  # kind of GPU → model of the other job on one → part of its speed alone
    user: str = ""  # whose share of the cluster it counts to; empty: a user of its own

    def seconds_on(self, kind: str, count: int) -> float | None:
        """Seconds for all of its work; None: not known."""
        return self.seconds.get(kind, {}).get(count)

    def share_beside(self, other: "ClusterJob", kind: str, count: int = 1) -> float:
        """The part of its speed that it has on GPUs which it shares; 0: not known, as for all but one GPU."""
        return self.beside.get(kind, {}).get(other.model, 0.0) if count == 1 else 0.0

    @property
    def best_seconds(self) -> float:
        """On the kind that is quickest for it, with as many GPUs as it asks for."""
        return min(by_count[self.gpus] for by_count in self.seconds.values() if self.gpus in by_count)


class Node(NamedTuple):
    """GPUs of one kind in one machine."""

    kind: str
    gpus: range


class Fleet:
    """The GPUs of a cluster, numbered as its ranks are: kind by kind, node by node."""

    def __init__(self, ranks: Sequence[RankKind]) -> None:
        self.ranks = tuple(ranks)
        nodes, first = [], 0
        for entry in ranks:
            for at in range(0, entry.count, entry.per_node):
                nodes.append(Node(entry.kind, range(first + at, first + min(at + entry.per_node, entry.count))))
            first += entry.count
        self.nodes = tuple(nodes)
        self.node_of = tuple(number for number, node in enumerate(nodes) for _ in node.gpus)  # (GPUs,)
        self.kind_of = tuple(node.kind for node in nodes for _ in node.gpus)  # (GPUs,)

    @property
    def size(self) -> int:
        return len(self.kind_of)

    @cached_property
    def counts(self) -> Mapping[str, int]:
        """Kind → its GPUs, kinds in alphabetical order."""
        return {kind: self.kind_of.count(kind) for kind in sorted(set(self.kind_of))}

    def kinds_for(self, job: ClusterJob) -> tuple[str, ...]:
        """The kinds that have as many GPUs as a job asks for, and on which its seconds are known."""
        return tuple(k for k, size in self.counts.items() if job.gpus <= size and job.seconds_on(k, job.gpus))

    def require_room(self, job: ClusterJob, where: str = "") -> None:
        """Raises Infeasible for a job that could not run if it were alone."""
        if self.kinds_for(job):
            return
        known = [kind for kind in self.counts if job.seconds_on(kind, job.gpus)]
        if not known:
            message = f"how long job `{job.id}` takes on {plural(job.gpus, 'GPU')} is known for no kind of this cluster"
            fix = f"give its seconds on one of {', '.join(self.counts)}, or its throughput in the table"
        else:
            most = max(known, key=lambda kind: self.counts[kind])
            there = self.counts[most]
            message = f"job `{job.id}` asks for {plural(job.gpus, 'GPU')}, and there are {there} of {most}"
            fix = f"{job.gpus - there} more of {most} would help, or a job of {plural(there, 'GPU')}"
        raise Infeasible(message, where=where or f"job {job.id}", fix=fix)
