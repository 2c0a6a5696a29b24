"""What this runtime can run of what can be planned, and whether this machine is the one: refused before any launch."""

import math
from collections.abc import Iterator
from typing import get_args

from planner.errors import InputError
from planner.launch.worker import Kind
from planner.plan.model import Layout, Piece, Plan, Step, assignments
from planner.runtime.options import RunOptions
from planner.specs.job import Dtype

SIMULATE = "simulate it, or plan the job with data parallelism and sequence groups alone"
UNKNOWN = ("tp", "ep", "etp")
WHOLE = ("1f1b", "gpipe", "interleaved")  # schedules of forwards and whole backwards

Refusal = tuple[str, str, str]  # message, where, fix


def require_runnable(plan: Plan, options: RunOptions) -> None:
    """Raises InputError with the first reason why not."""
    require_options(options)
    require_known(plan)
    require_models(plan)


def require_options(options: RunOptions) -> None:
    if options.steps is not None and options.steps < 1:
        raise InputError(f"{options.steps} steps are none", where="steps", fix="run at least one")
    known = get_args(Dtype)
    if options.dtype is not None and options.dtype not in known:
        raise InputError(f"no dtype is called `{options.dtype}`", where="dtype", fix=f"one of {', '.join(known)}")
    if not 0 <= options.learning_rate < math.inf:
        raise InputError(f"{options.learning_rate} is no learning rate", where="learning_rate", fix="such as 1e-3")


def require_known(plan: Plan) -> None:
    """Raises InputError with the first thing that this runtime does not do."""
    for message, where, fix in refusals(plan):
        raise InputError(message, where=where, fix=fix)


def refusals(plan: Plan) -> Iterator[Refusal]:
    if len(plan.layouts) > 1:
        names = " and ".join(plan.layouts)
        yield f"this runtime trains one module, the plan has {names}", "layouts", SIMULATE
    for name, layout in plan.layouts.items():
        for message, fix in layout_refusals(layout):
            yield message, f"layouts.{name}", fix
    yield from group_refusals(plan)
    for number, step in enumerate(plan.steps):
        yield from order_refusals(step, f"steps[{number}].order")
        for row in step.micro_batches:
            entries = (entry for a in assignments(plan, row) for entry in a.entries)
            if any(isinstance(entry, Piece) and entry.offload for entry in entries):
                yield "activations cannot be offloaded yet", f"steps[{number}]", "set offload to 0"


def layout_refusals(layout: Layout) -> Iterator[tuple[str, str]]:
    other = [f"{dim}: {size}" for dim, size in {**layout.mesh, **layout.experts}.items() if dim in UNKNOWN and size > 1]
    if other:
        yield f"this runtime does not spread a module by {', '.join(other)} yet", SIMULATE
    if any(layout.recompute_of(layer) == "selective" for stage in layout.stages for layer in stage):
        yield "selective recompute cannot be run yet", "recompute: full, or none"


def order_refusals(step: Step, where: str) -> Iterator[Refusal]:
    """Passes that autograd makes whole here."""
    for module, order in step.order.items():
        lines = step.order_of(module) or ()
        cut = order not in WHOLE if isinstance(order, str) else any(set(line) & {"I", "W"} for line in lines)
        if cut:
            yield "this runtime runs a forward and its whole backward", f"{where}.{module}", "order: 1f1b"


def group_refusals(plan: Plan) -> Iterator[Refusal]:
    for name, group in plan.groups.items():
        where = f"groups.{name}"
        if group.split.get("ring", 1) > 1:
            fix = "use degrees that the heads allow (list them in the job's `degrees`)"
            yield "ring attention cannot be run yet, only ulysses", where, fix
        if group.share < 1:
            yield f"the group holds a share of {group.share:g} of its devices", where, "give it whole devices"


def require_models(plan: Plan) -> None:
    """The model exists here, and can take every item."""
    from planner.models.build import unsupported
    from planner.models.data import check_batch

    for name, spec in plan.uses.models.items():
        reason = unsupported(spec) if name in plan.layouts else None
        if reason:
            raise InputError(reason, where=f"uses.models.{name}", fix="simulate it, or choose another model to run")
        check_batch(spec, [*plan.uses.items.get(name, {}).items()])


def plan_kind(plan: Plan) -> Kind:
    """The one kind of processor that the plan's ranks are."""
    kinds = {plan.uses.devices[entry.kind].kind for entry in plan.ranks}
    if len(kinds) > 1:
        raise InputError("the plan's ranks are on CPUs and on GPUs", where="ranks", fix="use one kind of rank")
    return "cuda" if kinds == {"cuda"} else "cpu"


def require_machine(plan: Plan, local_ranks: int) -> Kind:
    """The kind of the plan's ranks. Raises InputError when this machine has not that many of them."""
    import torch

    kind = plan_kind(plan)
    shown = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if kind == "cuda" and shown < local_ranks:
        wanted = " and ".join(f"{entry.count} of {entry.kind}" for entry in plan.ranks)
        raise InputError(
            f"a plan for another machine: it wants {wanted}, this one has {shown or 'no'} GPUs",
            where="ranks",
            fix="run it there, or plan the job for a cluster like this one",
        )
    return kind
