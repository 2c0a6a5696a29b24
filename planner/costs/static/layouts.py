"""A plan's layout as a setup, and the machine of a cluster: how plans meet the closed form."""

from dataclasses import dataclass

from planner.costs.static.assumed import complete
from planner.costs.static.machine import Machine
from planner.costs.static.setup import Again, Dispatch, Precision, Scheme, Setup
from planner.costs.static.wires import Wires
from planner.plan.model import Layout
from planner.specs.cluster import Cluster
from planner.specs.job import Dtype, Recompute
from planner.specs.profile import Device
from planner.specs.rates import Rates
from planner.specs.timing import Timing

PRECISIONS: dict[Dtype, Precision] = {"bf16": "bf16", "fp8": "fp8", "float32": "float32", "float64": "float32"}
SCHEMES: dict[str, Scheme] = {"gpipe": "gpipe", "zb_h1": "zero_bubble", "zb_h2": "zb_h2"}  # others: by the chunks
DISPATCHES: dict[str, Dispatch] = {"all_to_all": "copies", "all_gather": "tokens"}
SELECTIVE: frozenset[Again] = frozenset({"norm", "mlp"})  # what is cheap to make again and large to keep


@dataclass(frozen=True, slots=True)
class Batch:
    """What a pipeline works on: sequences of about `seq` tokens, `micro_batch` at a time, `batch` in a step."""

    seq: float
    batch: float = 1.0
    micro_batch: float = 1.0


ONE = Batch(seq=4096.0)  # where only states are asked for, or costs per token


def setup_of(layout: Layout, batch: Batch = ONE, cp: int = 1) -> Setup:
    """`cp`: ranks of a group over which a sequence is split, which the layout counts among its replicas.

    Where layers differ in what they recompute, it is of those that recompute nothing (costs/recomputing.py).
    """
    mesh, experts = layout.mesh, layout.experts
    full, again = recomputed("none" if isinstance(layout.recompute, dict) else layout.recompute)
    pp = mesh.get("pp", 1)
    return Setup(
        ranks=len(layout.ranks),
        seq=batch.seq,
        batch=batch.batch,
        micro_batch=batch.micro_batch,
        tp=mesh.get("tp", 1),
        cp=cp,
        pp=pp,
        vpp=max(1, len(layout.stages) // pp),
        ep=experts.get("ep", 1),
        etp=experts.get("etp", 1),
        zero=layout.zero,
        shard=mesh.get("dp", 1) if mesh.get("replica", 1) > 1 else 0,
        full=full,
        again=again,
        precision=PRECISIONS[layout.dtype],
        scheme="interleaved" if len(layout.stages) > pp else "1f1b",
        dispatch=DISPATCHES[layout.dispatch],
        compressed=layout.gradients == "bf16",
    )


def recomputed(how: Recompute) -> tuple[float, frozenset[Again]]:
    """The share of layers that are made again whole, and what is made again of the others."""
    return (1.0 if how == "full" else 0.0), (SELECTIVE if how == "selective" else frozenset())


def machine_of(cluster: Cluster, device: Device, rates: Rates | None, timing: Timing) -> Machine:
    """Ranks of one kind in a cluster."""
    known = complete(rates, device.kind)
    return Machine(device, known, wires_of(cluster, known), timing)


def wires_of(cluster: Cluster, rates: Rates) -> Wires:
    """The nearest level is within a node, the farthest between nodes; what is reached of them is the device's."""
    near, far = cluster.levels[0], cluster.levels[-1]
    return Wires(
        per_node=near.ranks,
        near_gb_per_s=near.gb_per_s * (rates.link_share or 1.0),
        far_gb_per_s=far.gb_per_s * ((rates.adapter_share if len(cluster.levels) > 1 else rates.link_share) or 1.0),
        near_us=near.latency_us,
        far_us=far.latency_us,
    )
