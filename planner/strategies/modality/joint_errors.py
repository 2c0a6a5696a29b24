"""Why no joint layouts fit: the module that fits nowhere, or what binds where all of them are on the same ranks."""

from planner.errors import Infeasible, InputError
from planner.plan.descriptions import placed_layout
from planner.specs.base import Ranks
from planner.specs.inputs import Inputs
from planner.strategies.modality.joint_candidates import JointSpace
from planner.strategies.modality.joint_search import JointSearch
from planner.strategies.modality.kept_features import impossible_features
from planner.strategies.modality.module_space import ModuleSpace
from planner.strategies.static import FieldChange, fitting_change, fixing
from planner.strategies.static.infeasible_layout import infeasible_error
from planner.strategies.static.placement import module_ranks
from planner.units import GIB


def require_possible_fields(inputs: Inputs) -> None:
    """Raises InputError where the job fixes what no layout of an encoder has, wherever it is."""
    for name, fixed in inputs.job.fix.layouts.items():
        if isinstance(fixed.ranks, Ranks):
            module_ranks(inputs, name, {})
        module = inputs.model.modules[name]
        if fixed.tp and module.heads % (fixed.tp * (fixed.ulysses or 1)):
            degrees = f"tp = {fixed.tp}" + (f", ulysses = {fixed.ulysses}" if fixed.ulysses else "")
            where = f"{inputs.file} (fix.layouts.{name})"
            message = f"{module.heads} heads of `{name}` do not divide over {degrees}"
            raise InputError(message, where=where, fix="a tp that divides the heads")
        reason = impossible_features(inputs, name)
        if reason:
            message, _, fix = reason.rpartition(" | ")
            where = f"{inputs.file} (fix.layouts.{name}.features)"
            raise InputError(message, where=where, fix=fix)


def nothing_fits(space: JointSpace) -> Infeasible:
    """The error where the closed form knows no candidate: of a module that fits on no ranks that it may have, or of all
    together.
    """
    inputs = space.inputs
    for name in inputs.model.modules:
        alone = space.space(name, len(space.most_ranks(name)), piped=True)
        if not len(alone.layouts["tp"]) or not len(alone.rising):
            return module_error(inputs, name, alone)
    least = {name: least_bytes(space, name) / GIB for name in inputs.model.modules}
    told = ", ".join(f"`{name}` {gib:.1f} GiB" for name, gib in least.items())
    return Infeasible(
        f"modules fit alone and not together: of a rank's {space.allowed / GIB:.1f} GiB they take at least {told}",
        where="memory",
        fix="more ranks, so that encoders find some of their own; or a smaller batch",
    )


def module_error(inputs: Inputs, name: str, alone: ModuleSpace) -> Infeasible:
    """The error of a module that has no layout on its ranks, or none that fits."""
    fixed = alone.problem.trained.fixed
    screened = alone.screened if len(alone.layouts["tp"]) else None
    error = infeasible_error(alone.problem, screened, fixed, name)
    given = f"{inputs.file} (fix.layouts.{name})" if name in inputs.job.fix.layouts else error.where
    return Infeasible(f"`{name}`: {error.message}", where=given, fix=error.fix)


def least_bytes(space: JointSpace, name: str) -> float:
    """Bytes on the fullest rank of the leanest layout of a module on all ranks that it may have."""
    alone = space.space(name, len(space.most_ranks(name)), piped=True)
    return float(alone.screened.bytes_needed.min())


def nearest_error(done: JointSearch) -> Infeasible:
    """The error where no candidate fits by simulation: what binds in the one that came nearest, and the nearest change
    of what the job fixes with which it fits.
    """
    inputs, nearest = done.inputs, min(done.tried.values(), key=lambda each: each.memory_share)
    fixed, size = inputs.job.fix.layouts, inputs.cluster.size

    def is_fixed(each: FieldChange) -> bool:
        return getattr(fixed.get(each.module), each.field, None) is not None

    whole = fixing(inputs, {name: placed_layout(layout, size) for name, layout in nearest.layouts.items()})
    change = fitting_change(whole, nearest.layouts, may=is_fixed)
    fix = change.fix if change else "more ranks, a smaller batch, or recompute: full of an encoder in fix.layouts"
    return Infeasible(f"{nearest.kind}: {nearest.because}", where="memory", fix=fix)
