"""Laws of features that are kept: they are the same in every epoch, there is room for them, and ranks work alone."""

from collections.abc import Iterator

from planner.plan.feature_storage import feature_facts, layout_reason
from planner.plan.legal.name_laws import name_laws
from planner.plan.legal.violation import Violation
from planner.plan.plan_file import Assignment, Group, Plan
from planner.specs.hardware.cluster import device_of_rank


def feature_laws(plan: Plan, name: str, where: str) -> Iterator[Violation]:
    """What a layout's `features` needs of its module, of the job's epochs, and of the nodes of its ranks."""
    layout = plan.layouts[name]
    if layout.features == "computed" or any(True for _ in name_laws(plan)):  # what follows looks names up
        return
    reason = layout_reason(feature_facts(plan, name), layout)
    if reason:
        message, _, fix = reason.rpartition(" | ")
        yield Violation(f"{where}.features", message, fix)
    yield from split_laws(plan, name)
    for kind in sorted({device_of_rank(plan.uses.cluster, rank) for rank in layout.ranks}):
        device = plan.uses.devices[kind]
        if device.kind != "cpu" and device.host_gb_per_s is None:
            message = f"features of `{name}` come over the host of `{kind}`, which states no bandwidth to it"
            yield Violation(f"{where}.features", message, f"computed, or host_gb_per_s in uses.devices.{kind}")


def split_laws(plan: Plan, name: str) -> Iterator[Violation]:
    """A forward whose outputs are kept runs in one piece."""
    for number, step in enumerate(plan.steps):
        for index, place in enumerate(step.placements):
            if place.moved.module == name and place.moved.layers:
                message = f"features of `{name}` are kept, and {place.do} is a part of its layers"
                where = f"steps[{number}].order.place[{index}]"
                yield Violation(where, message, "place the whole forward, or features: computed")


def repeated_laws(plan: Plan) -> Iterator[Violation]:
    """Modules whose inputs change with each epoch exist."""
    for name in plan.uses.repeated.augmented if plan.uses.repeated else ():
        if name not in plan.layouts:
            message = f"no layout is called `{name}`"
            yield Violation("uses.repeated.augmented", message, f"one of {', '.join(plan.layouts)}")


def whole_item_laws(plan: Plan, a: Assignment, group: Group, where: str) -> Iterator[Violation]:
    """A rank reads and writes features of whole items."""
    layout = plan.layouts[a.module]
    if layout.features != "computed" and group.resolved_split(layout).degree > 1:
        message = f"features of `{a.module}` are kept by rank, and group {a.group} shards items over {len(group.ranks)}"
        yield Violation(where, message, "groups of one rank, or features: computed")
