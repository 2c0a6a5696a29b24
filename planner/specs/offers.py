"""What a pool offers a job: clusters of one kind and number of GPUs each, or of all there are of several kinds, at a
price; and what it can not be given.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from planner import files
from planner.errors import InputError
from planner.specs import library
from planner.specs.base import with_fields
from planner.specs.gpu_clusters import asked_device, cluster_of_gpus, usual_per_node
from planner.specs.hardware.cluster import Cluster, rank_kinds
from planner.specs.hardware.joined_clusters import JoinedPart, joined_cluster
from planner.specs.hardware.node_cluster import NodeCluster, NodeGpus, expand_nodes
from planner.specs.hardware.pool import Pool, PoolKind
from planner.specs.hardware.profile import Device, Profile
from planner.specs.job import USUAL_DTYPE, Job, Limits
from planner.specs.named_files import device_kind
from planner.units import plural

STALE_DAYS = 365  # after which a price is dated to be old
DTYPE_NAMES = {"bf16": "bfloat16", "fp8": "fp8"}


@dataclass(frozen=True, slots=True)
class OfferedCluster:
    """One choice of a pool."""

    cluster: Cluster
    usd_per_gpu_hour: float
    region: str = ""
    node_hours: float | None = None  # until a node is taken away, in the mean; None: it is not

    @property
    def kinds(self) -> tuple[str, ...]:
        """Its GPUs."""
        return rank_kinds(self.cluster)

    @property
    def usd_per_hour(self) -> float:
        """Of all GPUs."""
        return self.cluster.size * self.usd_per_gpu_hour

    @property
    def name(self) -> str:
        """Such as 64xh100-80gb spot, in eu-west."""
        where = f", in {self.region}" if self.region else ""
        gpus = "+".join(f"{each.count}x{Path(each.kind).stem}" for each in self.cluster.ranks)
        return f"{gpus}{' spot' if self.node_hours else ''}{where}"


class LeftOut(NamedTuple):
    """What of a pool is no choice, and why."""

    what: str
    because: str


class Offers(NamedTuple):
    """All choices of a pool, and what is none."""

    clusters: tuple[OfferedCluster, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    doubts: tuple[str, ...] = ()  # what can hardly be meant


NO_OFFERS = Offers()


class PricedKind(NamedTuple):
    """A kind of a pool with its device."""

    entry: PoolKind
    kind: str
    device: Device
    usd_per_hour: float


def offers_of(pool: Pool, path: Path, job: Job) -> Offers:
    """The choices that a pool, which was read from `path`, has for a job. Raises InputError."""
    dtype = job.layout.dtype or USUAL_DTYPE
    offered, left_out, doubts = list[OfferedCluster](), list[LeftOut](), list[str]()
    for number, entry in enumerate(pool.pool):
        priced = priced_kind(entry, path, number)
        doubts += stale_price(priced.kind, priced.entry.usd_per_hour, priced.device, date.today())
        if dtype in DTYPE_NAMES and dtype not in priced.device.tflops:
            left_out.append(LeftOut(priced.kind, f"it has no {DTYPE_NAMES[dtype]}, in which the job trains"))
            continue
        for each in kind_offers(pool, priced, files.place(path, "pool", number)):
            over = limit_refusal(each, job.limits)
            if over:
                left_out.append(LeftOut(each.name, over))
            else:
                offered.append(each)
    for each in mixed_offers(pool, offered, path):
        over = limit_refusal(each, job.limits)
        left_out += [LeftOut(each.name, over)] if over else []
        offered += [] if over else [each]
    if not offered:
        told = "; ".join(f"{one.what}: {one.because}" for one in left_out)
        fix = "other limits or kinds, or layout: {dtype: fp16} for a device without bfloat16"
        raise InputError(f"nothing of the pool is left for the job: {told}", where=files.place(path, "pool"), fix=fix)
    return Offers(tuple(offered), tuple(left_out), tuple(doubts))


def priced_kind(entry: PoolKind, path: Path, number: int) -> PricedKind:
    """A kind with its price. Raises InputError where there is no such device, or nobody dated its price."""
    kind = device_kind(asked_device(entry.kind), path.parent, files.place(path, "pool", number, "kind"))
    device = library.read_named(kind, Profile, path.parent)[0].device
    price = device.usd_per_hour if entry.usd_per_hour is None else entry.usd_per_hour
    if price is None:
        raise InputError(
            f"it is not known what an hour of a {kind} costs",
            where=files.place(path, "pool", number, "kind"),
            fix=f"usd_per_hour of one GPU there; with --pool: {entry.max or entry.counts[-1]}x{entry.kind}@2.50",
        )
    return PricedKind(entry, kind, device, price)


def stale_price(kind: str, usd_per_hour: float | None, device: Device, today: date) -> Iterator[str]:
    """Yield a line where the price of a kind is its device's, and old; `usd_per_hour`: one's own."""
    dated = device.price_date
    if usd_per_hour is None and dated and (today - date.fromisoformat(dated)).days > STALE_DAYS:
        yield f"the price of {kind} is of {dated}: more than a year old"


def stale_prices(cluster: Cluster, devices: Mapping[str, Device], today: date) -> tuple[str, ...]:
    """A line for each kind of a cluster whose price is its device's, and old."""
    every = (stale_price(each.kind, each.usd_per_hour, devices[each.kind], today) for each in cluster.ranks)
    return tuple(dict.fromkeys(line for lines in every for line in lines))


def limit_refusal(offer: OfferedCluster, limits: Limits) -> str:
    """Which limit of the job a choice exceeds; empty: none."""
    if limits.gpus is not None and offer.cluster.size > limits.gpus:
        return f"more than {plural(limits.gpus, 'GPU')}"
    if limits.usd_per_hour is not None and offer.usd_per_hour > limits.usd_per_hour:
        return f"${offer.usd_per_hour:,.2f} an hour, more than ${limits.usd_per_hour:,.2f}"
    return ""


def kind_offers(pool: Pool, priced: PricedKind, where: str) -> Iterator[OfferedCluster]:
    """Yield the numbers of one kind, on demand and on the spot."""
    entry, kind = priced.entry, priced.kind
    most = entry.per_node or usual_per_node(kind)
    for number in entry.numbers(most):
        gpus = NodeGpus(f"{number}x{kind}")
        try:
            nodes = cluster_of_gpus(gpus, kind, min(number, most), entry.nics)
            cluster = expand_nodes(nodes, kind, priced.device) if isinstance(nodes, NodeCluster) else nodes
        except (InputError, ValueError) as error:
            message = str(error).splitlines()[0].partition(" | ")[0]
            raise InputError(message, where=where, fix="nics of a node, as 8x400Gb") from error
        cluster = with_fields(cluster, storage=pool.storage)
        yield OfferedCluster(at_price(cluster, entry.usd_per_hour), priced.usd_per_hour, entry.region)
        if entry.spot:
            price, hours = entry.spot.usd_per_hour, entry.spot.mean_hours
            yield OfferedCluster(at_price(cluster, price), price, entry.region, hours)


def mixed_offers(pool: Pool, offered: Sequence[OfferedCluster], path: Path) -> list[OfferedCluster]:
    """The choices of several kinds at once, each kind with the most of it that is offered on demand at one place:
    fewer of a kind are seldom better than the others with all of it, and slower.
    """
    most: dict[tuple[str, str], OfferedCluster] = {}
    for each in offered if pool.mixed else ():
        key = each.region, each.kinds[0]
        if each.node_hours is None and (key not in most or each.cluster.size > most[key].cluster.size):
            most[key] = each
    found = list[OfferedCluster]()
    for region in dict.fromkeys(region for region, _ in most):
        own = [each for (where, _), each in most.items() if where == region]
        for count in range(2, len(own) + 1):
            found += [mixed_offer(some, path) for some in combinations(own, count)]
    return found


def mixed_offer(parts: Sequence[OfferedCluster], path: Path) -> OfferedCluster:
    """Several choices of one kind each as one."""
    joined = [JoinedPart(each.cluster, rank_gb_per_s(each.cluster, path)) for each in parts]
    cluster = joined_cluster(joined)
    return OfferedCluster(cluster, sum(each.usd_per_hour for each in parts) / cluster.size, parts[0].region)


def rank_gb_per_s(cluster: Cluster, path: Path) -> float:
    """GB/s of a rank to other nodes: of a single node as is usual with its device, else as its slowest link."""
    if len(cluster.levels) > 1:
        return cluster.levels[-1].gb_per_s
    device = library.read_named(cluster.ranks[0].kind, Profile, path.parent)[0].device
    return device.adapter_gb_per_s or cluster.levels[-1].gb_per_s


def at_price(cluster: Cluster, usd_per_hour: float | None) -> Cluster:
    """The cluster, whose ranks cost so much each; None: what their device does."""
    return with_fields(cluster, ranks=tuple(with_fields(each, usd_per_hour=usd_per_hour) for each in cluster.ranks))
