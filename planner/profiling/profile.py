"""Measure a model's modules and the collectives on this machine, and keep the result: `planner.profile/1`.

What was measured before in the same circumstances is not measured again, neither after an interruption nor for a
second model: samples lie in a journal beside the profile, and the profile is made from all of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from planner import files
from planner.errors import InputError
from planner.profiling.assemble import collectives, module_costs
from planner.profiling.context import collective_context, environment, machine, module_context, versions
from planner.profiling.grid import collective_pieces, module_pieces
from planner.profiling.journal import Journal
from planner.profiling.measure import Collector, OnProgress, measure
from planner.profiling.piece import Piece
from planner.specs.base import changed
from planner.specs.job import Dtype
from planner.specs.model import Decoder, Model, Module, head_dim, kv_heads
from planner.specs.profile import Collective, ModuleCosts, Point, Profile, Provenance


@dataclass(frozen=True, slots=True)
class ProfileOptions:
    """How to measure: the ranks that share this machine in a real run, because they will share it here too."""

    ranks: int = 1
    dtype: Dtype = "float32"
    quick: bool = False


def silent(_done: int, _of: int, _what: str, _seconds_left: float) -> None:
    """Tell nobody."""


def profile(
    model_name: str,
    model: Model,
    base: Profile,
    options: ProfileOptions,
    target: Path,
    on_progress: OnProgress = silent,
) -> Profile:
    """Everything of `model` that can run, measured; written to `target` over `base` or over what `target` has."""
    kind, place = base.device.kind, environment(base.name, base.device.kind)
    journal = Journal(target.with_suffix(".jsonl"), place)
    specs = {
        module_context(place, spec, options.dtype, options.ranks): spec
        for spec in runnable(model_name, model).values()
    }
    shared = collective_context(place, options.ranks)
    wanted = wanted_pieces(specs, shared, base, options)
    missing = journal.missing(wanted)
    if missing:
        collector = Collector(missing, options.ranks, journal, on_progress, len(wanted) - len(missing))
        measure(collector, specs, options.dtype, kind)
    before = files.read(target, Profile) if target.exists() else base
    costs = {
        f"{model_name}/{name}": module_costs(spec, journal.of(context), options.ranks, measured_at(spec, options))
        for name, spec in runnable(model_name, model).items()
        if (context := module_context(place, spec, options.dtype, options.ranks))
    }
    result = merged(before, base, costs, collectives(journal.of(shared)))
    when = before.provenance.date if not missing and before is not base else date.today().isoformat()
    result = changed(result, provenance=provenance(kind, options, when))
    files.write(target, result)
    return result
