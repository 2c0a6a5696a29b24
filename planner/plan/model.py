"""The plan file: one decision that people can read, verify, diff and launch.

Six nouns (Layout, Group, Assignment, Step, Order, Outcome) say everything that was decided; tasks are derived from them
by `plan/expand.py` and never stored. `uses` carries what is needed to check, price and build the plan without any other
file.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import msgspec

from planner.plan.reference import TaskName, TaskRef, parsed
from planner.specs.accounting import BUNDLED, Accounting
from planner.specs.base import Amount, Count, Index, LayerCount, Layers, Name, RankCount, Ranks, Share, Spec
from planner.specs.cluster import Cluster, RankKind
from planner.specs.items import Size, tokens_of
from planner.specs.job import Fix, Limits
from planner.specs.layers import Module
from planner.specs.model import By
from planner.specs.parallelism import (
    RANK_ORDER,
    Dispatch,
    Dtype,
    Gradients,
    Overlapped,
    Parallelism,
    Recompute,
    Schedule,
    Sync,
    Zero,
)
from planner.specs.profile import Collective, Device, ModuleCosts
from planner.specs.rates import Rates
from planner.specs.timing import Timing


class Made(Spec, omit_defaults=False):
    """Who made the plan and how: enough to make it again."""

    by: str
    strategy: str
    seed: int = 0
    effort: Annotated[int, msgspec.Meta(ge=1, le=4)] = 2
    batches: Count = 1
    first_row: Index = 0


class SourceFile(Spec):
    """An input as it was when the plan was made; a changed digest means stale inputs, not a worse plan."""

    path: str
    sha256: str


class Prices(Spec):
    """The costs the plan was priced with: the part of a profile that it needs.

    Where ranks are of several kinds, names say of which: `llm@h100-80gb` (specs/kinds.py).
    """

    profile: str
    modules: dict[str, ModuleCosts] = {}
    collectives: dict[str, Collective] = {}
    rates: dict[str, Rates] = {}  # by kind of rank, where modules' costs follow from them
    timing: Timing = Timing()
    accounting: Accounting = BUNDLED
    spread: Amount = 0.3  # of a step's seconds where rates price it: their 80 % interval is seconds·e^±spread

    @property
    def told(self) -> bool:
        """Whether anything is priced."""
        return bool(self.modules or self.rates)


class Uses(Spec, kw_only=True):
    """Everything a reader needs to check, price and build the plan."""

    models: dict[Name, Module]
    cluster: Cluster
    devices: dict[str, Device]
    # By edge, `vit>llm`, or `vit` where that has no other: item of the one → item, or items, of the other that read it
    feeds: dict[str, dict[Index, Index | tuple[Index, ...]]] = {}
    dropped: tuple[Index, ...] = ()  # rows of the batch that were too long for the job
    left_out: dict[str, tuple[Index, ...]] = {}  # per module: items that only dropped ones read, or none had room for
    degrees: tuple[RankCount, ...] = ()  # the set that the bound holds for
    limits: Limits = Limits()
    fix: Fix = Fix()
    prices: Prices
    sources: dict[str, SourceFile] = {}
    items: dict[str, dict[Index, Size]]  # per module: item (data row) → its size, after rounding

    def tokens(self, module: str, item: int) -> int:
        """Of an item, in the layers of its module."""
        return tokens_of(self.items[module][item])


class Outcome(Spec, kw_only=True):
    """What the plan is worth and how far from the best it can possibly be."""

    status: Literal["optimal", "feasible", "by_hand"]
    objective: str = "step_seconds"  # a name of costs/objective.py, in whose unit value and bound are
    value: Amount
    bound: Amount
    gap: float  # (value − bound) / bound; of what is better when it is more, (bound − value) / value
    bound_by: str
    effort: str = ""  # work spent, in the strategy's own count


class Instead(Spec):
    """Another way that was tried, and what it would have given."""

    strategy: str
    zero: Zero
    sync: Sync
    value: Amount | None = None  # in the unit of the plan's objective; None: there is no such plan
    because: str = ""  # what binds, or why it takes longer
    layouts: dict[Name, Parallelism] = {}  # where ways differ in how a module is spread; the rest as usual


class Breakdown(Spec):
    """Seconds of the mean rank; they add up to the step."""

    compute: Amount
    exposed_comm: Amount
    idle: Amount


class Prediction(Spec, kw_only=True):
    step_seconds: Amount
    spread: Amount  # half-width of the 80 % interval over the value
    peak_memory_gib: Amount  # on the rank that uses most of what it may hold
    fullest_rank: Index = 0  # that rank, the first of its like
    oom_chance: Share = 0.0  # of running out of memory there
    breakdown: Breakdown
    measured_share: Share  # of the step, priced by a measurement or by a fit of one


class Placement(NamedTuple):
    """How the experts of a layer lie over the ranks of its stage, and how tokens come to them."""

    ep: int
    etp: int
    dispatch: Dispatch


class ExpertLayout(Spec):
    """What is otherwise for the experts of some layers; what is not said is as the layout has it."""

    ep: RankCount | None = None
    etp: RankCount | None = None
    dispatch: Dispatch | None = None


class Layout(Parallelism, kw_only=True):
    """How one module is spread over ranks: a parallelism that leaves nothing open, its ranks and its stages.

    `micro_batch` is of layouts that are the same for all micro-batches; where groups change, they have what steps say.
    """

    ranks: Ranks
    stages: tuple[Layers, ...] = ()  # layers of each pipeline stage, or of each chunk; empty: one stage holds all
    tp: RankCount = 1
    cp: RankCount = 1
    ulysses: RankCount = 1
    pp: RankCount = 1
    vpp: LayerCount = 1
    ep: RankCount = 1
    etp: RankCount = 1
    dp: RankCount = 1
    replica: RankCount = 1
    rank_order: str = RANK_ORDER
    sequence_parallel: bool = True
    zero: Zero = 0
    recompute: Recompute | dict[str | int, Recompute] = "none"
    offload: Share = 0.0
    schedule: Schedule | None = None  # where there are stages; None: 1f1b, or interleaved where ranks have chunks
    dispatch: Dispatch = "all_to_all"
    dtype: Dtype = "bf16"
    gradients: Gradients = "float32"
    micro_batch: Count = 1
    overlap: tuple[Overlapped, ...] = ()
    experts: dict[str | int, ExpertLayout] = {}  # of ranges of layers, where they lie otherwise

    @property
    def mesh(self) -> dict[str, int]:
        """Dims of the ranks and their sizes, slowest first."""
        return {dim: getattr(self, dim) for dim in reversed(self.rank_order.split("-"))}

    @property
    def sharding(self) -> int:
        """Ranks that share states among each other, as the ZeRO stage says."""
        return self.dp * self.cp

    @property
    def data_ranks(self) -> int:
        """Ranks of one position of pp and tp, each with data of its own: all that share a gradient."""
        return self.sharding * self.replica

    @property
    def split(self) -> "Split":
        """How items are split where their group does not say it."""
        return Split(self.ulysses, self.cp // self.ulysses)

    def recomputes(self, layers: Iterable[int]) -> dict[Recompute, int]:
        """How many of these layers make the same again, by what that is, in the order in which they come."""
        if not isinstance(self.recompute, dict):
            return {self.recompute: len([*layers])}
        said = {layer: how for named, how in self.recompute.items() for layer in Layers.from_file(named)}
        return dict(Counter(said.get(layer, "none") for layer in layers))

    @property
    def placement(self) -> Placement:
        """Of the experts of all layers that are named in no range."""
        return Placement(self.ep, self.etp, self.dispatch)

    def placed(self, placement: Placement) -> "Layout":
        """The same, in which the experts of all layers lie so."""
        same = not self.experts and placement == self.placement
        return self if same else msgspec.structs.replace(self, **placement._asdict(), experts={})

    def at(self, layer: int) -> "Layout":
        """As it is for one layer: with what is said of its experts said of all."""
        return self.by_experts((layer,))[0][0]

    def by_experts(self, layers: Iterable[int]) -> "list[tuple[Layout, Layers]]":
        """These layers, parted by how their experts lie, each part with the layout as it is for them."""
        if not self.experts:
            return [(self, Layers(layers))]
        said = {layer: own for named, own in self.experts.items() for layer in Layers.from_file(named)}
        found: dict[Placement, list[int]] = {}
        for layer in layers:
            own = said.get(layer, ExpertLayout())
            placement = Placement(own.ep or self.ep, own.etp or self.etp, own.dispatch or self.dispatch)
            found.setdefault(placement, []).append(layer)
        return [(self.placed(placement), Layers(own)) for placement, own in found.items()]

    def recompute_of(self, layer: int) -> Recompute:
        """What a layer makes again in its backward."""
        return next(iter(self.recomputes((layer,))))


class Split(NamedTuple):
    """How a group shares out each item: heads within sub-groups of consecutive ranks, tokens around a ring of these."""

    ulysses: int = 1  # ranks in a sub-group
    ring: int = 1  # sub-groups

    @property
    def degree(self) -> int:
        """Over how many ranks an item's tokens are spread."""
        return self.ulysses * self.ring

    def blocks(self, ranks: Sequence[int]) -> list[Sequence[int]]:
        """The sub-groups."""
        return [ranks[first : first + self.ulysses] for first in range(0, len(ranks), self.ulysses)]

    def rings(self, ranks: Sequence[int]) -> list[Sequence[int]]:
        """Ranks in the same place of each sub-group."""
        return [ranks[place :: self.ulysses] for place in range(self.ulysses)]


class Group(Spec):
    """Ranks working together on items."""

    ranks: Ranks
    split: dict[Literal["ulysses", "ring"], RankCount] = {}  # empty: as the layout of the module has it

    def split_in(self, layout: Layout) -> Split:
        """How an item of a module with this layout is split over the ranks."""
        return Split(**self.split) if self.split else layout.split


class Piece(Spec):
    """An item with more to say about it than its number."""

    item: Index
    offload: Share | None = None  # of its activations, to host memory; None: as the layout of the module has it


Entry = Index | Piece


class Shared(Spec):
    """Items on a group that has a share of its devices' compute (SMs, cores), beside others that have theirs."""

    items: tuple[Entry, ...]
    share: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0


Row = dict[str, tuple[Entry, ...] | dict[str, tuple[Entry, ...] | Shared]]


class Edge(Spec):
    """Outputs of an encoder are resharded into inputs of a decoder, or of another encoder: they stand in place of the
    embeddings of the first tokens of the items they feed (plan/feeding.py), and nothing predicts these tokens. Or they
    are beside the tokens of these items, and cross attention in every layer reads them.

    Where rows lie follows from the groups' splits on both sides; `reshard` says what comes of it: zig-zag where any of
    the reader's groups is a ring.
    """

    source: str = msgspec.field(name="from")
    target: str = msgspec.field(name="to")
    by: By = "tokens"
    reshard: Literal["contiguous", "zigzag"] = "contiguous"

    @property
    def name(self) -> str:
        return f"{self.source}>{self.target}"


class Place(Spec):
    """A task of a module that feeds others, put before, after or beside another: `vit.F1` beside `llm.send.F1@2`."""

    do: TaskName
    on: str  # the group of what is done
    before: TaskName | None = None
    after: TaskName | None = None
    beside: TaskName | None = None

    def __post_init__(self) -> None:
        if sum(map(bool, (self.before, self.after, self.beside))) != 1:
            raise ValueError("say exactly one of before, after, beside | keep one of them")
        if "/" in self.do:
            raise ValueError(f"`{self.do}` names a group, and so does `on` | leave it to `on`")

    @property
    def moved(self) -> TaskRef:
        return replace(parsed(self.do), group=self.on)

    @property
    def anchor(self) -> TaskRef:
        return parsed(next(each for each in (self.before, self.after, self.beside) if each))


class Step(Spec):
    """What happens between two optimizer updates."""

    sync: Sync
    micro_batches: tuple[Row, ...]
    # module → generator of its stages' order, or a line of slots for each pipeline rank; `place` → placements
    order: dict[str, str | tuple[str | Place, ...]] = {}
    outcome: Outcome | None = None
    prediction: Prediction | None = None

    def order_of(self, module: str) -> str | tuple[str, ...] | None:
        """A generator's name, or lines of slots (plan/schedules/explicit.py); None where the plan does not say."""
        order = self.order.get(module)
        return (
            order if order is None or isinstance(order, str) else tuple(each for each in order if isinstance(each, str))
        )

    @property
    def places(self) -> tuple[Place, ...]:
        return tuple(place for place in self.order.get("place", ()) if isinstance(place, Place))


class Then(Spec, kw_only=True):
    """Further steps come one by one from a folder: each is planned while earlier ones train."""

    folder: str = msgspec.field(name="from")  # from where the plan lies
    batches: Index | None = None  # that follow in the data; None: it has no end


class Plan(Spec, kw_only=True):
    """`planner.plan/1`."""

    FORMAT: ClassVar[str] = "planner.plan/1"
    format: str
    name: str
    made: Made
    outcome: Outcome
    prediction: Prediction
    instead: tuple[Instead, ...] = ()
    ranks: Annotated[tuple[RankKind, ...], msgspec.Meta(min_length=1)]
    layouts: Annotated[dict[Name, Layout], msgspec.Meta(min_length=1)]
    groups: dict[Name, Group]
    edges: tuple[Edge, ...] = ()
    steps: Annotated[tuple[Step, ...], msgspec.Meta(min_length=1)]
    then: Then | None = None
    uses: Uses  # last in the file: it is long

    @property
    def size(self) -> int:
        """Ranks in all."""
        return sum(kind.count for kind in self.ranks)

    def feeds_of(self, edge: Edge) -> dict[int, tuple[int, ...]]:
        """By item of the edge's source, the items of its target that read its outputs."""
        said = self.uses.feeds.get(edge.name, self.uses.feeds.get(edge.source, {}))
        return {item: (fed,) if isinstance(fed, int) else fed for item, fed in said.items()}

    def order_of(self, step: Step, module: str) -> str | tuple[str, ...] | None:
        """Of a module's passes: what the step says, else what the layout says; None where neither does."""
        order = step.order_of(module)
        return self.layouts[module].schedule if order is None else order


class Assignment(NamedTuple):
    """Items of one module that one group works on in one micro-batch."""

    module: str
    layers: Layers | None  # None: all of them
    group: str
    entries: tuple[Any, ...]
    share: float = 1.0  # of each device's compute, while a task of it runs

    @property
    def items(self) -> tuple[int, ...]:
        return tuple(entry.item if isinstance(entry, Piece) else entry for entry in self.entries)

    def offload_in(self, layout: Layout) -> tuple[float, ...]:
        """Of each item's activations, the share that goes to host memory, in a module with this layout."""
        said = (entry.offload if isinstance(entry, Piece) else None for entry in self.entries)
        return tuple(layout.offload if share is None else share for share in said)


def assignments(plan: Plan, row: Row) -> Iterator[Assignment]:
    """The assignments of one row, whether it names modules or, with a single module, groups directly."""
    for key, value in row.items():
        if isinstance(value, dict):
            module, layers = split_key(key)
            for group, said in value.items():
                held = said if isinstance(said, Shared) else Shared(items=said)
                yield Assignment(module, layers, group, held.items, held.share)
        else:
            yield Assignment(next(iter(plan.layouts)), None, key, value)


def split_key(key: str) -> tuple[str, Layers | None]:
    """`vit[0-11]` as its module and its layers."""
    match = re.fullmatch(r"(.+?)\[([\d,+-]+)\]", key)
    if not match:
        return key, None
    try:
        return match[1], Layers.from_file(match[2])  # type: ignore[return-value]
    except ValueError:
        return key, None


def group_name(ranks: Ranks) -> str:
    """The name a group gets from its ranks: `g0-31`."""
    return "g" + str(ranks).replace(",", "+")
