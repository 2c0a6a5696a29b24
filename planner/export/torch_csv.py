"""A pipeline's order as a schedule of torch.distributed.pipelining: a line of CSV for each rank, of passes as `4F0`.

The format is "compute_only", which torch's multi-stage schedules load (`_load_csv`, tried with torch 2.13): stage, pass
(F, B, I, W), micro-batch. The loader inserts sends, receives and gathers by itself; layers, ranks and data come from
the script. Torch takes losses in the order in which the last stage computes them, so forwards must run 0, 1, 2, …:
micro-batches are renumbered in an export, and an import with another order is refused.
"""

import re
from collections.abc import Iterator
from itertools import pairwise

from planner.errors import InputError
from planner.plan.plan_file import Plan, Step, assignments
from planner.plan.schedules import Slot
from planner.plan.schedules.explicit import PHASES
from planner.plan.tasks.module_work import ModuleWork, module_work

ACTION = re.compile(r"(?P<stage>[0-9]{1,9})(?P<phase>[FBIW])(?P<micro_batch>[0-9]{1,9})")

PipelineOrders = list[list[Slot]]  # the passes of each pipeline rank, in order


def to_csv(plan: Plan) -> tuple[str, tuple[int, ...]]:
    """The schedule of all steps, and the plan's micro-batch behind each of its numbers.

    Raises InputError where torch's schedule cannot express the plan.
    """
    orders, numbered = [], []
    for number, step in enumerate(plan.steps):
        work = pipeline_of(plan, step, f"steps[{number}]")
        order, micro_batches = renumber_micro_batches(
            work.slots(step.order_of(work.module)), f"steps[{number}].order.{work.module}"
        )
        orders.append(order)
        numbered.append(micro_batches)
    if any(order != orders[0] for order in orders):
        raise InputError("steps differ in their order, and a schedule is for all", where="steps", fix="export one step")
    pp = len(orders[0])
    lines = [
        ",".join(f"{c * pp + rank}{phase}{number}" for phase, number, c in slots)
        for rank, slots in enumerate(orders[0])
    ]
    return "\n".join([*lines, ""]), numbered[0]


def pipeline_of(plan: Plan, step: Step, where: str) -> ModuleWork:
    """The pipeline of the plan's only module. Raises InputError where the plan has what a schedule does not carry."""
    if len(plan.layouts) > 1:
        names = " and ".join(plan.layouts)
        message = f"torch's schedule is of one module, the plan has {names}"
        raise InputError(message, where="layouts", fix="export a plan of one module, without placements")
    work = module_work(plan, step, next(iter(plan.layouts)))
    if work.pipeline_ranks == 1:
        raise InputError(
            f"`{work.module}` is on one pipeline stage", where="layouts", fix="a plan with pp of 2 or more"
        )
    for message, fix in uneven_micro_batches(plan, step, work):
        raise InputError(message, where=f"{where}.micro_batches", fix=fix)
    return work


def uneven_micro_batches(plan: Plan, step: Step, work: ModuleWork) -> Iterator[tuple[str, str]]:
    """Messages and fixes where micro-batches differ in groups or in tokens: torch infers shapes once."""
    tokens = [
        {
            a.group: sum(plan.uses.tokens(work.module, item) for item in a.items)
            for a in assignments(plan, micro_batch)
            if a.entries
        }
        for micro_batch in step.micro_batches
    ]
    for number, of_groups in enumerate(tokens):
        if set(of_groups) != set(tokens[0]):
            message = f"micro-batch {number} has other groups than micro-batch 0: pipelines would not have equally many"
            yield message, "give every group items in every micro-batch"
        for group, count in of_groups.items():
            if count != tokens[0].get(group, count):
                message = f"group {group} has {count} tokens in micro-batch {number}, {tokens[0][group]} in 0"
                yield message, "micro-batches of equal shape: torch takes those of the first for all"


def renumber_micro_batches(orders: PipelineOrders, where: str) -> tuple[PipelineOrders, tuple[int, ...]]:
    """Orders with micro-batches numbered as the last stage runs them, and their numbers before. Raises InputError."""
    if not any(phase in ("B", "I") for phase, _, _ in orders[0]):
        raise InputError("nothing comes back, and torch's schedule trains", where=where, fix="an order with backwards")
    forwards = stage_forwards(orders)
    for stage, numbers in enumerate(forwards):
        if numbers != forwards[-1]:
            message = f"stage {stage} runs its forwards in another order than the last stage"
            raise InputError(message, where=where, fix="let every stage run its forwards in the same order")
    new = {old: number for number, old in enumerate(forwards[-1])}
    return [[(phase, new[number], chunk) for phase, number, chunk in slots] for slots in orders], tuple(forwards[-1])


def stage_forwards(orders: PipelineOrders) -> list[list[int]]:
    """The micro-batches of each stage in the order of their forwards."""
    chunks = 1 + max(chunk for slots in orders for _, _, chunk in slots)
    return [
        [number for phase, number, slot_chunk in slots if phase == "F" and slot_chunk == chunk]
        for chunk in range(chunks)
        for slots in orders
    ]


def read_csv(text: str, plan: Plan, name: str) -> PipelineOrders:
    """The order in a schedule, for the only module of a plan; `name` is what errors call the file.

    Raises InputError for text that is no such schedule, where forwards are not in order, or where stages are on other
    ranks than the plan's.
    """
    work = pipeline_of(plan, plan.steps[0], "steps[0]")
    lines = [line.split(",") for line in text.splitlines() if line.strip()]
    if len(lines) != work.pipeline_ranks:
        message = f"the schedule is of {len(lines)} ranks, the plan's pipeline of {work.pipeline_ranks}"
        raise InputError(message, where=name, fix="a line for each rank of the pipeline, or another plan")
    orders = [
        [parse_action(each.strip(), rank, work, f"{name}:{rank + 1}") for each in line if each.strip()]
        for rank, line in enumerate(lines)
    ]
    if not any(orders):
        raise InputError("the schedule is empty", where=name, fix="a line of passes, as 0F0,0F1,0B0,0B1, for each rank")
    for stage, numbers in enumerate(stage_forwards(orders)):
        if numbers != sorted(numbers):
            late = next(number for number, following in pairwise(numbers) if number > following)
            message = f"stage {stage} runs micro-batch {late} forward before one of a lower number"
            fix = "number micro-batches in the order of their forwards: torch takes losses for those of 0, 1, 2, …"
            raise InputError(message, where=f"{name}:{stage % work.pipeline_ranks + 1}", fix=fix)
    return orders


def parse_action(text: str, rank: int, work: ModuleWork, where: str) -> Slot:
    """The pass that one entry of a rank's line names. Raises InputError."""
    match = ACTION.fullmatch(text)
    if not match:
        message, fix = f"`{text}` is no pass of one stage", "write passes alone, as 0F0, 0B0, 0I0 or 0W0 (compute_only)"
        raise InputError(message, where=where, fix=fix)
    chunk, place = divmod(int(match["stage"]), work.pipeline_ranks)
    if int(match["stage"]) >= len(work.stages):
        message = f"`{text}` is of stage {match['stage']}, and the plan has {len(work.stages)}"
        raise InputError(message, where=where, fix="a plan with as many stages")
    if place != rank:
        message = f"`{text}` puts stage {match['stage']} on rank {rank}, the plan has it on rank {place}"
        raise InputError(message, where=where, fix="stages go around the ranks: stage s is on rank s mod pp")
    return PHASES[match["phase"]], int(match["micro_batch"]), chunk
