"""What a task costs: the one pricing of solver, verifier and simulator, built from what a plan carries in `uses`.

A task costs what it costs on the kind of its ranks. On ranks of several kinds, which share it equally and wait for each
other, it costs what it would on the slowest of them. What runs beside an exchange counts: of it only what no compute
hides is priced, by the same formula as in the closed form (network/replicas.py). So does what runs beside a pass that
holds a share of its devices (compute/contention.py).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from planner.costs.by_module import ByModule
from planner.costs.by_rates import ByRates
from planner.costs.compute.assumed import complete, spread_of
from planner.costs.compute.contention import SPREAD, Use, density, slower
from planner.costs.compute.lines import Line
from planner.costs.compute.machine import Machine, machine_of
from planner.costs.compute.recomputing import require_told
from planner.costs.cost import FREE, Cost, slowest, summed, trust
from planner.costs.memory.offload import Offloading, offloading
from planner.costs.network.network import among, network_of
from planner.costs.network.replicas import exposed
from planner.costs.part import Part, mixed, spread_over
from planner.errors import InputError
from planner.plan.beside import PASSES, Beside, Row
from planner.plan.feeding import fed_tokens
from planner.plan.model import Layout, Plan, Prices, Split
from planner.plan.task import Task
from planner.specs.base import Layers, Ranks
from planner.specs.cluster import Cluster, kind_of
from planner.specs.kinds import entries, entry, kinds
from planner.specs.layers import Module
from planner.specs.profile import Device
from planner.specs.shapes import BYTES

Basis = ByModule | ByRates


@dataclass(frozen=True, slots=True)
class Pricing:
    """Prices of tasks; lines are made once for each part of a module on a group, for each kind of its ranks."""

    models: dict[str, Module]
    layouts: dict[str, Layout]
    cluster: Cluster
    prices: Prices
    devices: dict[str, Device]
    reads: dict[str, float] = field(default_factory=dict)  # by module, as in Columns
    copies: dict[str, int] = field(default_factory=dict)  # by edge, ranks that each read all of an item's outputs
    bases: dict[tuple[str, str], Basis] = field(default_factory=dict)
    lines: dict[tuple[Part, str], tuple[Line, Cost]] = field(default_factory=dict)
    known: dict[tuple[object, ...], Cost] = field(default_factory=dict)  # by all of a task that costs look at

    def among(self, tasks: Sequence[Task]) -> Callable[[Task], Cost]:
        """The pricing of these tasks of a step, in which what runs beside each of them is known."""
        beside = Beside(tasks)
        return lambda task: self.price(task, beside.of(task))

    def price(self, task: Task, beside: tuple[Row, ...] = ()) -> Cost:
        """Seconds of one task, with source and spread; looked up where one just like it was priced."""
        key = looked_at(task)
        if beside:
            key = (*key, tuple(tuple(tuple(map(looked_at, passes)) for passes in row) for row in beside))
        if key not in self.known:
            self.known[key] = self.priced(task, beside)
        return self.known[key]

    def priced(self, task: Task, beside: tuple[Row, ...]) -> Cost:
        if task.phase in PASSES:
            return self.compute(task) if task.share == 1 else self.shared(task, beside)
        if task.phase in ("gather", "sync"):
            return slowest(self.exposed(task, basis, beside) for basis in self.of_ranks(task))
        if task.phase == "update":
            return slowest(basis.update(task) for basis in self.of_ranks(task))
        return self.transfer(task) if task.phase == "send" else FREE

    def compute(self, task: Task, ends: bool = True) -> Cost:
        """Forward or backward: compute and, inside it, the exchanges of its group. I and W are a backward together.

        `ends`: with what stands behind the last layer.
        """
        if not task.tokens:
            return FREE
        part = self.part_of(task)
        part = part if ends else part._replace(ends=False)
        whole = {kind: self.passed(part, kind, task.lengths) for kind in self.kinds(task.ranks)}
        kind = max(whole, key=lambda each: whole[each].value)
        if task.phase in ("F", "B"):
            return whole[kind]
        weights = self.basis(task.module, kind).weights(part).seconds(task.lengths)
        if task.phase == "W":
            return Cost(weights, "analytic", whole[kind].spread)
        return Cost(whole[kind].value - weights, "analytic", whole[kind].spread, whole[kind].comm)

    def shared(self, task: Task, beside: tuple[Row, ...]) -> Cost:
        """A pass with a share of its devices. What its ranks send each other takes as long as ever."""
        whole = self.compute(task)
        most = [max((self.use(each) for each in passes), key=density) for row in beside for passes in row]
        worked = (whole.value - whole.comm) * slower(self.use(task), most)
        source = trust([whole.source, "analytic"])
        return Cost(worked + whole.comm, source, whole.spread + SPREAD, whole.comm)

    def use(self, task: Task) -> Use:
        """What a pass, of a backward in two the whole of it, asks of its devices; of several kinds, of the slowest."""
        part = self.part_of(task)
        each = {kind: self.passed(part, kind, task.lengths) for kind in self.kinds(task.ranks)}
        kind = max(each, key=lambda kind: each[kind].value)
        seconds, memory = each[kind].value - each[kind].comm, self.basis(task.module, kind).memory(part)
        if memory is None:
            return Use(task.share, seconds, 0.0)
        moved, streamed = (line.seconds(task.lengths) for line in memory)
        return Use(task.share, max(0.0, seconds - moved), min(moved, seconds), streamed)

    def part_of(self, task: Task) -> Part:
        """What of its module a pass goes through."""
        layout, module, layers = self.layouts[task.module], self.models[task.module], task.layers
        again, spread = mixed(layout, layers), spread_over(layout, module, layers)
        ends, forward = layers[-1] == module.layers - 1, task.phase == "F"
        return Part(task.module, len(layers), ends, task.ranks, task.split, forward, again, spread)

    def passed(self, part: Part, kind: str, lengths: Sequence[int]) -> Cost:
        """Documents of these lengths through a part of a module, on ranks of one kind."""
        line, source = self.part(part, kind)
        comm, basis = line.comm(lengths), self.basis(part.module, kind)
        worked = basis.worked(line.seconds(lengths) - comm)
        return summed(worked, Cost(comm, source.source, source.spread, comm))

    def line(self, module: str, ranks: Ranks, split: Split, forward: bool) -> tuple[Line, Cost]:
        """All layers and ends of a module on a group of one kind, one pass; and the source of what it sends."""
        kind, layers = kind_of(self.cluster, ranks[0]), range(self.models[module].layers)
        layout = self.layouts[module]
        again, spread = mixed(layout, layers), spread_over(layout, self.models[module], layers)
        return self.part(Part(module, len(layers), True, ranks, split, forward, again, spread), kind)

    def part(self, part: Part, kind: str) -> tuple[Line, Cost]:
        if (part, kind) not in self.lines:
            self.lines[part, kind] = self.basis(part.module, kind).line(part)
        return self.lines[part, kind]

    def exposed(self, task: Task, basis: Basis, beside: tuple[Row, ...]) -> Cost:
        """What of an exchange among replicas no compute hides: of a micro-batch's behind the slowest group, of a
        step's behind the passes of whichever group has least of them. Only layers hide any: behind the last of them
        all is gathered, and nothing yet to be reduced.
        """
        layout, once = self.layouts[task.module], task.micro_batch is None
        if layout.zero == 3 and layout.pp > 1 and basis.machine.accounting.keeps_gathered and task.micro_batch:
            return FREE  # parameters stay gathered, and gradients whole, from the first micro-batch on
        pick, rows = min if once else max, self.rows_beside(task, basis, beside)
        hidden = [pick(sum(self.compute(each, False).value for each in passes) for passes in row) for row in rows]
        return self.behind(task, basis, hidden or [0.0])

    def behind(self, task: Task, basis: Basis, hidden: Sequence[float]) -> Cost:
        """What is left of an exchange, once for each of these seconds of compute beside it."""
        found, told = basis.exchanged(task)
        once, alone = task.micro_batch is None, 1.0 / len(task.layers)
        whole = found.gather if task.phase == "gather" else found.reduce + (0.0 if once else found.again)
        own, window = whole * basis.slower, basis.machine.window  # passes are as slow already
        seconds = sum(float(exposed(own, beside, window, alone)) for beside in hidden)
        return Cost(seconds, told.source, told.spread, seconds)

    def left(self, task: Task, beside: float) -> float:
        """Seconds of an exchange that so many seconds of compute beside it leave."""
        return max(self.behind(task, basis, [beside]).value for basis in self.of_ranks(task))

    def rows_beside(self, task: Task, basis: Basis, beside: tuple[Row, ...]) -> tuple[Row, ...]:
        """Of a step's exchange the last micro-batch, or all where gradients are reduced as they come (ZeRO-2)."""
        if task.micro_batch is not None:
            return beside
        layout = self.layouts[task.module]
        each = layout.zero == 2 and layout.pp == 1 and not basis.machine.accounting.holds_gradients
        if task.phase == "gather":
            return beside[:1]
        return beside if each else beside[-1:]

    def transfer(self, task: Task) -> Cost:
        """Activations or their gradients from one stage's ranks to another's, or over an edge (`v0>llm`)."""
        layout, tokens = self.layouts[task.module], task.tokens
        ways = len(task.ranks) if layout.sequence_parallel else task.degree  # tp's ranks else send all of them each
        size = tokens * self.width(task) * BYTES[layout.dtype] / ways
        near, far = task.ranks[0], task.peers[0] if task.peers else task.ranks[-1]
        pair = among(self.cluster, Ranks(sorted({near, far})))
        mine = self.kinds(layout.ranks)
        there = (kind for kind in self.kinds(Ranks((far,))) if kind in mine)  # the slower end sets the pace
        ends = dict.fromkeys((*self.kinds(task.ranks), *there))
        return slowest(self.basis(task.module, kind).sent(size, pair) for kind in ends)

    def width(self, task: Task) -> float:
        """Elements for each of a task's tokens: between stages hidden ones, on an edge an encoder's outputs."""
        module = self.models[task.module]
        if not module.gives or ">" not in task.group:
            return float(module.hidden)
        edge = f"{task.module}>{task.group.partition('>')[2]}"
        return module.gives / module.merged * self.copies.get(edge, 1)

    def kinds(self, ranks: Ranks) -> tuple[str, ...]:
        """The kinds of these ranks, each once."""
        among_all = kinds(self.cluster)
        return among_all if len(among_all) == 1 else tuple(dict.fromkeys(kind_of(self.cluster, rank) for rank in ranks))

    def of_ranks(self, task: Task) -> list[Basis]:
        return [self.basis(task.module, kind) for kind in self.kinds(task.ranks)]

    def basis(self, module: str, kind: str) -> Basis:
        """What prices a module on ranks of a kind. Raises InputError when the plan does not say."""
        if (module, kind) not in self.bases:
            self.bases[module, kind] = self.new_basis(module, kind)
        return self.bases[module, kind]

    def new_basis(self, module: str, kind: str) -> Basis:
        costs, machine = entry(self.prices.modules, module, kind), self.machine(kind)
        if costs:
            return ByModule(self.models[module], self.layouts[module], self.cluster, machine, costs)
        if kind not in self.prices.rates:
            several = f" on {kind}" if len(kinds(self.cluster)) > 1 else ""
            message, fix = f"the plan has no prices for `{module}`{several}", "add them, or solve its job again"
            raise InputError(message, where="uses.prices.modules", fix=fix)
        spread = spread_of(self.prices.spread, self.prices.rates[kind])
        reads = self.reads.get(module, 0.0)
        return ByRates(self.models[module], self.layouts[module], self.cluster, machine, spread, reads)

    def machine(self, kind: str) -> Machine:
        """Ranks of a kind, and what was measured of the network between them."""
        prices = self.prices
        rates, tables = complete(prices.rates.get(kind), self.devices[kind].kind), entries(prices.collectives, kind)
        made = machine_of(self.cluster, self.devices[kind], rates, prices.timing, prices.accounting)
        return Machine(made.device, rates, network_of(self.cluster, rates, tables), prices.timing, prices.accounting)

    def offloading(self, module: str, kind: str, layers: Layers) -> Offloading:
        """Of activations from ranks of a kind that have these layers."""
        basis, ends = self.basis(module, kind), layers[-1] == self.models[module].layers - 1
        held = basis.held(layers, ends, Split(), (1,))
        return offloading(basis.layer_lines(), held, len(layers), self.devices[kind])


def looked_at(task: Task) -> tuple[object, ...]:
    """All of a task that its price depends on."""
    once, reader = task.micro_batch is None, task.group.partition(">")[2]
    where = task.ranks, task.split, task.peers, task.share
    return task.module, task.phase, task.layers, task.lengths, where, once, reader


def pricing_of(plan: Plan) -> Pricing:
    """The pricing that a plan carries. Raises InputError when it does not price all that it lays out, as it does."""
    uses = plan.uses
    copies = {edge.name: plan.layouts[edge.target].tp for edge in plan.edges if edge.by == "cross_attention"}
    pricing = Pricing(uses.models, plan.layouts, uses.cluster, uses.prices, uses.devices, mean_reads(plan), copies)
    fix = "measure it again (planner profile) and solve its job anew, or say recompute: none in its layout"
    for module, layout in plan.layouts.items():
        for kind in pricing.kinds(layout.ranks):
            basis, layers = pricing.basis(module, kind), range(uses.models[module].layers)
            if isinstance(basis, ByModule):
                require_read_alone(basis.spec, module)
                name = f"{module}@{kind}" if f"{module}@{kind}" in uses.prices.modules else module
                require_told(basis.costs, layout, layers, name, f"uses.prices.modules.{name}", fix)
                require_one_placement(layout, name)
    return pricing


def mean_reads(plan: Plan) -> dict[str, float]:
    """By module with cross attention, what it reads for each of its tokens, over all of the plan's items."""
    read = fed_tokens(plan, "cross_attention")
    named = [name for name in plan.layouts if plan.uses.models[name].crossing]
    rows = {name: sum(count for (module, _), count in read.items() if module == name) for name in named}
    return {
        name: rows[name] / max(1, sum(plan.uses.tokens(name, item) for item in plan.uses.items[name])) for name in named
    }


def require_read_alone(spec: Module, module: str) -> None:
    """Raises InputError where seconds were measured of a module whose cross attention reads what no fit knows."""
    if spec.crossing:
        message = f"fits of `{module}` do not say what its cross attention reads"
        raise InputError(message, where=f"uses.prices.modules.{module}", fix="leave them out: prices by rates count it")


def require_one_placement(layout: Layout, name: str) -> None:
    """Raises InputError where fits would have to tell layers from layers by how their experts lie."""
    if layout.experts:
        message = f"`{name}` is priced by fits, which do not say what experts take that lie otherwise in some layers"
        fix = "leave `experts` out of its layout, or price it by its device's rates (uses.prices.rates)"
        raise InputError(message, where=f"uses.prices.modules.{name}", fix=fix)
