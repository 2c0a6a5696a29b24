"""Candidates whose frozen encoders compute in the first epoch alone: their features are kept, and read afterwards.

Whether that is quicker is a matter of seconds and bytes: reading an image's features against computing them, and the
features of all samples against what hosts or disks may hold. A rank keeps those of whole items, so that each has all of
the encoder; what does not fit, in memory or in what the cluster has to keep features in, is refused as any other plan.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from planner.costs import feature_gb_per_s
from planner.plan.feature_storage import KEPT, FeatureFacts, KeptSource, layout_reason, unkept_reason
from planner.plan.gradient_flow import gradient_flows
from planner.plan.plan_file import Layout
from planner.specs.base import Ranks, with_fields
from planner.specs.hardware.cluster import device_of_rank
from planner.specs.inputs import Inputs
from planner.specs.parallelism import Parallelism, decided_fields
from planner.specs.shapes import token_output_bytes
from planner.specs.workload.items import item_tokens
from planner.strategies.modality.module_space import ModuleOption
from planner.units import GB

# Fields of an encoder each of whose ranks computes whole items, and keeps nothing for a backward that there is not.
ALONE: dict[str, Any] = {"tp": 1, "cp": 1, "ulysses": 1, "pp": 1, "vpp": 1, "replica": 1, "zero": 0, "stages": ()}
KEEPS_NOTHING: dict[str, Any] = {"recompute": "none", "offload": 0.0}


def kept_sources(inputs: Inputs, name: str) -> tuple[KeptSource, ...]:
    """Where features of a module may be kept: wherever the job leaves it, if it can be at all."""
    fixed = inputs.job.fix.layouts.get(name, Parallelism()).features
    if not inputs.software.knobs.kept_features or unkept_reason(facts_of_job(inputs, name)):
        return ()
    return tuple(source for source in KEPT if fixed in (None, source))


def must_keep(inputs: Inputs, name: str) -> bool:
    """Whether the job fixes that features of a module are kept."""
    return inputs.job.fix.layouts.get(name, Parallelism()).features in KEPT


def impossible_features(inputs: Inputs, name: str) -> str | None:
    """Why features of a module cannot be kept as the job fixes it, wherever the module is, as `why | fix`; None where
    they can, or the job fixes nothing.
    """
    if not must_keep(inputs, name):
        return None
    if not inputs.software.knobs.kept_features:
        return f"{inputs.software.name} computes features in every epoch | features: computed, or another software"
    fixed = decided_fields(with_fields(inputs.job.fix.layouts[name], ranks=None, stages=None))
    every = Ranks(range(inputs.cluster.size))
    return layout_reason(facts_of_job(inputs, name), with_fields(Layout(ranks=every), **fixed))


def facts_of_job(inputs: Inputs, name: str) -> FeatureFacts:
    """What a job says of the features of a module, by its first batch."""
    batch, model = inputs.batches[0], inputs.model
    sizes, feeds = tuple(batch.streams.get(name, {}).values()), bool(model.targets(name))
    flow = gradient_flows(model.modules, model.edges)[name]
    repeated, reads = inputs.job.workload.repeated, any(edge.target == name for edge in model.edges)
    return FeatureFacts(
        name, model.modules[name], flow, feeds, reads, repeated, inputs.cluster, inputs.devices, sizes, len(batch.items)
    )


def kept_fields(inputs: Inputs, name: str, layout: Layout, source: KeptSource) -> dict[str, Any] | None:
    """The fields of a layout that change where features are kept; None where the job fixes another value of one."""
    wanted = {**ALONE, **KEEPS_NOTHING, "dp": len(layout.ranks), "features": source}
    changes = {field: value for field, value in wanted.items() if getattr(layout, field) != value}
    own = decided_fields(inputs.job.fix.layouts.get(name, Parallelism()))
    given = {**decided_fields(inputs.job.layout), **own}
    excluded = any(given.get(field, value) != value for field, value in changes.items() if field != "stages")
    return None if excluded else changes


def kept_variants(
    inputs: Inputs, options: Mapping[str, ModuleOption], places: Mapping[str, str]
) -> Iterator[tuple[dict[str, ModuleOption], dict[str, str]]]:
    """Yield encoders of a candidate with the features of all that can kept, on hosts or on disks where the job leaves
    it open, and what their places are then called.
    """
    able = {name: kept_sources(inputs, name) for name in options}
    for source in KEPT:
        kept, named = dict(options), dict(places)
        for name, option in options.items():
            own = next(iter(able[name]), source) if must_keep(inputs, name) else source
            changes = kept_fields(inputs, name, option.layout, own) if own in able[name] else None
            if changes is not None:
                kept[name] = kept_option(inputs, name, option, changes)
                named[name] = f"{places[name]}, features from {own}"
        if named != places:
            yield kept, named


def kept_option(inputs: Inputs, name: str, option: ModuleOption, changes: Mapping[str, Any]) -> ModuleOption:
    """An encoder's layout with its features kept, and about the seconds of its work in the mean of all epochs."""
    layout, repeated = with_fields(option.layout, **changes), inputs.job.workload.repeated
    assert repeated, "else no features are kept"
    device = inputs.devices[device_of_rank(inputs.cluster, layout.ranks[0])]
    tokens = sum(map(item_tokens, inputs.batches[0].streams.get(name, {}).values()))
    read = tokens * token_output_bytes(inputs.model.modules[name], layout.dtype) / len(layout.ranks)
    seconds = option.seconds / repeated.epochs + read / (feature_gb_per_s(layout, inputs.cluster, device) * GB)
    return replace(option, layout=layout, seconds=seconds)
