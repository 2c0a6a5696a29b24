"""Prices tasks for solver, verifier and simulator alike, from what a plan carries in `uses`.

A task takes as long as on the device kind of its ranks; on ranks of several kinds, which share it equally and wait for
each other, as long as on the slowest. Communication is priced by what is exposed of it next to concurrent compute, with
the same formula as in the closed form (network/replica_exchange.py). So is a pass with a share of its devices next to
concurrent passes (compute/contention.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import hypot

from planner.costs.compute.assumed_rates import complete_rates, step_spread
from planner.costs.compute.contention import ASSUMED_SHARES, DeviceUse, demand_density
from planner.costs.compute.fit_lines import require_measured_recompute
from planner.costs.contrastive_loss import loss_cost
from planner.costs.cost_lines import NO_COST, Cost, CostLine, least_trusted, slowest_cost, total_cost
from planner.costs.feature_reads import feature_gb_per_s, kept_feature_line
from planner.costs.fit_pricing import FitPricing
from planner.costs.layer_pass import (
    NO_READS,
    CrossReads,
    LayerPass,
    counts_by_placement,
    mean_cross_reads,
    reads_by_item,
    reads_of,
    recompute_counts,
)
from planner.costs.layout_columns import columns_of
from planner.costs.machine_model import MachineModel, machine_of
from planner.costs.memory.offload import Offloading, offloading_of
from planner.costs.network.replica_exchange import exposed_part
from planner.costs.network_model import group_of_ranks, network_of
from planner.costs.rate_pricing import RatePricing
from planner.costs.shared_prices import ModulePricing, SendRoute, SharedPrices
from planner.costs.step.expert_ratio import load_spread
from planner.costs.step.step_constant import modules_with_constant
from planner.errors import InputError
from planner.plan.feature_storage import computed_share
from planner.plan.gradient_flow import GradientFlow, gradient_flows
from planner.plan.plan_file import Layout, Plan, Prices, assignments
from planner.plan.task import NO_RANKS, PASS_PHASES, Task
from planner.plan.tasks.concurrent_passes import ConcurrentGroups
from planner.plan.tasks.task_table import GroupWork
from planner.plan.tokens.encoder_outputs import ItemKey, reader_of
from planner.plan.tokens.resharding import is_between_modules
from planner.specs.base import Layers, Ranks
from planner.specs.hardware.cluster import (
    Cluster,
    device_of_rank,
    entries_of_kind,
    entry_of_kind,
    nearest_level,
    rank_kinds,
)
from planner.specs.hardware.profile import Device, DeviceShares
from planner.specs.layers import Module
from planner.specs.sequence_sharding import SequenceSplit
from planner.specs.shapes import DTYPE_BYTES, token_output_bytes
from planner.specs.workload.length_sources import Repeated


@dataclass(frozen=True, slots=True)
class Pricing:
    """Prices of tasks; cost lines are computed once for each pass of a module on a group, for each kind of its
    devices.
    """

    models: dict[str, Module]
    layouts: dict[str, Layout]
    cluster: Cluster
    prices: Prices
    devices: dict[str, Device]
    mean_reads: dict[str, CrossReads] = field(default_factory=dict)  # of cross attention, by module that has it
    reads: dict[ItemKey, int] = field(default_factory=dict)  # outputs that cross attention reads, by item
    edge_copies: dict[str, int] = field(default_factory=dict)  # by edge, ranks that each read all outputs of an item
    flows: dict[str, GradientFlow] = field(default_factory=dict)  # by module; left out: gradients go through its layers
    repeated: Repeated | None = None  # epochs over the data set
    shared: SharedPrices = field(default_factory=SharedPrices)  # with other plans of the same job
    known_pricings: dict[tuple[str, str], ModulePricing] = field(default_factory=dict)
    parts: dict[tuple[object, ...], LayerPass] = field(default_factory=dict)
    lines: dict[tuple[int, str], tuple[LayerPass, CostLine, Cost]] = field(default_factory=dict)  # by a part's id
    weight_lines: dict[tuple[LayerPass, str], CostLine] = field(default_factory=dict)
    offloadings: dict[tuple[str, str, Layers], Offloading] = field(default_factory=dict)
    pass_costs: dict[tuple[int, tuple[int, ...]], Cost] = field(default_factory=dict)  # by the id of a line of `lines`
    memory_lines: dict[tuple[LayerPass, str], tuple[CostLine, CostLine] | None] = field(default_factory=dict)

    @property
    def waited_shares(self) -> tuple[float, float]:
        """Of an exchange beside compute of another module, the share of the shorter that is waited for: where a plan
        says that they run so, and where they would by themselves. On a CPU both use the same cores.
        """
        timing, cuda = self.prices.timing, all(device.kind == "cuda" for device in self.devices.values())
        waited = timing.overlapped if cuda else 1.0
        return waited, waited if timing.overlaps_replicas else 1.0

    def price(self, task: Task, concurrent: tuple[ConcurrentGroups, ...] = ()) -> Cost:
        """Seconds of a task next to concurrent passes, with source and spread."""
        if task.phase == "recv":  # its send has the seconds
            return NO_COST
        if task.share == 1 and task.phase in PASS_PHASES:  # cached by its line and lengths
            return self.pass_cost(task)
        return self.new_price(task, concurrent)

    def send_key(self, task: Task) -> tuple[object, ...]:
        """All of a send that its price depends on but its tokens: of one between stages, or of groups alike, there are
        many.
        """
        return "send", task.module, reader_of(task)[0], task.degree, len(task.ranks), self.route(task)

    def kind_key(self, kind: Task, divided: bool) -> tuple[object, ...]:
        """All of a pass of whole devices, or a transfer, that its price depends on but its items: most stages of a
        pipeline, and groups alike, have it in common. `divided`: ranks may share whole parts of items.
        """
        if kind.phase in ("send", "recv"):
            return self.send_key(kind) if kind.phase == "send" else (kind.phase,)
        if self.models[kind.module].cross_attention_width or (divided and kind.degree > 1):
            return kind.phase, kind.module, kind.layers, kind.ranks, kind.split
        part = self.layer_pass(kind)
        lines = tuple((each, self.pass_line(part, each)) for each in self.device_kinds(kind.ranks))
        return kind.phase, part._replace(ranks=NO_RANKS), lines

    def work_key(self, work: GroupWork) -> tuple[object, ...]:
        """All of a group's work in a micro-batch that prices depend on."""
        return work.sizes, work.parts, work.items if self.reads else ()

    def new_price(self, task: Task, concurrent: tuple[ConcurrentGroups, ...]) -> Cost:
        """Compute the seconds of a task that `price` caches."""
        if task.phase in PASS_PHASES:
            return self.shared_pass_cost(task, concurrent)
        if task.phase in ("gather", "sync"):
            return slowest_cost(self.exposed_cost(task, basis, concurrent) for basis in self.rank_pricings(task))
        if task.phase == "update":
            with_step = task.module in modules_with_constant(self.models, self.layouts, self.flows)
            return slowest_cost(basis.update_cost(task, with_step) for basis in self.rank_pricings(task))
        if task.phase == "loss":
            return slowest_cost(loss_cost(basis, task, self.layouts[task.module]) for basis in self.rank_pricings(task))
        return self.send_cost(task) if task.phase == "send" else NO_COST

    def pass_cost(self, task: Task, embedding_head: bool = True) -> Cost:
        """A forward or backward pass: compute, and the communication of its group inside it. I and W add up to the
        backward.

        `embedding_head`: with all that is outside the layers, counted behind the last.
        """
        if not task.tokens:
            return NO_COST
        task = self.slowest_share(task)
        part, lengths = self.layer_pass(task, embedding_head), task.lengths
        costs = {kind: self.kind_pass_cost(part, kind, lengths) for kind in self.device_kinds(task.ranks)}
        kind = max(costs, key=lambda each: costs[each].value) if len(costs) > 1 else next(iter(costs))
        if task.phase in ("F", "B"):
            return costs[kind]
        weights, both = self.weight_line(part, kind).seconds(task.lengths), costs[kind]
        if task.phase == "W":
            return Cost(weights, "analytic", both.spread, host=both.host / 2)
        return Cost(both.value - weights, "analytic", both.spread, both.comm, both.host / 2)

    def slowest_share(self, task: Task) -> Task:
        """A pass as its slowest rank has it, where ranks share whole parts of items; else itself."""
        shares = task.shares()
        if shares is None:
            return task
        return max(map(task.of_share, dict.fromkeys(shares)), key=lambda each: self.pass_cost(each).value)

    def shared_pass_cost(self, task: Task, concurrent: tuple[ConcurrentGroups, ...]) -> Cost:
        """A pass with a share of its devices: compute slows down, communication takes as long as on whole devices."""
        whole = self.pass_cost(task)
        densest = [
            max((self.device_use(each) for each in passes), key=demand_density)
            for groups in concurrent
            for passes in groups
        ]
        use, shares, lengths = self.device_use(task), self.device_shares, self.slowest_share(task).lengths
        alone = use._replace(share=1.0).seconds((), lengths)
        compute = (whole.value - whole.comm) * (use.seconds(densest, lengths) / alone if alone else 1.0)
        source = least_trusted([whole.source, shares.source])
        return Cost(compute + whole.comm, source, whole.spread + shares.spread, whole.comm, whole.host)

    @property
    def device_shares(self) -> DeviceShares:
        """What modules take that share a device: as timed, else as assumed."""
        return self.prices.shares or ASSUMED_SHARES

    def device_use(self, task: Task) -> DeviceUse:
        """What a pass (of a backward in two, both halves) asks of its devices; of several kinds, of the slowest."""
        task = self.slowest_share(task)
        part, shares = self.layer_pass(task), self.device_shares
        each = {kind: self.kind_pass_cost(part, kind, task.lengths) for kind in self.device_kinds(task.ranks)}
        kind = max(each, key=lambda kind: each[kind].value)
        lines, launches = (
            self.module_pricing(task.module, kind).memory_lines(part),
            self.pass_line(part, kind)[0].launches,
        )
        waits = sum(launch.wait_seconds(task.lengths) for launch in launches)
        seconds = max(0.0, each[kind].value - each[kind].comm - waits)
        if task.module in shares.memory_shares:
            memory_bound = streamed = shares.memory_shares[task.module] * seconds
        elif lines is None:
            memory_bound, streamed = 0.0, None
        else:
            memory_bound, streamed = (line.seconds(task.lengths) for line in lines)
        memory_bound = min(memory_bound, seconds)
        return DeviceUse(task.share, seconds - memory_bound, memory_bound, streamed, shares, launches)

    def layer_pass(self, task: Task, embedding_head: bool = True) -> LayerPass:
        """The layers that a task's pass goes through, with their group and recomputation, cached; `embedding_head`: and
        with what is outside the layers.
        """
        forward, reads = task.phase == "F", self.cross_reads(task)
        key = task.module, task.layers, task.ranks, task.degree, task.ring, forward, embedding_head, reads
        if key not in self.parts:
            part = self.new_layer_pass(task)
            self.parts[key] = part if embedding_head else part._replace(embedding_head=False)
        return self.parts[key]

    def new_layer_pass(self, task: Task) -> LayerPass:
        """Compute what `layer_pass` caches."""
        layout, module, layers = self.layouts[task.module], self.models[task.module], task.layers
        recompute, by_placement = recompute_counts(layout, layers), counts_by_placement(layout, module, layers)
        ends, forward, reads = layers[-1] == module.layers - 1, task.phase == "F", self.cross_reads(task)
        if not forward and not self.through_layers(task.module):  # the projector's backward alone
            return LayerPass(task.module, 0, ends, task.ranks, task.split, forward)
        part = LayerPass(
            task.module, len(layers), ends, task.ranks, task.split, forward, recompute, by_placement, reads
        )
        return part if self.through_layers(task.module) else part._replace(kept=False)

    def through_layers(self, module: str) -> bool:
        """Whether gradients go through a module's layers."""
        return module not in self.flows or self.flows[module].through_layers

    def cross_reads(self, task: Task) -> CrossReads:
        """What cross attention reads for the items of a task; where nothing is known of them, the module's mean."""
        if not self.models[task.module].cross_attention_width:
            return NO_READS
        read = [self.reads.get((task.module, item)) for item in task.items]
        if None in read or len(read) < len(task.sizes):
            return self.mean_reads.get(task.module, NO_READS)
        return reads_of(zip(task.sizes, (each or 0 for each in read), strict=True))

    def kind_pass_cost(self, part: LayerPass, kind: str, lengths: tuple[int, ...]) -> Cost:
        """A pass over documents of these lengths, on ranks of one device kind; cached by its line, which stages of as
        many layers on groups alike have in common.
        """
        line, _ = self.pass_line(part, kind)
        key = id(line), lengths
        if key not in self.pass_costs:
            self.pass_costs[key] = self.new_pass_cost(part, kind, lengths)
        return self.pass_costs[key]

    def new_pass_cost(self, part: LayerPass, kind: str, lengths: tuple[int, ...]) -> Cost:
        """Compute what `kind_pass_cost` caches."""
        line, source = self.pass_line(part, kind)
        comm, basis = line.comm_seconds(lengths), self.module_pricing(part.module, kind)
        compute = basis.compute_cost(line.seconds(lengths) - comm)
        found = total_cost(compute, Cost(comm, source.source, source.spread, comm))
        queues = self.device_shares.launch_threads == 1  # with a thread of its own, it waits for no other's launches
        return replace(found, host=line.host_seconds if queues else 0.0)

    def module_line(self, module: str, ranks: Ranks, split: SequenceSplit, forward: bool) -> tuple[CostLine, Cost]:
        """The cost line of a pass over a whole module on a group of one device kind, and a cost with the
        communication's source.
        """
        kind, layers = device_of_rank(self.cluster, ranks[0]), range(self.models[module].layers)
        if not forward and not self.through_layers(module):  # the projector's backward alone, or none
            line, source = self.pass_line(LayerPass(module, 0, True, ranks, split, forward), kind)
            return (line if self.flows[module].has_backward() else CostLine()), source
        layout = self.layouts[module]
        recompute = recompute_counts(layout, layers)
        by_placement = counts_by_placement(layout, self.models[module], layers)
        reads = self.mean_reads.get(module, NO_READS)
        return self.pass_line(
            LayerPass(module, len(layers), True, ranks, split, forward, recompute, by_placement, reads), kind
        )

    def pass_line(self, part: LayerPass, kind: str) -> tuple[CostLine, Cost]:
        """The cost line of a pass on ranks of one device kind, cached."""
        key = id(part), kind  # hashing its many ranks would take longer; the entry keeps it alive, and so its id valid
        if key not in self.lines:
            line, source = self.module_pricing(part.module, kind).pass_line(part)
            self.lines[key] = part, self.with_kept_features(part, kind, line), source
        return self.lines[key][1:]

    def with_kept_features(self, part: LayerPass, kind: str, computed: CostLine) -> CostLine:
        """The cost line of a pass in the mean of all epochs, where most of them read what a forward makes."""
        layout, module = self.layouts[part.module], self.models[part.module]
        if layout.features == "computed" or not part.forward:
            return computed
        rate = feature_gb_per_s(layout, self.cluster, self.devices[kind])
        return kept_feature_line(computed, module, layout, computed_share(layout, self.repeated), rate)

    def weight_line(self, part: LayerPass, kind: str) -> CostLine:
        """The cost line of the gradients of weights on ranks of one device kind, cached."""
        if (part, kind) not in self.weight_lines:
            self.weight_lines[part, kind] = self.module_pricing(part.module, kind).weight_gradient_line(part)
        return self.weight_lines[part, kind]

    def exposed_cost(self, task: Task, basis: ModulePricing, concurrent: tuple[ConcurrentGroups, ...]) -> Cost:
        """The exposed part of a collective among replicas: in a micro-batch, next to the slowest group's passes; once a
        step, next to the passes of the group that has least. Only layers hide communication: nothing is left to gather
        behind the last of them, and nothing yet to reduce.
        """
        layout, once = self.layouts[task.module], task.micro_batch is None
        if layout.zero == 3 and layout.pp > 1 and basis.machine.accounting.keeps_gathered and task.micro_batch:
            return NO_COST  # parameters stay gathered, and gradients whole, from the first micro-batch on
        pick, hiding = min if once else max, self.hiding_passes(task, basis, concurrent)
        compute = [
            pick(sum(self.pass_cost(each, False).value for each in passes) for passes in groups) for groups in hiding
        ]
        return self.exposed_behind(task, basis, compute or [0.0])

    def exposed_behind(self, task: Task, basis: ModulePricing, compute: Sequence[float]) -> Cost:
        """The exposed part of a collective that runs once next to each of these seconds of compute."""
        exchange, source = basis.replica_exchange(task)
        once, uncovered = task.micro_batch is None, 1.0 / len(task.layers)
        whole = (
            exchange.gather if task.phase == "gather" else exchange.reduce + (0.0 if once else exchange.backward_gather)
        )
        own, machine = whole * basis.straggler_factor, basis.machine  # passes have the straggler factor already
        window = machine.replica_window(task.phase == "gather", once)
        seconds = sum(float(exposed_part(own, each, window, uncovered)) for each in compute)
        return Cost(seconds, source.source, source.spread, seconds)

    def exposed_seconds(self, task: Task, compute: float) -> float:
        """Exposed seconds of a collective next to `compute` seconds of compute."""
        return max(self.exposed_behind(task, basis, [compute]).value for basis in self.rank_pricings(task))

    def beside_every_micro_batch(self, task: Task) -> bool:
        """Whether what runs once a step runs beside all micro-batches: where gradients are reduced as they come
        (ZeRO-2).
        """
        held = (basis.machine.accounting.holds_gradients for basis in self.rank_pricings(task))
        return task.phase == "sync" and self.layouts[task.module].zero == 2 and not all(held)

    def hiding_passes(
        self, task: Task, basis: ModulePricing, concurrent: tuple[ConcurrentGroups, ...]
    ) -> tuple[ConcurrentGroups, ...]:
        """The micro-batches whose passes can hide a collective: of one that runs once a step the last, or all of them
        where gradients are reduced as they come (ZeRO-2).
        """
        if task.micro_batch is not None:
            return concurrent
        layout = self.layouts[task.module]
        every = layout.zero == 2 and not basis.machine.accounting.holds_gradients
        if task.phase == "gather":
            return concurrent[:1]
        return concurrent if every else concurrent[-1:]

    def send_cost(self, task: Task) -> Cost:
        """A send of activations or their gradients from stage to stage, or over an edge between modules (`v0>llm`)."""
        layout, route, whole = self.layouts[task.module], self.route(task), self.sent_bytes(task)
        if is_between_modules(task):
            size = resharded_bytes(route, whole)
        else:  # without sequence parallelism, each tp rank sends all
            size = whole / (len(task.ranks) if layout.sequence_parallel else task.degree)
        if is_between_modules(task) and not size:
            return NO_COST  # nothing leaves its rank
        return slowest_cost(self.module_pricing(task.module, kind).send_cost(size, route.group) for kind in route.kinds)

    def route(self, task: Task) -> SendRoute:
        """The way of a send, cached: there are many of each."""
        key = task.module, task.ranks, task.peers, is_between_modules(task)
        if key not in self.shared.routes:
            self.shared.routes[key] = self.new_route(task)
        return self.shared.routes[key]

    def new_route(self, task: Task) -> SendRoute:
        """Compute what `route` caches."""
        if is_between_modules(task):
            pair = farthest_pair(self.cluster, task.ranks, task.peers)
        else:
            pair = task.ranks[0], task.peers[0] if task.peers else task.ranks[-1]
        own = self.device_kinds(self.layouts[task.module].ranks)
        receiving = (kind for kind in self.device_kinds(Ranks(pair[1:])) if kind in own)
        kinds = dict.fromkeys((*self.device_kinds(task.ranks), *receiving))  # the slower side is critical
        group = group_of_ranks(self.cluster, Ranks(sorted({*pair})))
        return SendRoute(len(task.ranks), len(task.peers), len({*task.ranks} & {*task.peers}), group, tuple(kinds))

    def sent_bytes(self, task: Task) -> float:
        """Bytes of all that a send carries."""
        return task.tokens * self.send_width(task) * DTYPE_BYTES[self.layouts[task.module].dtype]

    def send_width(self, task: Task) -> float:
        """Elements per token of a send: hidden ones between stages, an encoder's outputs on an edge."""
        module = self.models[task.module]
        if not is_between_modules(task):
            return float(module.hidden)
        edge = f"{task.module}>{reader_of(task)[0]}"
        dtype = self.layouts[task.module].dtype
        return token_output_bytes(module, dtype) / DTYPE_BYTES[dtype] * self.edge_copies.get(edge, 1)

    def device_kinds(self, ranks: Ranks) -> tuple[str, ...]:
        """The device kinds of these ranks, each once."""
        if len(self.cluster.ranks) == 1:
            return (self.cluster.ranks[0].kind,)
        return tuple(dict.fromkeys(device_of_rank(self.cluster, rank) for rank in ranks))

    def rank_pricings(self, task: Task) -> list[ModulePricing]:
        """What prices the task's module on each device kind of its ranks."""
        return [self.module_pricing(task.module, kind) for kind in self.device_kinds(task.ranks)]

    def module_pricing(self, module: str, kind: str) -> ModulePricing:
        """What prices a module on a device kind. Raises InputError where the plan has no prices for it."""
        if (module, kind) not in self.known_pricings:
            layout, reads = self.layouts[module], self.mean_reads.get(module, NO_READS)
            self.known_pricings[module, kind] = self.shared.of(
                (module, kind), layout, reads, lambda: self.new_module_pricing(module, kind)
            )
        return self.known_pricings[module, kind]

    def new_module_pricing(self, module: str, kind: str) -> ModulePricing:
        """Prices by fits where the plan has them for the module, else by rates."""
        costs, machine = entry_of_kind(self.prices.modules, module, kind), self.machine(kind)
        if costs:
            return FitPricing(self.models[module], self.layouts[module], self.cluster, machine, costs)
        if kind not in self.prices.rates:
            several = f" on {kind}" if len(rank_kinds(self.cluster)) > 1 else ""
            message, fix = f"the plan has no prices for `{module}`{several}", "add them, or solve its job again"
            raise InputError(message, where="uses.prices.modules", fix=fix)
        spec, layout, reads = self.models[module], self.layouts[module], self.mean_reads.get(module, NO_READS)
        own = step_spread(self.prices.spread, self.prices.rates[kind])
        spread = hypot(own, expert_spread(spec, layout, machine), spec.unseen_spread)
        return RatePricing(spec, layout, self.cluster, machine, spread, reads)

    def machine(self, kind: str) -> MachineModel:
        """The device of a kind with its rates, and the network between its ranks with the collectives that were
        measured on it.
        """
        prices = self.prices
        rates = complete_rates(prices.rates.get(kind), self.devices[kind].kind)
        tables = entries_of_kind(prices.collectives, kind)
        analytic = machine_of(self.cluster, kind, self.devices[kind], rates, prices.timing, prices.accounting)
        return MachineModel(
            analytic.device, rates, network_of(self.cluster, kind, rates, tables), prices.timing, prices.accounting
        )

    def offloading(self, module: str, kind: str, layers: Layers) -> Offloading:
        """How activations can be offloaded to the host, on ranks of a kind that have these layers."""
        if (module, kind, layers) not in self.offloadings:
            self.offloadings[module, kind, layers] = self.new_offloading(module, kind, layers)
        return self.offloadings[module, kind, layers]

    def new_offloading(self, module: str, kind: str, layers: Layers) -> Offloading:
        """Compute what `offloading` caches."""
        basis, ends = self.module_pricing(module, kind), layers[-1] == self.models[module].layers - 1
        held = basis.activation_bytes(layers, ends, SequenceSplit(), (1,))
        named = basis.named_bytes(layers) if self.layouts[module].offloaded_parts else None
        own = end_layer_bytes(basis, self.layouts[module], layers)
        return offloading_of(basis.layer_lines, held, len(layers), self.devices[kind], own, named)


def resharded_bytes(route: SendRoute, whole: float) -> float:
    """Bytes of outputs that the busiest rank sends or receives over an edge: senders and readers have equal parts, each
    reader of all senders, and what a rank sends itself leaves no rank.
    """
    sent = whole / route.senders * (1 if route.both < route.senders else 1 - 1 / route.readers)
    received = whole / route.readers * (1 if route.both < route.readers else 1 - 1 / route.senders)
    return max(sent, received)


def farthest_pair(cluster: Cluster, ranks: Ranks, peers: Ranks) -> tuple[int, int]:
    """A sender and a receiver with the highest level of the network between them that any two of them have."""
    pairs = (ranks[0], peers[-1]), (ranks[-1], peers[0])
    return max(pairs, key=lambda pair: nearest_level(cluster, min(pair), max(pair)).ranks)


def end_layer_bytes(basis: ModulePricing, layout: Layout, layers: Layers) -> float | None:
    """Bytes of one token that may be offloaded in the first of some layers and the last, each as those that recompute
    as it does keep in the mean; None where all recompute alike.
    """
    counts = layout.recompute_counts(layers)
    if len(counts) == 1 or len(layers) <= 2:
        return None
    total = 0.0
    for how in map(layout.layer_recompute, (layers[0], layers[-1])):
        alike = Layers(layer for layer in layers if layout.layer_recompute(layer) == how)
        named = basis.named_bytes(alike) if layout.offloaded_parts else None
        kept = basis.activation_bytes(alike, False, SequenceSplit(), (1,)).layers if named is None else named
        total += kept / len(alike)
    return total


def expert_spread(module: Module, layout: Layout, machine: MachineModel) -> float:
    """The spread that the load of experts leaves, in the mean over a module's layers by placement."""
    placed = layout.by_expert_placement(range(module.layers))
    return sum(float(load_spread(module, columns_of(at), machine)) * len(own) for at, own in placed) / module.layers


def pricing_of(plan: Plan, shared: SharedPrices | None = None) -> Pricing:
    """The pricing that a plan carries; `shared`: with other plans of its job. Raises InputError where it does not cover
    the plan's layouts.
    """
    uses = plan.uses
    copies = {edge.name: plan.layouts[edge.target].tp for edge in plan.edges if edge.by == "cross_attention"}
    reads = reads_by_item(plan)
    mean, flows = mean_cross_reads(plan, reads), gradient_flows(uses.models, plan.edges)
    shared = SharedPrices() if shared is None else shared
    pricing = Pricing(
        uses.models,
        plan.layouts,
        uses.cluster,
        uses.prices,
        uses.devices,
        mean,
        reads,
        copies,
        flows,
        uses.repeated,
        shared,
    )
    fix = "measure it again (planner profile) and solve its job again, or say recompute: none in its layout"
    require_launched(plan, pricing)
    for module, layout in plan.layouts.items():
        for kind in pricing.device_kinds(layout.ranks):
            basis, layers = pricing.module_pricing(module, kind), range(uses.models[module].layers)
            if isinstance(basis, FitPricing):
                require_told_by_fits(basis.spec, module)
                name = f"{module}@{kind}" if f"{module}@{kind}" in uses.prices.modules else module
                require_measured_recompute(basis.costs, layout, layers, name, f"uses.prices.modules.{name}", fix)
                require_one_placement(layout, name)
    return pricing


def require_launched(plan: Plan, pricing: Pricing) -> None:
    """Raises InputError where more modules share devices than threads launch at the same time; of one, they queue."""
    threads = pricing.device_shares.launch_threads
    micro_batches = (each for step in plan.steps for each in step.micro_batches) if threads > 1 else ()
    sharing = {a.module for each in micro_batches for a in assignments(plan, each) if a.share < 1.0}
    if len(sharing) > threads > 1:
        message = f"{len(sharing)} modules share devices, and {threads} threads launch at the same time"
        fix = f"shares for {threads} modules at most, or launch_threads: 1, where launches queue"
        raise InputError(message, where="uses.prices.shares.launch_threads", fix=fix)


def require_told_by_fits(spec: Module, module: str) -> None:
    """Raises InputError where a module with fits has cross attention, as fits do not depend on what it reads, or trains
    adapters, which nothing measured beside its layers.
    """
    where, fix = f"uses.prices.modules.{module}", "leave them out: prices by rates count"
    if spec.cross_attention_width:
        message = f"fits of `{module}` do not say what its cross attention reads"
        raise InputError(message, where=where, fix=f"{fix} it")
    if spec.adapters:
        message = f"fits of `{module}` do not say what low-rank adapters take beside its matrices"
        raise InputError(message, where=where, fix=f"{fix} them")


def require_one_placement(layout: Layout, name: str) -> None:
    """Raises InputError where layers of a module with fits differ in the placement of their experts."""
    if layout.experts:
        message = f"`{name}` is priced by fits, which do not say what experts take that some layers place differently"
        fix = "leave `experts` out of its layout, or price it by its device's rates (uses.prices.rates)"
        raise InputError(message, where=f"uses.prices.modules.{name}", fix=fix)
