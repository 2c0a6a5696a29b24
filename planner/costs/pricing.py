"""What a task costs: the one pricing of solver, verifier and simulator, built from what a plan carries in `uses`.

A task costs what it costs on the kind of its ranks. On ranks of several kinds, which share it equally and wait for each
other, it costs what it would on the slowest of them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from planner.costs.comm import Network
from planner.costs.cost import FREE, Cost
from planner.costs.exchange import Part, exchange_line, ring_line
from planner.costs.fsdp import units_line
from planner.costs.lines import Line, compute_line, summed, weights_line
from planner.costs.overlapped import by_layers
from planner.costs.recomputing import Mixed, costs_of_layers, mixed, require_told
from planner.costs.reduced import blocks_of, copies, exchange_cost
from planner.costs.static.assumed import complete
from planner.costs.tensor import of_one_rank, settled_cost, tensor_line
from planner.errors import InputError
from planner.plan.model import Layout, Plan, Prices
from planner.plan.shares import partners
from planner.plan.task import Split, Task
from planner.specs.base import Ranks
from planner.specs.cluster import Cluster, kind_of
from planner.specs.kinds import entries, entry, kinds
from planner.specs.model import Module, Vit
from planner.specs.parameters import parameters
from planner.specs.profile import ModuleCosts
from planner.specs.shapes import BYTES
from planner.units import MS, US


@dataclass(frozen=True, slots=True)
class Pricing:
    """Prices of tasks; lines are made once for each part of a module on a group, for each kind of its ranks."""

    models: dict[str, Module]
    layouts: dict[str, Layout]
    cluster: Cluster
    prices: Prices
    lines: dict[tuple[Part, str], tuple[Line, Cost]] = field(default_factory=dict)
    known: dict[tuple[object, ...], Cost] = field(default_factory=dict)  # by all of a task that costs look at

    def price(self, task: Task) -> Cost:
        """Seconds of one task, with source and spread; looked up where one just like it was priced."""
        once, on_edge = task.micro_batch is None, ">" in task.group
        key = (task.module, task.phase, task.layers, task.ranks, task.sizes, task.split, task.peers, once, on_edge)
        if key not in self.known:
            self.known[key] = self.priced(task)
        return self.known[key]

    def priced(self, task: Task) -> Cost:
        if task.phase in ("F", "B", "I", "W"):
            return self.compute(task)
        if task.phase in ("gather", "sync"):
            return self.sharded(task)
        if task.phase == "update":
            return self.update(task)
        if task.phase == "send":
            return self.transfer(task)
        return FREE

    def compute(self, task: Task) -> Cost:
        """Forward or backward: compute and, inside it, the exchanges of its group. I and W are a backward together."""
        if not task.tokens:
            return FREE
        ends, forward = task.layers[-1] == self.models[task.module].layers - 1, task.phase == "F"
        again = self.again(task.module, task.layers)
        part = Part(task.module, len(task.layers), ends, task.ranks, task.split, forward, again)
        whole = {kind: self.passed(part, kind, task.sizes) for kind in self.kinds(task.ranks)}
        kind = max(whole, key=lambda each: whole[each].value)
        if task.phase in ("F", "B"):
            return whole[kind]
        weights = self.weights(part, kind, task.sizes)
        if task.phase == "W":
            return Cost(weights, "analytic", whole[kind].spread)
        return Cost(whole[kind].value - weights, "analytic", whole[kind].spread, whole[kind].comm)

    def weights(self, part: Part, kind: str, sizes: Sequence[int]) -> float:
        """Seconds of a backward that make gradients of weights; no task is measured that makes only these.

        `layer` makes nothing again where costs of layers that do stand beside it.
        """
        layout = self.layouts[part.module]
        ways = part.split.ulysses * part.split.ring * layout.mesh.get("tp", 1)
        costs = self.costs(part.module, kind)
        again = part.again == (("full", part.layers),) and "full" not in costs.recomputing
        return weights_line(costs, part.layers, part.ends, ways, again).seconds(sizes)

    def passed(self, part: Part, kind: str, sizes: Sequence[int]) -> Cost:
        """Items of these sizes through a part of a module, on ranks of one kind."""
        line, source = self.part(part, kind)
        costs, comm = self.costs(part.module, kind), line.comm(sizes)
        worked = Cost(line.seconds(sizes) - comm, costs.source, costs.spread)
        return summed(worked, Cost(comm, source.source, source.spread, comm))

    def kinds(self, ranks: Ranks) -> tuple[str, ...]:
        """The kinds of these ranks, each once."""
        among = kinds(self.cluster)
        return among if len(among) == 1 else tuple(dict.fromkeys(kind_of(self.cluster, rank) for rank in ranks))

    def costs(self, module: str, kind: str) -> ModuleCosts:
        """What a module costs on ranks of a kind. Raises InputError when the plan does not say."""
        found = entry(self.prices.modules, module, kind)
        if found is None:
            several = f" on {kind}" if len(kinds(self.cluster)) > 1 else ""
            message, fix = f"the plan has no prices for `{module}`{several}", "add them, or solve its job again"
            raise InputError(message, where="uses.prices.modules", fix=fix)
        return found

    def again(self, module: str, layers: Sequence[int]) -> Mixed:
        """What these layers make again in backward."""
        return mixed(self.layouts[module], layers)

    def layer_costs(self, module: str, kind: str, layers: Sequence[int]) -> ModuleCosts:
        """What a module with only these layers would cost on ranks of a kind."""
        return costs_of_layers(self.costs(module, kind), self.again(module, layers))

    def line(self, module: str, ranks: Ranks, split: Split, forward: bool) -> tuple[Line, Cost]:
        """All layers and ends of a module on a group of one kind, one pass; and the source of what it sends."""
        kind, layers = kind_of(self.cluster, ranks[0]), range(self.models[module].layers)
        return self.part(Part(module, len(layers), True, ranks, split, forward, self.again(module, layers)), kind)

    def part(self, part: Part, kind: str) -> tuple[Line, Cost]:
        if (part, kind) not in self.lines:
            self.lines[part, kind] = self.part_line(part, kind)
        return self.lines[part, kind]

    def part_line(self, part: Part, kind: str) -> tuple[Line, Cost]:
        """Compute, shared out; then what a group has to exchange for it."""
        spec, layout = self.models[part.module], self.layouts[part.module]
        costs = costs_of_layers(self.costs(part.module, kind), part.again)
        ways = part.split.ulysses * part.split.ring * layout.mesh.get("tp", 1)
        line = compute_line(costs, part.layers, part.ends, part.forward, ways)
        line += units_line(costs, layout, part.layers, part.ends, part.forward)
        network, sources = self.network(part.ranks, kind), []
        if part.split.ulysses > 1:
            exchange, source = exchange_line(part, spec, costs, layout.dtype, self.sub_groups(part, kind))
            line += exchange
            sources.append(source)
        if part.split.ring > 1 and costs.cp == 1:
            attention = compute_line(costs, part.layers, False, part.forward, ways).quad
            ring, source = ring_line(part, spec, layout.dtype, network, attention)
            line += ring
            sources.append(source)
        if layout.mesh.get("tp", 1) > 1 and of_one_rank(costs):
            blocks = self.blocks(part.module, part.ranks, kind)
            around, source = tensor_line(part, spec, layout.dtype, blocks)
            line += around
            sources.append(source)
        if not sources and line.comm_const + line.comm_lin:  # tp's and experts' waits: as sure as the module's costs
            return line, Cost(0.0, costs.source, costs.spread)
        return line, summed(*sources) if len(sources) > 1 else sources[0] if sources else FREE

    def sub_groups(self, part: Part, kind: str) -> list[Network]:
        """Those in which heads are shared out: of ranks with the same part of tp."""
        layout = self.layouts[part.module]
        block = blocks_of(part.ranks, layout, ("tp",))[0] if layout.mesh.get("tp", 1) > 1 else part.ranks[:1]
        alike = [self.network(partners(layout, part.ranks, rank), kind) for rank in block]
        return [group for network in alike for group in network.parts(part.split.ring)]

    def blocks(self, module: str, ranks: Ranks, kind: str) -> list[Network]:
        """Those of these ranks that share out matrices."""
        return [self.network(block, kind) for block in blocks_of(ranks, self.layouts[module], ("tp",))]

    def sharded(self, task: Task) -> Cost:
        """Collectives over the parameters of the task's layers, unless they are priced with the rest of a step."""
        of_kinds = [self.costs(task.module, kind) for kind in self.kinds(task.ranks)]
        if all(costs.exposed for costs in of_kinds):
            return self.unhidden(task, of_kinds)
        if all(costs.sharding == "included" for costs in of_kinds):
            return FREE
        return exchange_cost(task, self.models[task.module], self.layouts[task.module], self.collective)

    def unhidden(self, task: Task, of_kinds: Sequence[ModuleCosts]) -> Cost:
        """What is left of all a step's exchanges: it stands where gradients are reduced."""
        if task.phase == "gather":
            return FREE
        each = [(c.exposed.exchange_ms * MS, c) for c in of_kinds if c.exposed]
        return slowest(Cost(seconds, c.source, c.spread, seconds) for seconds, c in each)

    def collective(self, kind: str, size_bytes: float, calls: int, ranks: Ranks) -> Cost:
        """By what was measured on the kinds of these ranks."""
        return slowest(self.network(ranks, each).cost(kind, size_bytes, calls) for each in self.kinds(ranks))

    def network(self, ranks: Ranks, kind: str) -> Network:
        """What joins these ranks, as it was measured on ranks of a kind."""
        tables = entries(self.prices.collectives, kind)
        return Network(ranks, self.cluster, tables, complete(self.prices.rates.get(kind)))

    def update(self, task: Task) -> Cost:
        """The optimizer's pass over the parameters that a rank updates, behind what tp's ranks settle for it."""
        module, layout = self.models[task.module], self.layouts[task.module]
        share = len(task.layers) / module.layers / layout.mesh.get("tp", 1)
        ways = len(task.ranks) / layout.mesh.get("tp", 1) / copies(layout) if layout.zero else 1
        updated = parameters(module).total * share / ways
        each = [self.costs(task.module, kind) for kind in self.kinds(task.ranks)]
        seconds = [c.exposed.update_ms * MS if c.exposed else updated * c.update_ns_per_parameter * 1e-9 for c in each]
        own = slowest(Cost(s, c.source, c.spread) for s, c in zip(seconds, each, strict=True))
        settled = self.settled(task)
        return summed(own, settled) if settled.value else own

    def settled(self, task: Task) -> Cost:
        """What tp's ranks add up before an update."""
        module, layout = self.models[task.module], self.layouts[task.module]
        if layout.mesh.get("tp", 1) == 1:
            return FREE
        measured = [kind for kind in self.kinds(task.ranks) if of_one_rank(self.costs(task.module, kind))]
        blocks = [self.blocks(task.module, task.ranks, kind) for kind in measured]
        return slowest(settled_cost(task.layers, module, layout, each) for each in blocks) if blocks else FREE

    def transfer(self, task: Task) -> Cost:
        """Activations or their gradients from one stage's ranks to another's, or over an edge (`v0>llm`)."""
        module, layout = self.models[task.module], self.layouts[task.module]
        of_kinds = [self.costs(task.module, kind) for kind in self.kinds(task.ranks)]
        if all(costs.exposed for costs in of_kinds) and ">" not in task.group:
            each = [(c.exposed.send_us_per_token * US * task.tokens, c) for c in of_kinds if c.exposed]
            return slowest(Cost(seconds, c.source, c.spread, seconds) for seconds, c in each)
        projected = isinstance(module, Vit) and ">" in task.group  # on an edge: behind the projector
        per_token = module.out / module.merge**2 if isinstance(module, Vit) and projected else float(module.hidden)
        size = task.tokens * per_token * BYTES[layout.dtype] / len(task.ranks)
        near, far = task.ranks[0], task.peers[0] if task.peers else task.ranks[-1]
        pair = Ranks(sorted({near, far}))
        return self.collective("p2p", size, 1, pair)


def slowest(costs: Iterable[Cost]) -> Cost:
    return max(costs, key=lambda cost: cost.value)


def pricing_of(plan: Plan) -> Pricing:
    """The pricing that a plan carries. Raises InputError when it does not price all that it lays out, as it does."""
    pricing = Pricing(plan.uses.models, plan.layouts, plan.uses.cluster, by_layers(plan))
    fix = "measure it again (planner profile) and solve its job anew, or say recompute: none in its layout"
    for module, layout in plan.layouts.items():
        for kind in pricing.kinds(layout.ranks):
            costs, layers = pricing.costs(module, kind), range(plan.uses.models[module].layers)
            name = f"{module}@{kind}" if f"{module}@{kind}" in plan.uses.prices.modules else module
            require_told(costs, layout, layers, name, f"uses.prices.modules.{name}", fix)
    return pricing
