"""Passes of towers over samples, each on some replicas from some time on, as a plan.

What runs on a rank one after another is in micro-batches one after another: a wave is a micro-batch whose towers are on
ranks of their own. A tower's layout is data-parallel over all ranks that any of its passes has.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush

from planner.costs import TowerSeconds, on_replicas, replica_ranks
from planner.plan.plan_file import Group, Layout, MicroBatch, Plan
from planner.specs.base import with_fields
from planner.specs.framework.software import Framework
from planner.specs.inputs import Inputs
from planner.strategies.plan_drafts import draft_plan, plan_uses


@dataclass(frozen=True, slots=True)
class TowerPass:
    """A forward and a backward of one tower over some samples, split over replicas; without samples, these have it."""

    tower: str
    samples: tuple[int, ...]
    replicas: tuple[int, ...]  # of equally many consecutive ranks
    start: float  # seconds, by which passes on one replica are ordered


def wave_plan(
    inputs: Inputs,
    layouts: Mapping[str, Layout],
    towers: Mapping[str, TowerSeconds],
    passes: Sequence[TowerPass],
) -> Plan:
    """The plan of passes before its check. Nothing but this project's runtime launches it: for other software it says
    what their kernels would take.
    """
    held = {name: sorted({each for one in passes if one.tower == name for each in one.replicas}) for name in layouts}
    own = {name: on_replicas(layout, held[name]) for name, layout in layouts.items()}
    groups = {
        f"{name}.dp{number}": Group(ranks=replica_ranks(own[name], replica))
        for name, replicas in held.items()
        for number, replica in enumerate(replicas)
    }
    micro_batches: dict[int, MicroBatch] = {}
    for wave, one in in_waves(one for one in passes if one.samples):
        of_tower = micro_batches.setdefault(wave, {}).setdefault(one.tower, {})
        assert isinstance(of_tower, dict), "of several modules, a micro-batch names groups by module"
        for replica, samples in split_samples(towers[one.tower], one):
            name = f"{one.tower}.dp{held[one.tower].index(replica)}"
            before = of_tower.get(name, ())
            assert isinstance(before, tuple), "towers have whole devices"
            of_tower[name] = (*before, *sorted(samples))
    job = with_fields(inputs.job, sync="step")
    launched = inputs.software if inputs.software.name == "planner" else Framework()
    used = plan_uses(replace(inputs, software=launched), own, ())
    return draft_plan(
        replace(inputs, job=job), used, own, groups, tuple(micro_batches[at] for at in sorted(micro_batches))
    )


def in_waves(passes: Iterable[TowerPass]) -> Iterator[tuple[int, TowerPass]]:
    """Each pass with its wave: behind those of all that its replicas run before it."""
    last: dict[int, int] = {}
    for one in sorted(passes, key=lambda each: (each.start, each.tower, each.replicas)):
        wave = 1 + max(last.get(replica, -1) for replica in one.replicas)
        last |= dict.fromkeys(one.replicas, wave)
        yield wave, one


def split_samples(tower: TowerSeconds, one: TowerPass) -> Iterator[tuple[int, list[int]]]:
    """The samples of each replica of a pass: as many on each, or one more, the longest first to who has least."""
    room, wanted = -(-len(one.samples) // len(one.replicas)), {*one.samples}
    able: list[tuple[float, int, list[int]]] = [(0.0, replica, []) for replica in one.replicas]
    heapify(able)
    for sample in (sample for sample in tower.longest_first if sample in wanted):
        seconds, replica, samples = heappop(able)
        samples.append(sample)
        if len(samples) < room:
            heappush(able, (seconds + tower.of_samples([sample]), replica, samples))
        else:
            yield replica, samples
    yield from ((replica, samples) for _, replica, samples in able if samples)
