"""Pools: GPUs that may be rented, of which a job is given one kind and one number, or several kinds at once."""

from typing import Annotated, ClassVar

import msgspec

from planner.specs.base import Amount, Positive, RankCount, Spec
from planner.specs.hardware.cluster import Cluster, NodeStorage
from planner.specs.hardware.node_cluster import NodeAdapters

USUAL_NODE_GPUS = 8  # GPUs of a node, in a DGX or HGX
RACK_GPUS = {"gb200": 72, "gb300": 72}  # that one NVLink domain joins in NVL72


class Spot(Spec):
    """The same GPUs while nobody else wants them."""

    usd_per_hour: Amount  # of one GPU
    mean_hours: Positive  # that a node stays, in the mean, until it is taken away


class PoolKind(Spec, kw_only=True):
    """GPUs of one kind, from one seller: `counts` that may be rented; or up to `max`, one node or twice as many again
    and again, and `max` itself.
    """

    kind: str  # a file of profiles/devices, the beginning of its name, or a path
    counts: tuple[RankCount, ...] = ()
    max: RankCount | None = None
    per_node: RankCount | None = None  # None: as is usual with the device
    usd_per_hour: Amount | None = None  # of one GPU; None: its device's price
    nics: NodeAdapters | None = None  # of a node; None: as is usual with the device
    region: str = ""  # where they are; a name for people
    spot: Spot | None = None  # besides, at another price

    def __post_init__(self) -> None:
        if bool(self.counts) == (self.max is not None):
            raise ValueError("a kind of a pool has either counts or max | counts: [8, 16], or max: 512")

    def numbers(self, per_node: int) -> tuple[int, ...]:
        """How many GPUs may be rented, rising; of `per_node` to a node."""
        if self.max is None:
            return (*sorted({*self.counts}),)
        doubled = (per_node << power for power in range(self.max.bit_length()))
        return (*(each for each in doubled if each < self.max), self.max)


class Pool(Spec):
    """A cluster that is still to be chosen, `planner.cluster/1` too: a file gives `pool` in place of `ranks` and
    `levels`, or of `nodes`.
    """

    FORMAT: ClassVar[str] = Cluster.FORMAT
    format: str
    name: str
    pool: Annotated[tuple[PoolKind, ...], msgspec.Meta(min_length=1)]
    mixed: bool = False  # whether a job may have several of the kinds at once: all that there are of each
    source: str = ""  # where prices are from
    storage: NodeStorage | None = None  # of each node, that checkpoints are written to; None: as is assumed
