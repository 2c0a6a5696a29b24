"""Changes of the layouts of several modules, each tried as a plan whose step is simulated."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from planner.errors import Infeasible, InputError
from planner.plan.plan_file import Layout, Plan
from planner.scoring import exceeds_memory, score
from planner.specs.base import Ranks, with_fields
from planner.specs.inputs import Inputs
from planner.specs.parallelism import Parallelism
from planner.strategies.static.changed_layouts import changed_layouts, with_asked
from planner.strategies.static.layouts_plan import plan_of_layouts, plan_together, solve_together
from planner.strategies.static.nearest_change import Change, FieldChange, nearest_change


def fitting_change(
    inputs: Inputs, layouts: Mapping[str, Layout], runs: bool = True, may: Callable[[FieldChange], bool] = bool
) -> Change | None:
    """The nearest change of these layouts, which a job fixes, that fits, of fields that `may` change; None where none
    that is tried does.
    """
    options = [each for each in field_changes(inputs, layouts) if may(each)]
    return nearest_change(options, partial(tried, inputs, layouts, runs))


def solve_fixed(inputs: Inputs) -> Plan:
    """The priced plan of the layouts that a job fixes, with its bound. Raises InputError, and Infeasible with the
    nearest change that fits where it does not.
    """
    try:
        return solve_together(inputs)
    except Infeasible as error:
        change = fitting_change(inputs, plan_together(inputs).layouts) if error.where == "memory" else None
        raise Infeasible(error.message, where=error.where, fix=change.fix if change else error.fix) from error


def tried(inputs: Inputs, layouts: Mapping[str, Layout], runs: bool, changes: Sequence[FieldChange]) -> Change | None:
    """What some changes give; None where they cannot be."""
    asked: dict[str, Parallelism] = {}
    for change in changes:
        asked[change.module] = with_fields(asked.get(change.module, Parallelism()), **{change.field: change.value})
    try:
        wanted = with_asked(inputs, asked)
        others = changed_layouts(wanted, asked, layouts, runs)
        found = score(plan_of_layouts(wanted, others))
    except (InputError, Infeasible):
        return None
    fits = not exceeds_memory(found.peak_bytes, found.plan_memory.allowed_bytes(found.fullest_rank))
    return Change(
        tuple(changes),
        others,
        tuple(map(str, sorted(changes, key=lambda each: each.lateness))),
        sum(change.doublings for change in changes),
        found.step_seconds,
        found.peak_bytes,
        found.memory_share(found.fullest_rank),
        fits and (found.host_memory is None or found.host_memory.fits),
        simulated=True,
    )


def field_changes(inputs: Inputs, layouts: Mapping[str, Layout]) -> Iterator[FieldChange]:
    """Changes of one field that may leave more room: recompute, ZeRO, larger tp and pp, an encoder on all ranks, and a
    smaller micro-batch.
    """
    for name, layout in layouts.items():
        how = layout.recompute
        if how != "full":
            yield FieldChange(name, "recompute", "full", 2)
            if how != "selective":
                yield FieldChange(name, "recompute", "selective", 1)
        for zero in range(layout.zero + 1, 4):
            yield FieldChange(name, "zero", zero, zero - layout.zero)
        ranks = len(layout.ranks)
        for doublings in (1, 2, 3):
            tp, pp = layout.tp << doublings, layout.pp << doublings
            in_node = tp <= max(kind.per_node for kind in inputs.cluster.ranks)
            if in_node and tp * layout.pp * layout.cp * layout.replica <= ranks:
                yield FieldChange(name, "tp", tp, doublings)
            if pp * layout.tp * layout.cp * layout.replica <= ranks and pp <= inputs.model.modules[name].layers:
                yield FieldChange(name, "pp", pp, doublings)
        every = Ranks(range(inputs.cluster.size))
        if name != inputs.module and layout.ranks != every:
            yield FieldChange(name, "ranks", every, 2)
        if name == inputs.module and layout.micro_batch > 1:
            yield FieldChange(name, "micro_batch", layout.micro_batch // 2, 1)
