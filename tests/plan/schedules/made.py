"""Plans of a pipeline for tests of its orders: equal stages, one item per micro-batch."""

from itertools import product
from random import Random

from planner.costs.cost_lines import NO_COST, Cost
from planner.plan.plan_file import Group, Layout, Plan, Step
from planner.plan.schedules import Slot
from planner.plan.tasks.expand import expand
from planner.simulate import simulate
from planner.simulate.timeline import Timeline
from planner.specs.base import Ranks
from tests.plans import decoder, plan_of, stages_of, uses

Order = str | tuple[str, ...]


def ordered_plan(pp: int, micro_batches: int, order: Order, vpp: int = 1, dp: int = 1, **layout) -> Plan:
    """One decoder over `pp` ranks, each with `vpp` chunks of one layer; on `dp` replicas, of which each has an item in
    each micro-batch.
    """
    ranks, layers = Ranks(range(pp * dp)), pp * vpp
    groups = {f"dp{n}": Group(ranks=Ranks(range(n, pp * dp, dp))) for n in range(dp)}
    rows = tuple({f"dp{n}": (i * dp + n,) for n in range(dp)} for i in range(micro_batches))
    return plan_of(
        pp * dp,
        uses(pp * dp, {"llm": decoder(layers)}, {"llm": {i: 8 for i in range(micro_batches * dp)}}),
        {
            "llm": Layout(
                ranks=ranks, pp=pp, vpp=vpp, dp=dp, stages=stages_of(layers, layers) if pp > 1 else (), **layout
            )
        },
        groups,
        Step(
            sync="micro_batch" if layout.get("zero") == 3 else "step",
            micro_batches=rows,
            order={"llm": order},
        ),
    )


def timeline(plan: Plan, **seconds: float) -> Timeline:
    """With these seconds for each phase, and none for others."""
    return simulate(
        expand(plan), lambda t: Cost(seconds[t.phase], "analytic", 0.0) if t.phase in seconds else NO_COST, plan.size
    )


def some_order(chance: Random, pp: int, micro_batches: int, chunks: int) -> list[list[Slot]]:
    """What a pipeline may do, drawn at random: on each rank any pass that others have made possible, so that none waits
    for another in a circle.
    """
    count = pp * chunks
    cut = {each: chance.random() < 0.5 for each in product(range(micro_batches), range(count))}
    slots: list[list[Slot]] = [[] for _ in range(pp)]
    done: set[tuple[str, int, int]] = set()
    waiting = [("F", row, stage) for row in range(micro_batches) for stage in range(count)]
    while waiting:
        phase, row, stage = chance.choice(
            [each for each in waiting if all(other in done for other in needs(*each, count))]
        )
        waiting.remove((phase, row, stage))
        done |= {(phase, row, stage)} | ({("back", row, stage)} if phase in "BI" else set())
        slots[stage % pp].append((phase, row, stage // pp))
        if phase in "FI" and not (phase == "F" and not cut[row, stage]):
            waiting.append(("I" if phase == "F" else "W", row, stage))
        elif phase == "F":
            waiting.append(("B", row, stage))
    return slots


def needs(phase: str, row: int, stage: int, count: int) -> list[tuple[str, int, int]]:
    """What a pass of a stage waits for on others."""
    if phase == "F":
        return [("F", row, stage - 1)] if stage else []
    return [("back", row, stage + 1)] if phase in "BI" and stage + 1 < count else []
