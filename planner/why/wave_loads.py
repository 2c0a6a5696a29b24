"""What bounds each wave of several tasks: the tower whose passes are longest, and how busy all ranks are beside it."""

from collections import defaultdict
from collections.abc import Iterator

from planner.plan.plan_file import Plan, assignments
from planner.simulate import Timeline
from planner.specs.base import Ranks, Spec


class WaveLoad(Spec, omit_defaults=False):
    """One wave, that is a micro-batch."""

    longest: str  # the tower with the longest passes
    ranks: Ranks  # that have its samples in this wave
    seconds: float  # of its forward and backward on the slowest of them
    busy: float  # mean seconds of the wave's passes over all ranks, as a share of these


def wave_loads(plan: Plan, timeline: Timeline) -> Iterator[WaveLoad]:
    """Yield the waves of a plan of one step; none where it has one loss."""
    passes: defaultdict[tuple[int, str, int], float] = defaultdict(float)  # wave, tower, rank → seconds
    for event in timeline.events if plan.uses.tasks else ():
        if event.phase in ("F", "B", "I", "W"):
            wave = int(event.id.split("/")[2])
            for rank in event.ranks:
                passes[wave, event.module, rank] += event.seconds
    for number, micro_batch in enumerate(plan.steps[0].micro_batches if passes else ()):
        own = {key: seconds for key, seconds in passes.items() if key[0] == number}
        (_, longest, _), most = max(own.items(), key=lambda entry: entry[1])
        held = (a for a in assignments(plan, micro_batch) if a.module == longest)
        ranks = Ranks(sorted({rank for a in held for rank in plan.groups[a.group].ranks}))
        yield WaveLoad(longest=longest, ranks=ranks, seconds=most, busy=sum(own.values()) / plan.size / most)
