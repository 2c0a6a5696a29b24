"""Jobs on a cluster, drawn at random; and what holds of every schedule."""

from collections import defaultdict
from itertools import pairwise
from random import Random

import pytest

from planner.specs.cluster_jobs.jobs import ClusterJob, Fleet
from planner.specs.hardware.cluster import RankKind


def fleet_of(per_node: int = 2, **counts: int) -> Fleet:
    return Fleet([RankKind(kind=kind, count=count, per_node=per_node) for kind, count in counts.items()])


def job(name: str, submit: float, gpus: int, **seconds: float) -> ClusterJob:
    return ClusterJob(id=name, submit_s=submit, gpus=gpus, seconds={k: {gpus: s} for k, s in seconds.items()})


def random_jobs(seed: int, fleet: Fleet, count: int = 12, late: float = 50.0) -> list[ClusterJob]:
    """Jobs of 1, 2 or 4 GPUs, each known on some kinds that have room, with other counts for some."""
    draw, jobs, submit = Random(seed), [], 0.0
    for number in range(count):
        submit += draw.choice([0.0, draw.uniform(0, late)])
        gpus = draw.choice([1, 1, 2, 4])
        kinds = [kind for kind, size in fleet.counts.items() if size >= gpus and draw.random() < 0.8]
        kinds = kinds or [max(fleet.counts, key=fleet.counts.get)]
        alone = {kind: draw.uniform(10, 200) for kind in kinds}
        by_count = {kind: {n: s * (gpus / n) ** 0.8 for n in (gpus, 2 * gpus)} for kind, s in alone.items()}
        user, model = draw.choice(["ann", "bob", ""]), draw.choice(["small", "large"])
        beside = {kind: {other: draw.uniform(0.3, 1.0) for other in ("small", "large")} for kind in kinds}
        own = {"id": f"job-{number}", "user": user, "model": model, "beside": beside}
        jobs.append(ClusterJob(submit_s=submit, gpus=gpus, seconds=by_count, **own))
    return jobs


def require_lawful(jobs, fleet, history, restart: float = 0.0) -> None:
    """All work is done once, no GPU has two jobs at a time but a pair that shares it, and none runs before it comes."""
    work, by_gpu, by_name = defaultdict(float), defaultdict(list), {each.id: each for each in jobs}
    for each in history.segments:
        asked = by_name[each.job]
        assert asked.submit_s <= each.since <= each.until <= history.ends[each.job]
        assert {fleet.kind_of[gpu] for gpu in each.gpus} == {each.kind}
        share = asked.beside[each.kind][by_name[each.beside].model] if each.beside else 1.0
        work[each.job] += max(0.0, each.until - each.ready) * share / asked.seconds[each.kind][len(each.gpus)]
        for gpu in each.gpus:
            if each.since < each.until:
                by_gpu[gpu].append((each.since, each.until, each.job, each.beside))
    assert work == pytest.approx(dict.fromkeys(by_name, 1.0), rel=1e-6)
    for spans in by_gpu.values():
        sharing = defaultdict(set)
        for since, until, *pair in spans:
            sharing[since, until].add(tuple(pair))
        assert all(first[1] <= second[0] for first, second in pairwise(sorted(sharing)))
        assert all(
            {(beside, name) if beside else (name, "") for name, beside in pair} == pair for pair in sharing.values()
        )
