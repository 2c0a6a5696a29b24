"""What a task costs: the one pricing of solver, verifier and simulator, built from what a plan carries in `uses`."""

from dataclasses import dataclass, field

from planner.costs.comm import collective_cost
from planner.costs.cost import FREE, Cost
from planner.costs.lines import Line, compute_line, exchange_line, summed
from planner.errors import InputError
from planner.plan.model import Layout, Plan, Prices
from planner.plan.task import Task
from planner.specs.base import Ranks
from planner.specs.cluster import Cluster
from planner.specs.model import Module, Vit
from planner.specs.parameters import parameters
from planner.specs.shapes import BYTES


@dataclass(frozen=True, slots=True)
class Pricing:
    """Prices of tasks; lines are made once per (module, ranks of the group, pass)."""

    models: dict[str, Module]
    layouts: dict[str, Layout]
    cluster: Cluster
    prices: Prices
    lines: dict[tuple[str, Ranks, int, bool], tuple[Line, Cost]] = field(default_factory=dict)

    def price(self, task: Task) -> Cost:
        """Seconds of one task, with source and spread."""
        if task.phase in ("F", "B"):
            return self.compute(task)
        if task.phase == "gather":
            return self.sharded(task, "all_gather", layer_times=2 if task.micro_batch is not None else 1)
        if task.phase == "sync":
            return self.sharded(task, "reduce_scatter", layer_times=1)
        if task.phase == "update":
            return self.update(task)
        if task.phase == "send":
            return self.transfer(task)
        return FREE

    def compute(self, task: Task) -> Cost:
        """Forward or backward: compute and, inside it, the exchanges of its group."""
        if not task.tokens:
            return FREE
        line, source = self.line(task.module, task.ranks, task.degree, task.phase == "F")
        costs, module = self.prices.modules[task.module], self.models[task.module]
        if len(task.layers) < module.layers:
            ends = task.layers[-1] == module.layers - 1
            ways = task.degree * self.layouts[task.module].mesh.get("tp", 1)
            line = compute_line(costs, len(task.layers), ends, task.phase == "F", ways)
        squares = float(sum(size * size for size in task.sizes))
        comm = line.comm(task.tokens)
        worked = Cost(line(squares, task.tokens) - comm, costs.source, costs.spread)
        return summed(worked, Cost(comm, source.source, source.spread, comm))

    def line(self, module: str, ranks: Ranks, degree: int, forward: bool) -> tuple[Line, Cost]:
        """All layers and ends of a module on a group, one pass."""
        key = (module, ranks, degree, forward)
        if key not in self.lines:
            costs, spec, layout = self.prices.modules[module], self.models[module], self.layouts[module]
            line = compute_line(costs, spec.layers, True, forward, degree * layout.mesh.get("tp", 1))
            source = FREE
            if degree > 1:
                tables = self.prices.collectives
                exchange, source = exchange_line(spec, costs, ranks, layout.dtype, self.cluster, tables)
                line += exchange
            self.lines[key] = (line, source)
        return self.lines[key]

    def sharded(self, task: Task, kind: str, layer_times: int) -> Cost:
        """Collectives over the parameters of the task's layers: one per layer and pass, and one for the ends.

        The ends stay gathered from forward to backward, as FSDP2 keeps its root.
        """
        if self.prices.modules[task.module].sharding == "included":
            return FREE
        module, layout = self.models[task.module], self.layouts[task.module]
        count = parameters(module)
        ends = count.ends if task.layers[-1] == module.layers - 1 else 0
        calls = layer_times * len(task.layers) + (1 if ends else 0)
        moved = (layer_times * count.layer * len(task.layers) + ends) * BYTES[layout.dtype]
        held = moved / layout.mesh.get("tp", 1)
        return collective_cost(kind, held, calls, task.ranks, self.cluster, self.prices.collectives)

    def update(self, task: Task) -> Cost:
        """The optimizer's pass over the parameters that a rank updates."""
        costs, module, layout = self.prices.modules[task.module], self.models[task.module], self.layouts[task.module]
        share = len(task.layers) / module.layers / layout.mesh.get("tp", 1)
        ways = len(task.ranks) / layout.mesh.get("tp", 1) if layout.zero else 1
        seconds = parameters(module).total * share / ways * costs.update_ns_per_parameter * 1e-9
        return Cost(seconds, costs.source, costs.spread)

    def transfer(self, task: Task) -> Cost:
        """Activations or their gradients from one stage's ranks to another's, or over an edge (`v0>llm`)."""
        module, layout = self.models[task.module], self.layouts[task.module]
        projected = isinstance(module, Vit) and ">" in task.group  # on an edge: behind the projector
        per_token = module.out / module.merge**2 if isinstance(module, Vit) and projected else float(module.hidden)
        size = task.tokens * per_token * BYTES[layout.dtype] / len(task.ranks)
        near, far = task.ranks[0], task.peers[0] if task.peers else task.ranks[-1]
        pair = Ranks(sorted({near, far}))
        return collective_cost("p2p", size, 1, pair, self.cluster, self.prices.collectives)


def pricing_of(plan: Plan) -> Pricing:
    """The pricing that a plan carries. Raises InputError when it does not price all that it lays out."""
    for module in plan.layouts:
        if module not in plan.uses.prices.modules:
            message, fix = f"the plan has no prices for `{module}`", "add them, or solve its job again"
            raise InputError(message, where="uses.prices.modules", fix=fix)
    return Pricing(plan.uses.models, plan.layouts, plan.uses.cluster, plan.uses.prices)
