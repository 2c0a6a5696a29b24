"""A pipeline's order as a schedule of torch.distributed.pipelining: a line of CSV for each rank, of passes as `4F0`.

It is the form "compute_only" that torch's multi-stage schedules load (`_load_csv`, tried with torch 2.13): stage, pass
(F, B, I, W), micro-batch. The loader puts sends, receives and gathers in between by itself; layers, ranks and data come
from the script. Torch takes losses in the order in which the last stage makes them, so forwards must run 0, 1, 2, …:
micro-batches are numbered anew on the way out, and what comes in otherwise is refused.
"""

import re
from collections.abc import Iterator
from itertools import pairwise

from planner.errors import InputError
from planner.plan.model import Plan, Step, assignments
from planner.plan.schedules import Slot
from planner.plan.schedules.explicit import PHASES
from planner.plan.work import Work, module_work

ACTION = re.compile(r"(?P<stage>[0-9]{1,9})(?P<phase>[FBIW])(?P<row>[0-9]{1,9})")

Orders = list[list[Slot]]  # of each pipeline rank


def to_csv(plan: Plan) -> tuple[str, tuple[int, ...]]:
    """The schedule of all steps, and the plan's micro-batch behind each of its numbers.

    Raises InputError when torch's schedule cannot say what the plan does.
    """
    orders, numbered = [], []
    for number, step in enumerate(plan.steps):
        work = pipeline_of(plan, step, f"steps[{number}]")
        order, rows = renumbered(work.slots(step.order_of(work.module)), f"steps[{number}].order.{work.module}")
        orders.append(order)
        numbered.append(rows)
    if any(order != orders[0] for order in orders):
        raise InputError("steps differ in their order, and a schedule is for all", where="steps", fix="export one step")
    pp = len(orders[0])
    lines = [
        ",".join(f"{c * pp + rank}{phase}{row}" for phase, row, c in slots) for rank, slots in enumerate(orders[0])
    ]
    return "\n".join([*lines, ""]), numbered[0]


def pipeline_of(plan: Plan, step: Step, where: str) -> Work:
    """The one module of a plan, over several stages. Raises InputError with what a schedule does not carry."""
    if len(plan.layouts) > 1:
        names = " and ".join(plan.layouts)
        message = f"torch's schedule is of one module, the plan has {names}"
        raise InputError(message, where="layouts", fix="export a plan of one module, without placements")
    work = module_work(plan, step, next(iter(plan.layouts)))
    if work.pipeline == 1:
        raise InputError(
            f"`{work.module}` is on one pipeline stage", where="layouts", fix="a plan with pp of 2 or more"
        )
    for message, fix in uneven(plan, step, work):
        raise InputError(message, where=f"{where}.micro_batches", fix=fix)
    return work


def uneven(plan: Plan, step: Step, work: Work) -> Iterator[tuple[str, str]]:
    """Where micro-batches differ in who works on them, or in how many tokens: torch infers shapes once."""
    tokens = [
        {
            a.group: sum(plan.uses.tokens(work.module, item) for item in a.items)
            for a in assignments(plan, row)
            if a.entries
        }
        for row in step.micro_batches
    ]
    for number, of_row in enumerate(tokens):
        if set(of_row) != set(tokens[0]):
            message = f"micro-batch {number} has other groups than micro-batch 0: pipelines would not have equally many"
            yield message, "give every group items in every micro-batch"
        for group, count in of_row.items():
            if count != tokens[0].get(group, count):
                message = f"group {group} has {count} tokens in micro-batch {number}, {tokens[0][group]} in 0"
                yield message, "micro-batches of equal shape: torch takes those of the first for all"


def renumbered(orders: Orders, where: str) -> tuple[Orders, tuple[int, ...]]:
    """Micro-batches numbered as the last stage takes them, and their numbers before. Raises InputError."""
    if not any(phase in ("B", "I") for phase, _, _ in orders[0]):
        raise InputError("nothing comes back, and torch's schedule trains", where=where, fix="an order with backwards")
    forwards = stage_forwards(orders)
    for stage, rows in enumerate(forwards):
        if rows != forwards[-1]:
            message = f"stage {stage} runs its forwards in another order than the last stage"
            raise InputError(message, where=where, fix="let every stage run its forwards in the same order")
    new = {row: number for number, row in enumerate(forwards[-1])}
    return [[(phase, new[row], chunk) for phase, row, chunk in slots] for slots in orders], tuple(forwards[-1])


def stage_forwards(orders: Orders) -> list[list[int]]:
    """Of each stage, the micro-batches in the order of their forwards."""
    chunks = 1 + max(chunk for slots in orders for _, _, chunk in slots)
    return [
        [row for phase, row, of in slots if phase == "F" and of == chunk] for chunk in range(chunks) for slots in orders
    ]


def read_csv(text: str, plan: Plan, name: str) -> Orders:
    """The order that a schedule says, for the only module of a plan; `name` is what errors call the file.

    Raises InputError for what is no such schedule, where forwards are not in order, or where stages lie on other ranks
    than the plan's.
    """
    work = pipeline_of(plan, plan.steps[0], "steps[0]")
    lines = [line.split(",") for line in text.splitlines() if line.strip()]
    if len(lines) != work.pipeline:
        message = f"the schedule is of {len(lines)} ranks, the plan's pipeline of {work.pipeline}"
        raise InputError(message, where=name, fix="a line for each rank of the pipeline, or another plan")
    orders = [
        [action(each.strip(), rank, work, f"{name}:{rank + 1}") for each in line if each.strip()]
        for rank, line in enumerate(lines)
    ]
    if not any(orders):
        raise InputError("the schedule is empty", where=name, fix="a line of passes, as 0F0,0F1,0B0,0B1, for each rank")
    for stage, rows in enumerate(stage_forwards(orders)):
        if rows != sorted(rows):
            late = next(row for row, other in pairwise(rows) if row > other)
            message = f"stage {stage} runs micro-batch {late} forward before one of a lower number"
            fix = "number micro-batches in the order of their forwards: torch takes losses for those of 0, 1, 2, …"
            raise InputError(message, where=f"{name}:{stage % work.pipeline + 1}", fix=fix)
    return orders


def action(text: str, rank: int, work: Work, where: str) -> Slot:
    """One entry of a rank's line. Raises InputError."""
    match = ACTION.fullmatch(text)
    if not match:
        message, fix = f"`{text}` is no pass of one stage", "write passes alone, as 0F0, 0B0, 0I0 or 0W0 (compute_only)"
        raise InputError(message, where=where, fix=fix)
    chunk, place = divmod(int(match["stage"]), work.pipeline)
    if int(match["stage"]) >= len(work.stages):
        message = f"`{text}` is of stage {match['stage']}, and the plan has {len(work.stages)}"
        raise InputError(message, where=where, fix="a plan with as many stages")
    if place != rank:
        message = f"`{text}` puts stage {match['stage']} on rank {rank}, the plan has it on rank {place}"
        raise InputError(message, where=where, fix="stages go around the ranks: stage s is on rank s mod pp")
    return PHASES[match["phase"]], int(match["row"]), chunk
