"""The laws of several tasks: each is of modules of the plan, whose outputs fit its loss, and its samples are items of
each, which have no others; of a sample a step has all items or none, as its loss compares them.
"""

from collections.abc import Iterator

from planner.plan.legal.violation import Violation
from planner.plan.plan_file import Plan, assignments
from planner.specs.model import task_fault


def task_laws(plan: Plan) -> Iterator[Violation]:
    """Of tasks and their samples."""
    for name, task in plan.uses.tasks.items():
        where, unknown = f"uses.tasks.{name}", [module for module in task.modules if module not in plan.layouts]
        if unknown:
            message = f"task `{name}` is of `{unknown[0]}`, which has no layout"
            yield Violation(where, message, f"one of {', '.join(plan.layouts)}")
            continue
        message, _, fix = task_fault(name, task, plan.uses.models).partition(" | ")
        if message:
            yield Violation(where, message, fix)
        for module in task.modules:
            missing = [sample for sample in task.samples if sample not in plan.uses.items[module]]
            if missing:
                message = f"sample {missing[0]} of task `{name}` is no item of `{module}` ({len(missing)} such)"
                yield Violation(f"{where}.samples", message, f"add it to uses.items.{module}, or take it out")
    for module in plan.layouts if plan.uses.tasks else ():
        read = {sample for task in plan.uses.tasks.values() if module in task.modules for sample in task.samples}
        unread = [item for item in plan.uses.items[module] if item not in read]
        if unread:
            message = f"item {unread[0]} of `{module}` is a sample of no task ({len(unread)} such)"
            yield Violation(f"uses.items.{module}", message, "add it to the samples of a task, or take it out")
    if plan.uses.tasks and plan.edges:
        edge = plan.edges[0]
        message = f"modules of tasks read samples alone, and `{edge.target}` reads `{edge.source}`"
        yield Violation("edges", message, "leave out edges, or uses.tasks")
    if plan.uses.tasks:
        yield from whole_sample_laws(plan)


def whole_sample_laws(plan: Plan) -> Iterator[Violation]:
    """All items of a sample are in one step."""
    step_of: dict[tuple[str, int], int] = {}
    for number, step in enumerate(plan.steps):
        for micro_batch in step.micro_batches:
            for a in assignments(plan, micro_batch):
                step_of |= {(a.module, item): number for item in a.items}
    for name, task in plan.uses.tasks.items():
        for sample in task.samples:
            steps = {step_of[module, sample] for module in task.modules if (module, sample) in step_of}
            if len(steps) > 1:
                message = f"items of sample {sample} of task `{name}` are in different steps"
                yield Violation(f"uses.tasks.{name}.samples", message, "assign them in one step")
                break
