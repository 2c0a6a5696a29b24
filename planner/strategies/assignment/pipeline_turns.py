"""The turns of a pipeline's first stage, where modules that it reads are waited for, and gradients leave for them.

Of the other stages only what the first one idles for them is counted: for backwards of the first micro-batch until the
first gradient is there, for forwards of the last one ahead of the last (1F1B, PipeDream-Flush, arXiv 2006.09503).
"""

from collections.abc import Mapping, Sequence

import numpy as np

from planner.costs import Floats
from planner.plan.plan_file import Layout
from planner.plan.schedules import Slot, default_schedule, schedule_slots
from planner.plan.task import Phase
from planner.specs.base import Ranks
from planner.specs.hardware.profile import BACKWARD_SHARE, FORWARD_SHARE
from planner.strategies.assignment.rank_loads import PipelineLoads
from planner.strategies.assignment.step_estimate import Turn

SHARES: Mapping[Phase, float] = {  # of both passes
    "F": FORWARD_SHARE,
    "B": BACKWARD_SHARE,
    "I": BACKWARD_SHARE / 2.0,
    "W": BACKWARD_SHARE / 2.0,
}


def first_stage_slots(layout: Layout, micro_batches: int) -> list[Slot]:
    """What the first stage of a layout runs, in its schedule."""
    schedule = layout.schedule or default_schedule(layout.vpp)
    return schedule_slots(schedule, layout.pp, micro_batches, layout.vpp)[0]


def pipeline_turns(
    slots: Sequence[Slot], passes: Floats, loads: PipelineLoads, replicas: Sequence[Ranks]
) -> list[Turn]:
    """The turns of replicas whose first stage has these slots. `passes`: (replicas, micro-batches) seconds of both
    passes of a chunk on the slowest stage.
    """
    turns = stage_turns(slots, passes)
    behind = [at for at, turn in enumerate(turns) if turn.phase == "B"] or [len(turns) - 1]
    for at, idle in ((behind[0], loads.drain), (behind[-1], loads.warm_up)):
        waited = np.array([idle[list(ranks)].max() for ranks in replicas])
        turns[at] = turns[at]._replace(seconds=turns[at].seconds + waited)
    return turns


def turns_without_pipeline(passes: Floats) -> list[Turn]:
    """The turns where micro-batches come one after another."""
    return stage_turns(schedule_slots(default_schedule(1), 1, passes.shape[1])[0], passes)


def stage_turns(slots: Sequence[Slot], passes: Floats) -> list[Turn]:
    """The turns of a stage with these slots, and `passes` of a chunk; what follows the last is counted with it."""
    turns, taken = list[Turn](), np.zeros(len(passes))
    for phase, number, chunk in slots:
        own = passes[:, number] * SHARES[phase]
        if chunk == 0 and phase == "F":
            turns.append(Turn("F", number, taken))
            taken = own
        elif chunk == 0 and phase in ("B", "I"):
            turns.append(Turn("B", number, taken + own))
            taken = np.zeros(len(passes))
        else:
            taken = taken + own
    return [*turns[:-1], turns[-1]._replace(seconds=turns[-1].seconds + taken)]
