"""Measures a model's modules and the collectives on this machine, and writes a profile: `planner.profile/1`.

Samples are kept in a journal beside the profile, which is computed from all of them. What was measured before in the
same environment is not measured again, neither after an interruption nor for a second model.
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
from planner.specs.layers import Module, kind_counts
from planner.specs.layers.heads import head_dim, kv_heads
from planner.specs.model import Model
from planner.specs.parallelism import Dtype
from planner.specs.profile import Collective, Point, Profile, Provenance


@dataclass(frozen=True, slots=True)
class ProfileOptions:
    """How to measure: with as many ranks as share this machine in a run, since they share it here too."""

    ranks: int = 1
    dtype: Dtype = "float32"
    quick: bool = False


@dataclass(frozen=True, slots=True)
class Subject:
    """A module to be measured."""

    name: str  # MODEL/MODULE
    spec: Module
    context: str
    measurements: tuple[Piece, ...]


def no_progress(_done: int, _of: int, _what: str, _seconds_left: float) -> None:
    """Ignores progress."""


def profile(
    model_name: str,
    model: Model,
    base: Profile,
    options: ProfileOptions,
    target: Path,
    on_progress: OnProgress = no_progress,
) -> Profile:
    """Measures the modules of `model` that can run, and the collectives; writes the result to `target`, over what that
    file has already, or else over `base`. Raises InputError.
    """
    kind = base.device.kind
    digest = environment(base.name, kind)
    journal = Journal(target.with_suffix(".jsonl"), digest)
    before = files.read(target, Profile) if target.exists() else base
    modules = [subject(digest, f"{model_name}/{name}", spec, base, options) for name, spec in model.modules.items()]
    subjects, left_out = measurable(journal, modules)
    shared = collective_context(digest, options.ranks)
    wanted = [measurement for subject in subjects for measurement in subject.measurements]
    wanted += collective_pieces(shared, options.ranks, kind, options.quick)
    missing = journal.missing(wanted)
    if missing:
        collector = Collector(missing, options.ranks, journal, on_progress, len(wanted) - len(missing))
        measure(collector, {subject.context: subject.spec for subject in subjects}, options.dtype, kind)
    fresh = bool(missing) or before is base
    provenance = Provenance(
        source="measured by planner profile",
        date=date.today().isoformat() if fresh else before.provenance.date,
        machine=machine(kind),
        versions=versions(),
        note="; ".join(left_out),
    )
    costs = {each.name: module_costs(journal.of(each.context), measured_at(each.spec, options)) for each in subjects}
    result = changed(
        before,
        device=base.device,
        provenance=provenance,
        modules=before.modules | costs,
        collectives=merged(before.collectives, collectives(journal.of(shared))),
    )
    files.write(target, result)
    return result


def subject(digest: str, name: str, spec: Module, base: Profile, options: ProfileOptions) -> Subject:
    context = module_context(digest, spec, options.dtype, options.ranks)
    measurements = module_pieces(context, spec, base.device, options.dtype, options.quick)
    return Subject(name, spec, context, tuple(measurements))


def measurable(journal: Journal, modules: Sequence[Subject]) -> tuple[list[Subject], list[str]]:
    """The modules that were measured or can be, and why the others cannot. Raises InputError when none can."""
    subjects, reasons = [], []
    for each in modules:
        reason = unsupported(each.spec) if journal.missing(each.measurements) else None
        if reason is None:
            subjects.append(each)
        else:
            reasons.append(f"{each.name} left out: {reason}")
    if not subjects:
        raise InputError(reasons[0], fix="plan it with analytic costs, or profile another model")
    return subjects, reasons


def unsupported(spec: Module) -> str | None:
    """Why a module cannot be measured; None if it can. Imports torch."""
    from planner.models import build

    if spec.routed:  # a profile has one kind of layer, without token dispatch
        return "layers with experts cannot be measured yet, only those of dense modules"
    if len(kind_counts(spec)) > 1:
        return "its layers are of several kinds, and a profile has seconds of one"
    if spec.crossing or spec.borrows:
        return "it reads another module's outputs or its embedding, and modules are measured one by one"
    return build.unsupported(spec)


def measured_at(spec: Module, options: ProfileOptions) -> str:
    """Text on the shape, dtype and number of ranks of a measurement."""
    heads = f"{spec.heads}/{kv_heads(spec)} heads of {head_dim(spec)}"
    where = f"{options.ranks} rank{'s' * (options.ranks > 1)} at once"
    return f"hidden {spec.hidden}, ffn {spec.ffn}, {heads}, {options.dtype}, {where}"


def merged(before: dict[str, Collective], measured: dict[str, Collective]) -> dict[str, Collective]:
    """Merges tables of collectives: new points replace those over groups of the same size."""
    result = dict(before)
    for name, table in measured.items():
        sizes = {point.ranks for point in table.points}
        old: tuple[Point, ...] = before[name].points if name in before else ()
        points = (*(point for point in old if point.ranks not in sizes), *table.points)
        result[name] = changed(table, points=tuple(sorted(points, key=lambda point: point.ranks)))
    return result
