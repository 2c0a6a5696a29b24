"""The order of dims over ranks, solved for with each layout: which of its groups lie within a node.

Three orders are tried, and of equals the first is taken. They are chosen by argument, not by trying all 120:

- tp varies fastest. Its ranks exchange around every matrix product, and a layout's tp is within a node.
- cp before dp, and replica behind dp. Gradients and parameters are exchanged by cp and dp together, whichever comes
  first, and copies of shards (HSDP) exchange least of all; so dp in front of cp brings nothing nearer, and cp farther.
- pp is what is left to place: behind all, so that stages exchange over the farthest links; in front of dp, where
  stages share a node and replicas do not; or in front of cp too, which is tried where tp and cp do not fit into a node
  together, and a ring takes its slowest link in any order.

So all three agree in the order of tp, cp, dp and replica among the ranks of a stage, and in the memory of their
communicators. A job's own order is kept; a framework that names its orders has those.
"""

from collections.abc import Sequence
from itertools import combinations, takewhile
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.costs import dims_in_order
from planner.layouts.space.layout_batches import LayoutIndices
from planner.layouts.space.layout_fields import RANK_ORDERS
from planner.layouts.space.layout_problem import LayoutProblem
from planner.layouts.space.layout_space import LayoutSpace
from planner.plan.launchable.launch_refusals import launchable
from planner.plan.launchable.launch_rules import RULES, trained_facts
from planner.specs.base import with_fields
from planner.specs.parallelism import DEFAULT_RANK_ORDER

PP_BEFORE_CP = "tp-pp-cp-dp-replica"
SEARCHED_ORDERS = (DEFAULT_RANK_ORDER, "tp-cp-pp-dp-replica", PP_BEFORE_CP)
ORDER_RULES = tuple(rule for rule in RULES if rule.name == "rank order")
DEGREES = ("tp", "cp", "pp", "replica")

Mask = NDArray[np.bool_]  # (layouts,)


class OrderChoice(NamedTuple):
    """An order of ranks, and the layouts that it is tried for."""

    rank_order: str
    tried: Mask

    @property
    def place(self) -> int:
        """The place of the order in RANK_ORDERS."""
        return RANK_ORDERS.index("-".join(dims_in_order(self.rank_order)))


def possible_orders(problem: LayoutProblem) -> tuple[str, ...]:
    """The job's order of ranks; else those of its framework, the default one first; of any, those worth trying."""
    fixed, named = problem.trained.fixed.rank_order, problem.knobs.rank_orders
    if fixed:
        return (fixed,)
    return tuple(sorted(named, key=lambda order: order != DEFAULT_RANK_ORDER)) if named else SEARCHED_ORDERS


def order_choices(problem: LayoutProblem, found: LayoutSpace) -> list[OrderChoice]:
    """The orders to try for each layout: that it can be launched in, and that place its groups as no earlier one."""
    orders, sizes = possible_orders(problem), dim_sizes(problem, found)
    per_node, nearest = problem.machine.network.per_node, problem.machine.network.joined_below_last
    choices: list[OrderChoice] = []
    for order in orders:
        tried = launchable_in(problem, found, order)
        if order == PP_BEFORE_CP and orders == SEARCHED_ORDERS:
            tried &= sizes["tp"] * sizes["cp"] > per_node
        elif problem.knobs.rank_orders and order != DEFAULT_RANK_ORDER and problem.trained.module.routed_experts:
            # Megatron-Core wants as many replicas of experts as of the rest then (profiles/software/megatron.yaml).
            tried &= (found["ep"] * found["etp"] == sizes["tp"] * sizes["cp"]) | (found["pp"] == 1)
        for other in choices:
            tried &= ~(other.tried & places_alike(order, other.rank_order, sizes, nearest))
        choices.append(OrderChoice(order, tried))
    return choices


def orders_of(choices: Sequence[OrderChoice], places: LayoutIndices, fits: Mask) -> list[OrderChoice]:
    """The orders to try for the layouts at these places; of those that do not fit the first alone."""
    some, done = list[OrderChoice](), np.zeros(len(places), dtype=np.bool_)
    for choice in choices:
        tried = choice.tried[places] & (fits | ~done)
        some.append(choice._replace(tried=tried))
        done |= tried
    return some


def launchable_in(problem: LayoutProblem, found: LayoutSpace, order: str) -> Mask:
    """Whether the framework can launch each layout with its ranks in this order."""
    trained = problem.trained
    facts = trained_facts(trained.module, trained.ranks, trained.sizes)
    columns = {name: found[name] for name in (*DEGREES, "ep", "etp")}
    return launchable(columns, with_fields(trained.fixed, rank_order=order), facts, problem.knobs, ORDER_RULES)


def dim_sizes(problem: LayoutProblem, found: LayoutSpace) -> LayoutSpace:
    """The sizes of the dims of each layout's mesh."""
    sizes = {name: found[name] for name in DEGREES}
    return {**sizes, "dp": problem.trained.ranks // np.prod([*sizes.values()], axis=0)}


def places_alike(one: str, other: str, sizes: LayoutSpace, nearest: int) -> Mask:
    """Whether two orders are the same for the dims that a layout uses, or differ only in dims whose ranks are all
    `nearest` ranks apart or more, where one link joins all.
    """
    pairs = zip(dims_in_order(one), dims_in_order(other), strict=True)
    shared = [sizes[mine] for mine, theirs in takewhile(lambda pair: pair[0] == pair[1], pairs)]
    place = {dim: number for number, dim in enumerate(dims_in_order(other))}
    turned = np.zeros(len(sizes["tp"]), dtype=np.bool_)
    for inner, outer in combinations(dims_in_order(one), 2):
        if place[inner] > place[outer]:
            turned |= (sizes[inner] > 1) & (sizes[outer] > 1)
    return np.asarray(~turned | (np.prod(shared, axis=0) >= nearest))
