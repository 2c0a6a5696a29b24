"""A lower bound where samples and encoders share ranks: no rank does more than one second of passes in a second.

However samples are packed and encoders' items are placed, N ranks that end by T have done

    N·T ≥ Σ_i min_d d·w_d(s_i) + β·Σ_i s_i / cap + Σ_e A_e

samples on their cheapest degrees, the constant β of a group on each of its ranks in at least tokens/cap micro-batches
of a rank, and the passes of each encoder e over its items, in one micro-batch on as few ranks as can be
(layouts/joint_problem.py). Exchanges and updates are left out: others may compute meanwhile.
"""

from dataclasses import replace

from planner.costs import packing_table
from planner.plan.plan_file import assignments
from planner.scoring.bounded_step import BoundedStep
from planner.scoring.plan_space import joint_problem_of_plan


def shared_seconds(step: BoundedStep) -> float:
    """Seconds of the step if the passes of all modules were in perfect balance."""
    problem = step.packing_problem
    tokens = sum(map(problem.least_tokens, problem.sizes.values()))
    held = max(shape.cap for shape in problem.shapes)
    constants = min(shape.line.const for shape in problem.shapes) * tokens / held
    work = packing_table(problem).least_rank_seconds + constants + encoder_seconds(step)
    return work / step.plan.size


def encoder_seconds(step: BoundedStep) -> float:
    """Ranks' seconds of the passes of all encoders at least; of those alone that rates price, where more ranks of a
    replica never do with less.
    """
    uses = step.plan.uses
    assigned = {
        (a.module, item)
        for micro_batch in step.plan.steps[step.number].micro_batches
        for a in assignments(step.plan, micro_batch)
        for item in a.items
    }
    sizes = {
        name: {item: size for item, size in own.items() if (name, item) in assigned} for name, own in uses.items.items()
    }
    joint = replace(joint_problem_of_plan(step.plan), sizes=sizes)
    measured = {key.partition("@")[0] for key in uses.prices.modules}
    return sum(joint.least_pass_seconds(name) for name in joint.others if name not in measured)
