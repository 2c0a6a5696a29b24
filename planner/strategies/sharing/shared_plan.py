"""Plans in which modules on the same ranks have shares of them."""

from collections.abc import Mapping

from planner.plan.plan_file import ItemEntry, MicroBatch, Plan, SharedDeviceItems
from planner.specs.base import with_fields

Shares = Mapping[str, float]  # of each device, by module; of modules that are left out, all of it


def sharing_modules(plan: Plan) -> list[str]:
    """The modules that could share ranks with another one: those with passes on ranks that others have."""
    ranks = {name: {*layout.ranks} for name, layout in plan.layouts.items()}
    return [name for name, own in ranks.items() if any(own & ranks[other] for other in ranks if other != name)]


def with_shares(plan: Plan, shares: Shares) -> Plan:
    """The plan with these shares, in every micro-batch that has items of two such modules or more."""
    steps = (
        with_fields(step, micro_batches=tuple(shared_micro_batch(each, shares) for each in step.micro_batches))
        for step in plan.steps
    )
    return with_fields(plan, steps=tuple(steps))


def shared_micro_batch(micro_batch: MicroBatch, shares: Shares) -> MicroBatch:
    """A micro-batch with these shares; as it is where fewer than two of the modules have items."""
    busy = [name for name in shares if any(items_of(each) for each in groups_of(micro_batch, name).values())]
    changed = dict(micro_batch)
    for name in busy if len(busy) > 1 else ():
        changed[name] = {
            group: SharedDeviceItems(items=items_of(each), share=shares[name])
            for group, each in groups_of(micro_batch, name).items()
        }
    return changed


def groups_of(micro_batch: MicroBatch, module: str) -> Mapping[str, tuple[ItemEntry, ...] | SharedDeviceItems]:
    """The groups of a module in a micro-batch of several modules."""
    found = micro_batch.get(module, {})
    assert isinstance(found, dict), "of several modules, a micro-batch names groups by module"
    return found


def items_of(entry: tuple[ItemEntry, ...] | SharedDeviceItems) -> tuple[ItemEntry, ...]:
    """The items of a group."""
    return entry.items if isinstance(entry, SharedDeviceItems) else entry
