"""Features that are kept: outputs of a frozen encoder, computed in the first epoch and read in all that follow.

They are the same in every epoch where no weight below them is trained and no epoch changes the encoder's inputs. They
are kept in the memory of the hosts, or on the disks of the nodes, whose capacity and bandwidth the cluster says.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from planner.plan.gradient_flow import GradientFlow, gradient_flows
from planner.plan.node_storage import host_bytes, storage_of
from planner.plan.plan_file import Layout, Plan
from planner.specs.hardware.cluster import Cluster, node_of_rank
from planner.specs.hardware.profile import Device
from planner.specs.layers import Module
from planner.specs.parallelism import Dtype, FeatureSource
from planner.specs.shapes import token_output_bytes
from planner.specs.workload.items import Size, item_tokens
from planner.specs.workload.length_sources import Repeated
from planner.units import GIB

KeptSource = Literal["host", "disk"]
KEPT: tuple[KeptSource, ...] = get_args(KeptSource)
WHOLE_LAYOUT = {"tp": 1, "cp": 1, "pp": 1, "zero": 0}  # fields of a layout whose ranks each compute whole items alone


@dataclass(frozen=True, slots=True)
class FeatureFacts:
    """What it takes to say whether features of one encoder can be kept."""

    name: str
    module: Module
    flow: GradientFlow
    feeds: bool  # whether another module reads its outputs
    reads: bool  # whether it reads another's
    repeated: Repeated | None
    cluster: Cluster
    devices: Mapping[str, Device]
    sizes: tuple[Size, ...]  # of the items of all samples of the batch, or of the plan
    samples: int

    def data_bytes(self, dtype: Dtype) -> float:
        """Bytes of the features of the whole data set."""
        tokens = sum(map(item_tokens, self.sizes))
        all_samples = self.repeated.samples if self.repeated else self.samples
        return tokens * token_output_bytes(self.module, dtype) * all_samples / max(1, self.samples)


def capacity_bytes(
    cluster: Cluster, devices: Mapping[str, Device], source: FeatureSource, ranks: Iterable[int]
) -> float:
    """Return the bytes that the nodes of these ranks can keep."""
    first_ranks = {node_of_rank(cluster, rank): rank for rank in ranks}.values()
    if source == "host":
        return sum(host_bytes(cluster, devices, rank) for rank in first_ranks)
    return storage_of(cluster).disk_gib * GIB * len(first_ranks)


def unkept_reason(facts: FeatureFacts) -> str | None:
    """Return why features of a module can never be kept, and what to do, as `why | fix`; None where they can."""
    name, repeated = facts.name, facts.repeated
    if not facts.feeds:
        return f"`{name}` feeds no module: it has no features | leave `features` out"
    if facts.flow.trains() or facts.flow.passes_on:
        what = f"`{name}` is trained" if facts.flow.trains() else f"what `{name}` reads is trained"
        return f"{what}, so that its features change with every step | features: computed, or trained: {{{name}: none}}"
    if facts.reads:
        return f"`{name}` reads another module, whose outputs its features depend on | features: computed"
    if repeated is None or repeated.epochs == 1:
        again = "one epoch sees each sample once" if repeated else "the job does not say that samples are seen again"
        return f"{again} | features: computed, or workload: {{repeated: {{epochs: 3, samples: 558000}}}}"
    if name in repeated.augmented:
        return f"each epoch changes the inputs of `{name}` (augmented) | features: computed"
    return None


def layout_reason(facts: FeatureFacts, layout: Layout) -> str | None:
    """Return why the features that a layout says cannot be kept there, as `why | fix`; None where they can."""
    reason = unkept_reason(facts)
    if reason:
        return reason
    for field, value in WHOLE_LAYOUT.items():
        if getattr(layout, field) != value:
            alone = "each rank reads and writes features of whole items by itself"
            return f"{alone}, and {field} is {getattr(layout, field)} | {field}: {value}, or features: computed"
    needed = facts.data_bytes(layout.dtype)
    room = capacity_bytes(facts.cluster, facts.devices, layout.features, layout.ranks)
    if needed > room:
        where = "memory of its hosts" if layout.features == "host" else "disks of its nodes"
        what = f"features of all samples take {needed / GIB:,.1f} GiB, and the {where} may keep {room / GIB:,.1f} GiB"
        other = "disk" if layout.features == "host" else "computed"
        return f"{what} | features: {other}, or another storage in the cluster's file"
    return None


def feature_facts(plan: Plan, name: str) -> FeatureFacts:
    """Return what a plan says of the features of a module."""
    uses, feeding = plan.uses, {edge.source for edge in plan.edges}
    samples = max((len(uses.items[each]) for each in plan.layouts if each not in feeding), default=0)
    flow = gradient_flows(uses.models, plan.edges)[name]
    sizes, reads = tuple(uses.items[name].values()), any(edge.target == name for edge in plan.edges)
    return FeatureFacts(
        name, uses.models[name], flow, name in feeding, reads, uses.repeated, uses.cluster, uses.devices, sizes, samples
    )


def computed_share(layout: Layout, repeated: Repeated | None) -> float:
    """Return the share of epochs in which a module with this layout computes its forwards."""
    return 1.0 if layout.features == "computed" or repeated is None else 1.0 / repeated.epochs


def computed_shares(plan: Plan) -> dict[str, float]:
    """Return, by module of a plan, the share of epochs in which it computes its forwards."""
    return {name: computed_share(layout, plan.uses.repeated) for name, layout in plan.layouts.items()}
