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
from planner.profiling.measurement import Measurement
from planner.profiling.measurement_context import (
    collective_digest,
    environment_digest,
    module_digest,
    processor_text,
    versions,
)
from planner.profiling.measurement_grid import ExpectedCost, collective_measurements, module_measurements
from planner.profiling.profile_assembly import collective_tables, module_costs
from planner.profiling.run_measurements import OnProgress, SampleCollector, SampleJournal, run_measurements
from planner.specs.base import with_fields
from planner.specs.hardware.profile import CollectiveCosts, CollectivePoint, Profile, Provenance
from planner.specs.layers import Module, kind_counts
from planner.specs.layers.head_widths import head_dim, kv_heads
from planner.specs.model import Model
from planner.specs.parallelism import Dtype


@dataclass(frozen=True, slots=True)
class ProfileOptions:
    """How to measure: with as many ranks as share this machine in a run, since they share it here too."""

    ranks: int = 1
    dtype: Dtype = "float32"
    quick: bool = False


@dataclass(frozen=True, slots=True)
class ProfiledModule:
    """A module to be measured."""

    name: str  # MODEL/MODULE
    spec: Module
    context: str
    measurements: tuple[Measurement, ...]


def profile(
    model_name: str,
    model: Model,
    base: Profile,
    options: ProfileOptions,
    target: Path,
    on_progress: OnProgress = lambda done, of, what, seconds_left: None,
) -> Profile:
    """Measures the modules of `model` that can run, and the collectives; writes the result to `target`, over what that
    file has already, or else over `base`. Raises InputError.
    """
    kind = base.device.kind
    digest = environment_digest(base.name, kind)
    journal = SampleJournal(target.with_suffix(".jsonl"), digest)
    before = files.read(target, Profile) if target.exists() else base
    modules = [
        profiled_module(digest, f"{model_name}/{name}", spec, base, options, len(model.modules) > 1)
        for name, spec in model.modules.items()
    ]
    subjects, left_out = measurable(journal, modules)
    shared = collective_digest(digest, options.ranks)
    wanted = [measurement for subject in subjects for measurement in subject.measurements]
    wanted += collective_measurements(shared, options.ranks, kind, options.quick)
    missing = journal.missing(wanted)
    if missing:
        collector = SampleCollector(missing, options.ranks, journal, on_progress, len(wanted) - len(missing))
        run_measurements(collector, {subject.context: subject.spec for subject in subjects}, options.dtype, kind)
    fresh = bool(missing) or before is base
    provenance = Provenance(
        source="measured by planner profile",
        date=date.today().isoformat() if fresh else before.provenance.date,
        machine=processor_text(kind),
        versions=versions(),
        note="; ".join(left_out),
    )
    costs = {
        each.name: module_costs(
            journal.samples_of(each.context), each.spec, measured_at(each.spec, options), kind == "cuda"
        )
        for each in subjects
    }
    result = with_fields(
        before,
        device=base.device,
        provenance=provenance,
        modules=before.modules | costs,
        collectives=merged_collectives(before.collectives, collective_tables(journal.samples_of(shared))),
    )
    files.write(target, result)
    return result


def profiled_module(
    digest: str, name: str, spec: Module, base: Profile, options: ProfileOptions, of_several: bool
) -> ProfiledModule:
    """A module with its measurements. Encoders, and what reads others (`of_several`), may be trained in part."""
    context = module_digest(digest, spec, options.dtype, options.ranks)
    expected = ExpectedCost(spec, base.device, options.dtype)
    may_freeze = of_several or spec.feature_width > 0
    measurements = module_measurements(context, expected, options.quick, may_freeze)
    return ProfiledModule(name, spec, context, tuple(measurements))


def measurable(journal: SampleJournal, modules: Sequence[ProfiledModule]) -> tuple[list[ProfiledModule], list[str]]:
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
    from planner.models import unsupported as unsupported_network

    if len(kind_counts(spec)) > 1:
        return "its layers are of several kinds, and a profile has seconds of one"
    if spec.cross_attention_width or spec.borrows_embedding:
        return "it reads another module's outputs or its embedding, and modules are measured one by one"
    return unsupported_network(spec)


def measured_at(spec: Module, options: ProfileOptions) -> str:
    """Text on the shape, dtype and number of ranks of a measurement."""
    moe = spec.routed_experts
    mlp = f"{moe.topk} of {moe.experts} experts of {moe.ffn}" if moe else f"ffn {spec.ffn}"
    heads = f"{spec.heads}/{kv_heads(spec)} heads of {head_dim(spec)}"
    where = f"{options.ranks} rank{'s' * (options.ranks > 1)} at once"
    return f"hidden {spec.hidden}, {mlp}, {heads}, {options.dtype}, {where}"


def merged_collectives(
    before: dict[str, CollectiveCosts], measured: dict[str, CollectiveCosts]
) -> dict[str, CollectiveCosts]:
    """Merges tables of collectives: new points replace those over groups of the same size."""
    result = dict(before)
    for name, table in measured.items():
        sizes = {point.ranks for point in table.points}
        old: tuple[CollectivePoint, ...] = before[name].points if name in before else ()
        points = (*(point for point in old if point.ranks not in sizes), *table.points)
        result[name] = with_fields(table, points=tuple(sorted(points, key=lambda point: point.ranks)))
    return result
