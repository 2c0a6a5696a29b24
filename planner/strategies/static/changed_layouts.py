"""Layouts of several modules where some fields become others: what was said stays, and what is left open is completed
again. dp is the rest of a module's ranks, and modules on the first stage of their reader move with it.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from planner.errors import InputError
from planner.plan.feature_storage import KEPT, WHOLE_LAYOUT
from planner.plan.plan_file import Layout
from planner.specs.base import FirstStage, with_fields
from planner.specs.inputs import Inputs
from planner.specs.parallelism import Parallelism, decided_fields
from planner.strategies.static.placement import placed_layouts, readers_first

Asked = Mapping[str, Parallelism]  # module → fields that it is to have


def with_asked(inputs: Inputs, asked: Asked, whole: Collection[str] = ()) -> Inputs:
    """The job that fixes what is asked for, and of these modules what else it fixes already; of those whose `whole`
    layout is given, nothing else. Raises InputError where fields exclude each other.
    """
    fixed = dict(inputs.job.fix.layouts)
    for name, wish in asked.items():
        base = Parallelism() if name in whole else fixed.get(name, Parallelism())
        try:
            fixed[name] = completed(base, wish)
        except InputError as error:
            raise InputError(error.message, where=f"{inputs.file} (fix.layouts.{name})", fix=error.fix) from error
    for name in moved_modules(fixing(inputs, fixed), asked):
        if name not in asked:
            fixed[name] = with_fields(fixed[name], dp=None)
    return fixing(inputs, fixed)


def moved_modules(inputs: Inputs, asked: Asked) -> set[str]:
    """The modules that were asked about, and those on the first stage of a reader that was."""
    moved = {*asked}
    for name in readers_first(inputs):
        ranks = inputs.job.fix.layouts.get(name, Parallelism()).ranks
        if isinstance(ranks, FirstStage) and moved & {*inputs.model.targets(name)}:
            moved.add(name)
    return moved


def fixing(inputs: Inputs, layouts: Mapping[str, Parallelism]) -> Inputs:
    """The job that fixes these layouts."""
    fix = with_fields(inputs.job.fix, layouts=dict(layouts))
    return replace(inputs, job=with_fields(inputs.job, fix=fix))


def completed(base: Parallelism, wish: Parallelism) -> Parallelism:
    """A layout with the fields asked for. Left open: dp, and what a field asked for leaves no room for."""
    fields: dict[str, Any] = {"dp": None}
    if wish.cp and base.ulysses:
        fields["ulysses"] = wish.cp if base.ulysses == base.cp else None
    if wish.pp == 1:
        fields |= {"vpp": None, "schedule": None}
    if wish.vpp and (wish.vpp > 1) != (base.schedule == "interleaved"):
        fields["schedule"] = None
    if wish.features in KEPT:
        fields |= {**WHOLE_LAYOUT, "ulysses": None, "vpp": None, "schedule": None, "stages": None, "replica": None}
    return with_fields(base, **(fields | decided_fields(wish)))


def changed_layouts(
    inputs: Inputs, asked: Asked, layouts: Mapping[str, Layout], runs: bool = True
) -> dict[str, Layout]:
    """The layouts as the job of `with_asked` has them. Modules that were not asked about keep theirs, but for those on
    the first stage of a reader that was. Raises InputError where that cannot be.
    """
    moved = moved_modules(inputs, asked)
    return placed_layouts(inputs, runs, {name: layout for name, layout in layouts.items() if name not in moved})
