"""The structs of the plan file: one decision that people can read, verify, diff and launch.

Six nouns (Layout, Group, Assignment, Step, Order, Outcome) say everything that was decided; tasks are derived from them
by `plan/tasks/expand.py` and never stored. `uses` carries what is needed to check, price and build the plan without any
other file.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import msgspec

from planner.plan.embeddings import Embeddings
from planner.plan.task import PASS_PHASES, Phase, TaskName, TaskRef, parse_task_ref
from planner.specs.base import Amount, Count, Index, Indices, LayerCount, Layers, Name, RankCount, Ranks, Share, Spec
from planner.specs.framework.memory_coefficients import PLANNER_RUNTIME_MEMORY, MemoryCoefficients
from planner.specs.framework.own_runs import OwnRun
from planner.specs.framework.software import Framework
from planner.specs.framework.timing_coefficients import TimingCoefficients
from planner.specs.hardware.cluster import Cluster, RankKind
from planner.specs.hardware.device_rates import DeviceRates
from planner.specs.hardware.profile import CollectiveCosts, Device, DeviceShares, ModuleCosts
from planner.specs.job import USUAL_WITHIN, Fix, Limits, Within
from planner.specs.layers import Module
from planner.specs.loader import LoaderFile, LoaderSettings
from planner.specs.model import EdgeInput, ModelTask
from planner.specs.parallelism import (
    DEFAULT_RANK_ORDER,
    Dispatch,
    Dtype,
    FeatureSource,
    GradientDtype,
    Offload,
    OverlappedKind,
    Parallelism,
    Recompute,
    RecomputeName,
    Schedule,
    Sync,
    ZeroStage,
)
from planner.specs.sequence_sharding import SequenceSplit
from planner.specs.tables import JobTables, Table
from planner.specs.workload.items import Size, item_tokens
from planner.specs.workload.length_sources import Repeated
from planner.specs.workload.loss_weighting import LossWeighting

# What a strategy decides: one layout of each module for all batches; the ranks of each; groups of ranks that change
# with every micro-batch; where each sample is computed; the order of passes; the groups and places of embedding tables
Decision = Literal["layouts", "ranks", "groups", "samples", "order", "shares", "tables"]


class PlanOrigin(Spec, omit_defaults=False):
    """Which program, strategy and options made the plan: enough to reproduce it."""

    by: str
    strategy: str
    decided: dict[Decision, str] = {}  # by which strategy; what is left out was given, by a job or by hand
    seed: int = 0
    effort: Annotated[int, msgspec.Meta(ge=1, le=4)] = 2
    batches: Count = 1
    first_row: Index = 0


class SourceFile(Spec):
    """The digest of an input file when the plan was made: another digest means stale inputs, not a worse plan."""

    path: str
    sha256: str


class Prices(Spec):
    """The costs that the plan was priced with: the part of a profile that it needs.

    Where ranks are of several kinds, an entry names its kind: `llm@h100-80gb` (specs/hardware/cluster.py).
    """

    profile: str
    modules: dict[str, ModuleCosts] = {}
    collectives: dict[str, CollectiveCosts] = {}
    rates: dict[str, DeviceRates] = {}  # by kind of rank, where modules' costs follow from them
    timing: TimingCoefficients = TimingCoefficients()
    accounting: MemoryCoefficients = PLANNER_RUNTIME_MEMORY
    spread: Amount = 0.3  # of a step's seconds where rates price it: their 80 % interval is seconds·e^±spread
    own_runs: tuple[OwnRun, ...] = ()  # measured ones that timing and spread are after
    shares: DeviceShares | None = None  # of modules on one device, as they were timed; None: as assumed

    @property
    def has_prices(self) -> bool:
        """Whether there are prices of any module."""
        return bool(self.modules or self.rates)


class Asked(Spec):
    """What a job asked beside its limits and what it fixes: from it and the rest of `uses` the job is solved again."""

    strategy: str = ""  # as the job names it, where another made the plan: best
    layout: Parallelism = Parallelism()  # of every module
    degrees: tuple[RankCount, ...] = ()
    sync: Sync = "micro_batch"
    within: Within = USUAL_WITHIN
    tables: JobTables | None = None


class PlanTask(ModelTask, kw_only=True):
    """One of several tasks, each with a loss (specs/model.py), and its samples: items of each of its modules."""

    samples: Indices


class PlanInputs(Spec, kw_only=True):
    """Everything that is needed to check, price and build the plan."""

    models: dict[Name, Module]
    cluster: Cluster
    devices: dict[str, Device]
    # By edge, `vit>llm`, or by source, `vit`, if it has one edge: item of the source → item or items that read it
    feeds: dict[str, dict[Index, Index | tuple[Index, ...]]] = {}
    dropped: tuple[Index, ...] = ()  # samples of the batch that were too long for the job
    left_out: dict[str, tuple[Index, ...]] = {}  # by module: items whose readers were dropped or had no room for them
    degrees: tuple[RankCount, ...] = ()  # sequence-parallel degrees that the bound is for
    limits: Limits = Limits()
    fix: Fix = Fix()
    asked: Asked = Asked()
    repeated: Repeated | None = None  # epochs over the data set; None: nothing is known to be seen again
    software: Framework = Framework()  # what trains, and what it can launch
    tasks: dict[Name, PlanTask] = {}  # empty: one loss, of the module that feeds no other
    loss: LossWeighting = "token"  # what counts alike in the loss: each target token, or each sample; or in between
    prices: Prices
    sources: dict[str, SourceFile] = {}
    tables: dict[Name, Table] = {}  # embedding tables, which `embeddings` places
    loader: LoaderFile | None = None  # stages of the data loader; None: batches are there when a step begins
    items: dict[str, dict[Index, Size]]  # by module: item (its sample's number) → its size, after rounding

    def tokens(self, module: str, item: int) -> int:
        """Return the tokens of an item in the layers of its module."""
        return item_tokens(self.items[module][item])


class PricedLayouts(Spec, kw_only=True):
    """Layouts beside the plan's own, fields of default value left out, and the objective value that they give."""

    value: Amount
    layouts: dict[Name, Parallelism]


class Outcome(Spec, kw_only=True):
    """The objective value of the plan, and how far the quickest one found can be from the optimum at most."""

    status: Literal["optimal", "feasible", "by_hand"]
    objective: str = "step_seconds"  # a name of costs/objective.py, in whose unit value and bound are
    value: Amount
    bound: Amount
    gap: float  # (value − bound) / bound of the quickest; of what is better when it is more, (bound − value) / value
    bound_by: str
    bound_over: str = ""  # of a bound over the space of layouts: all of which
    bound_digest: str = ""  # of a bound over the space of layouts and what it was found from: an edited one is refused
    effort: str = ""  # work spent, in the strategy's own count
    quickest: PricedLayouts | None = None  # of a search of static layouts, whose plan is the plainest near it
    conventional: PricedLayouts | None = None  # what guides to the software start with, of what fits


class Alternative(Spec):
    """A plan that was tried and not chosen, and the objective value that it would have given."""

    strategy: str
    zero: ZeroStage | None = None  # None, as `sync`: the strategy decides it, and gives no plan
    sync: Sync | None = None
    recompute: RecomputeName | None = None  # None: the strategy decides it, or `layouts` says it
    value: Amount | None = None  # in the unit of the plan's objective; None: there is no such plan
    because: str = ""  # what binds, why the software cannot launch it, why its step takes longer, or is less sure
    layouts: dict[Name, Parallelism] = {}  # of modules whose layout is another one; fields left out have defaults
    launchable: bool = True  # whether the software can launch it; else `because` names its rule
    groups: bool = False  # whether groups of ranks change with every micro-batch, so that `layouts` do not say it all
    too_slow: bool = False  # whether it was not simulated, as `because` says, and may fit
    about: Amount | None = None  # where there is no value: at least, or by an estimate


class Breakdown(Spec):
    """Seconds of a step by use, the mean over ranks; they add up to the step."""

    compute: Amount
    exposed_comm: Amount
    idle: Amount


class Prediction(Spec, kw_only=True):
    """Simulated step time and peak memory of a step."""

    step_seconds: Amount
    spread: Amount  # half-width of the 80 % interval over the value
    peak_memory_gib: Amount  # on the rank that uses the largest share of its allowed memory
    fullest_rank: Index = 0  # that rank; of several, the first
    oom_chance: Share = 0.0  # probability of running out of memory there
    breakdown: Breakdown
    measured_share: Share  # share of the step that is priced by a measurement or by a fit of one


class ExpertPlacement(NamedTuple):
    """Degrees by which a layer's experts are sharded over the ranks of its stage, and how tokens are dispatched."""

    ep: int
    etp: int
    dispatch: Dispatch


class ExpertLayout(Spec):
    """Overrides of a layout for the experts of some layers; None: as the layout."""

    ep: RankCount | None = None
    etp: RankCount | None = None
    dispatch: Dispatch | None = None


class Layout(Parallelism, kw_only=True):
    """How one module is placed on ranks: a parallelism with every field decided, its ranks and its stages.

    `micro_batch` holds where all micro-batches are alike; where groups change, steps say what is in a micro-batch.
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
    rank_order: str = DEFAULT_RANK_ORDER
    sequence_parallel: bool = True
    zero: ZeroStage = 0
    recompute: Recompute | dict[str | int, Recompute] = "none"
    offload: Offload = 0.0
    optimizer_offload: Share = 0.0
    schedule: Schedule | None = None  # where there are stages; None: 1f1b, or interleaved where ranks have chunks
    dispatch: Dispatch = "all_to_all"
    dtype: Dtype = "bf16"
    gradients: GradientDtype = "float32"
    micro_batch: Count = 1
    overlap: tuple[OverlappedKind, ...] = ()
    features: FeatureSource = "computed"
    experts: dict[
        str | int, ExpertLayout
    ] = {}  # ranges of layers → how their experts differ from `ep`, `etp`, `dispatch`

    @property
    def mesh(self) -> dict[str, int]:
        """Sizes of the dims of the rank mesh, slowest-varying first."""
        return {dim: getattr(self, dim) for dim in reversed(self.rank_order.split("-"))}

    @property
    def state_shards(self) -> int:
        """Return the number of ranks over which ZeRO shards states."""
        return self.dp * self.cp

    @property
    def data_ranks(self) -> int:
        """Return the number of ranks at one position of pp and tp, each with other tokens: they reduce a gradient."""
        return self.state_shards * self.replica

    @property
    def default_split(self) -> SequenceSplit:
        """How items are sharded in groups that have no `split` of their own."""
        return SequenceSplit(self.ulysses, self.cp // self.ulysses)

    def recompute_counts(self, layers: Iterable[int]) -> dict[Recompute, int]:
        """Return how many of these layers have each kind of recomputation, in order of first appearance."""
        if not isinstance(self.recompute, dict):
            return {self.recompute: len([*layers])}
        by_layer = {
            layer: how for layer_range, how in self.recompute.items() for layer in Layers.from_file(layer_range)
        }
        return dict(Counter(by_layer.get(layer, "none") for layer in layers))

    @property
    def expert_placement(self) -> ExpertPlacement:
        """The placement of experts of layers in no range of `experts`."""
        return ExpertPlacement(self.ep, self.etp, self.dispatch)

    def with_expert_placement(self, placement: ExpertPlacement) -> "Layout":
        """Return the layout with this placement for the experts of all layers."""
        unchanged = not self.experts and placement == self.expert_placement
        return self if unchanged else msgspec.structs.replace(self, **placement._asdict(), experts={})

    def at_layer(self, layer: int) -> "Layout":
        """Return the layout of one layer: its placement of experts applies to all layers."""
        return self.by_expert_placement((layer,))[0][0]

    def by_expert_placement(self, layers: Iterable[int]) -> "list[tuple[Layout, Layers]]":
        """Group these layers by the placement of their experts; each group comes with the layout that it has."""
        if not self.experts:
            return [(self, Layers(layers))]
        overrides = {layer: own for layer_range, own in self.experts.items() for layer in Layers.from_file(layer_range)}
        by_placement: dict[ExpertPlacement, list[int]] = {}
        for layer in layers:
            own = overrides.get(layer, ExpertLayout())
            placement = ExpertPlacement(own.ep or self.ep, own.etp or self.etp, own.dispatch or self.dispatch)
            by_placement.setdefault(placement, []).append(layer)
        return [(self.with_expert_placement(placement), Layers(own)) for placement, own in by_placement.items()]

    def layer_recompute(self, layer: int) -> Recompute:
        """Return what one layer recomputes in its backward."""
        return next(iter(self.recompute_counts((layer,))))


class Group(Spec):
    """Ranks that work together on the same items."""

    ranks: Ranks
    split: dict[Literal["ulysses", "ring"], RankCount] = {}  # empty: as the layout of the module

    def resolved_split(self, layout: Layout) -> SequenceSplit:
        """Return how the group shards an item of a module with this layout."""
        return SequenceSplit(**self.split) if self.split else layout.default_split


class OffloadedItem(Spec):
    """An item whose share of offloaded activations is another than its layout's."""

    item: Index
    offload: Share | None = None  # share of its activations in host memory; None: as the layout of the module


ItemEntry = Index | OffloadedItem


class SharedDeviceItems(Spec):
    """Items of a group that has a share of its devices' compute (SMs, cores); other groups have the rest."""

    items: tuple[ItemEntry, ...]
    share: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0


MicroBatch = dict[str, tuple[ItemEntry, ...] | dict[str, tuple[ItemEntry, ...] | SharedDeviceItems]]


class Edge(Spec):
    """Outputs of an encoder are resharded into inputs of a decoder, or of another encoder. They replace the embeddings
    of the first tokens of the items that they feed (plan/tokens/encoder_outputs.py), and no loss is taken of these
    tokens. Or cross attention in every layer reads them beside the tokens.

    The groups' splits on both sides determine which rank holds which outputs; `reshard` states the result: zig-zag
    where any of the reader's groups is a ring.
    """

    source: str = msgspec.field(name="from")
    target: str = msgspec.field(name="to")
    by: EdgeInput = "tokens"
    reshard: Literal["contiguous", "zigzag"] = "contiguous"

    @property
    def name(self) -> str:
        """How `uses.feeds` and groups of transfers call the edge: `vit>llm`."""
        return f"{self.source}>{self.target}"


ALL = 10**9  # micro-batches ahead: in front of all of any step


class TaskPlacement(Spec):
    """A task of an encoder, placed before, after or beside another task: `vit.F1` beside `llm.send.F1@2`.

    A pass `beside` a pass or an exchange of another module begins with it, and goes on beside what its ranks do then,
    in the time that this waits for exchanges, until somebody waits for it.

    Without a micro-batch it is a rule for all that no other placement names: `vit.F` before `llm.F-2`, the pass two
    micro-batches before the one that reads it, or before `llm.F0`, all; `vit.B` after `llm.B`, as that makes its
    gradient.
    """

    do: TaskName
    on: str = ""  # the group of the task; left out: all that work on it
    before: TaskName | None = None
    after: TaskName | None = None
    beside: TaskName | None = None

    def __post_init__(self) -> None:
        if sum(map(bool, (self.before, self.after, self.beside))) != 1:
            raise ValueError("say exactly one of before, after, beside | keep one of them")
        if "/" in self.do:
            raise ValueError(f"`{self.do}` names a group, and so does `on` | leave it to `on`")
        moved, anchor = self.moved, self.anchor
        if not self.is_rule and anchor.phase in PASS_PHASES and anchor.micro_batch is None:
            raise ValueError(f"`{anchor}` names no micro-batch | name one, such as {anchor.module}.{anchor.phase}0")
        forward = self.before and str(moved) == f"{moved.module}.F" and str(anchor)[len(anchor.module) + 1 :]
        backward = self.after and (str(moved), str(anchor)) == (f"{moved.module}.B", f"{anchor.module}.B")
        if self.is_rule and not backward and forward not in ("F0", "F", f"F-{anchor.earlier}"):
            rules = f"{moved.module}.F before {anchor.module}.F-1, or {moved.module}.B after {anchor.module}.B"
            raise ValueError(f"`{self.do}` names no micro-batch | name one; a rule for all is {rules}")

    @property
    def is_rule(self) -> bool:
        """Whether it holds in every micro-batch, for passes that no other placement names."""
        return self.moved.phase in PASS_PHASES and self.moved.micro_batch is None

    @property
    def moved(self) -> TaskRef:
        """The task that is placed, with its group."""
        return replace(parse_task_ref(self.do), group=self.on)

    @property
    def anchor(self) -> TaskRef:
        """The task that it is placed before, after or beside."""
        return parse_task_ref(next(each for each in (self.before, self.after, self.beside) if each))

    @property
    def fills(self) -> bool:
        """Whether it has a pass run beside passes of another module, or beside an exchange once a step."""
        anchor, moved = self.anchor, self.moved
        once = anchor.micro_batch is None and anchor.phase in ("sync", "gather")
        of_another = anchor.module != moved.module and (anchor.phase in PASS_PHASES or once)
        return bool(self.beside) and moved.phase in PASS_PHASES and of_another

    @property
    def holds_for_all(self) -> bool:
        """Whether groups that are alike have it alike: it names none, and each looks on its own ranks for the other
        task.
        """
        return self.fills and not self.on and not self.anchor.group


class Step(Spec):
    """The work between two optimizer updates."""

    sync: Sync
    micro_batches: tuple[MicroBatch, ...]
    # module → name of a schedule, or a line of slots for each pipeline rank; `place` → placements
    order: dict[str, str | tuple[str | TaskPlacement, ...]] = {}
    outcome: Outcome | None = None
    prediction: Prediction | None = None

    def order_of(self, module: str) -> str | tuple[str, ...] | None:
        """Return a schedule's name, or lines of slots (plan/schedules/explicit.py); None: not given by the step."""
        order = self.order.get(module)
        return (
            order if order is None or isinstance(order, str) else tuple(each for each in order if isinstance(each, str))
        )

    @property
    def placements(self) -> tuple[TaskPlacement, ...]:
        """The placements of single tasks of encoders, in the file's order."""
        return tuple(each for each in self.placed if not each.is_rule)

    @property
    def placed(self) -> tuple[TaskPlacement, ...]:
        """All placements, rules too, in the file's order."""
        return tuple(each for each in self.order.get("place", ()) if isinstance(each, TaskPlacement))

    def ahead(self, source: str, target: str) -> int:
        """Return how many micro-batches a module's forwards run ahead of those of another that read them."""
        anchors = [each.anchor for each in self.rules(source, "F") if each.anchor.module == target]
        return max((each.earlier if each.micro_batch is None else ALL for each in anchors), default=0)

    def rules(self, module: str, phase: Phase) -> tuple[TaskPlacement, ...]:
        """Return the rules of a module's forwards, or of its backwards, which else run at the end of the step."""
        return tuple(each for each in self.placed if each.is_rule and each.do == f"{module}.{phase}")


class FollowingSteps(Spec, kw_only=True):
    """Further steps are read one by one from a folder: each is planned while earlier ones train."""

    folder: str = msgspec.field(name="from")  # relative to the plan file
    batches: Index | None = None  # further batches of the data; None: unlimited


class Plan(Spec, kw_only=True):
    """A plan file, `planner.plan/1`."""

    FORMAT: ClassVar[str] = "planner.plan/1"
    MADE_FROM: ClassVar[dict[str, str]] = {"planner.job": "planner solve"}  # of which files what makes one
    format: str
    name: str
    made: PlanOrigin
    outcome: Outcome
    prediction: Prediction
    alternatives: tuple[Alternative, ...] = ()
    ranks: Annotated[tuple[RankKind, ...], msgspec.Meta(min_length=1)]
    layouts: Annotated[dict[Name, Layout], msgspec.Meta(min_length=1)]
    groups: dict[Name, Group]
    edges: tuple[Edge, ...] = ()
    embeddings: Embeddings | None = None
    loader: LoaderSettings | None = None  # how each rank is given its batches where `planner run --data` trains
    steps: Annotated[tuple[Step, ...], msgspec.Meta(min_length=1)]
    then: FollowingSteps | None = None
    uses: PlanInputs  # last in the file: it is long

    @property
    def size(self) -> int:
        """The number of ranks."""
        return sum(kind.count for kind in self.ranks)

    def feeds_of(self, edge: Edge) -> dict[int, tuple[int, ...]]:
        """Return, by item of the edge's source, the items of its target that read its outputs."""
        readers_of = self.uses.feeds.get(edge.name, self.uses.feeds.get(edge.source, {}))
        return {item: (readers,) if isinstance(readers, int) else readers for item, readers in readers_of.items()}

    def order_of(self, step: Step, module: str) -> str | tuple[str, ...] | None:
        """Return the order of a module's passes: the step's, else the layout's schedule; None: neither has one."""
        order = step.order_of(module)
        return self.layouts[module].schedule if order is None else order


class Assignment(NamedTuple):
    """Items of one module that one group works on in one micro-batch."""

    module: str
    layers: Layers | None  # None: all layers
    group: str
    entries: tuple[Any, ...]
    share: float = 1.0  # of each device's compute, while one of its tasks runs

    @property
    def items(self) -> tuple[int, ...]:
        """The items by number."""
        return tuple(entry.item if isinstance(entry, OffloadedItem) else entry for entry in self.entries)

    def offload_shares(self, layout: Layout) -> tuple[float, ...]:
        """Return, item by item, the share that is offloaded of a module's activations with this layout, or of those
        that it names.
        """
        shares = (entry.offload if isinstance(entry, OffloadedItem) else None for entry in self.entries)
        return tuple(layout.offload_share if share is None else share for share in shares)


def assignments(plan: Plan, micro_batch: MicroBatch) -> Iterator[Assignment]:
    """Yield the assignments of one micro-batch, whether it names modules or, in a plan of one module, groups."""
    for key, value in micro_batch.items():
        if isinstance(value, dict):
            module, layers = parse_module_key(key)
            for group, content in value.items():
                with_share = content if isinstance(content, SharedDeviceItems) else SharedDeviceItems(items=content)
                yield Assignment(module, layers, group, with_share.items, with_share.share)
        else:
            yield Assignment(next(iter(plan.layouts)), None, key, value)


def parse_module_key(key: str) -> tuple[str, Layers | None]:
    """Parse `vit[0-11]` into its module and its layers."""
    match = re.fullmatch(r"(.+?)\[([\d,+-]+)\]", key)
    if not match:
        return key, None
    try:
        return match[1], Layers.from_file(match[2])  # type: ignore[return-value]
    except ValueError:
        return key, None


def group_name(ranks: Ranks) -> str:
    """Return the default name of a group, made of its ranks: `g0-31`."""
    return "g" + str(ranks).replace(",", "+")


NO_OUTCOME = Outcome(status="feasible", value=0.0, bound=0.0, gap=0.0, bound_by="")
NO_PREDICTION = Prediction(
    step_seconds=0.0,
    spread=0.0,
    peak_memory_gib=0.0,
    breakdown=Breakdown(compute=0.0, exposed_comm=0.0, idle=0.0),
    measured_share=0.0,
)
