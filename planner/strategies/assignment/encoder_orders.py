"""When passes of encoders run beside those of their readers: the orders that an encoder may have, and rules of a plan
that say them.

A forward may compute what several micro-batches read, and run ahead of these; backwards come last, or each when its
gradient is there. Which order is best follows from layouts, samples and memory, so that no layout says it: those of
`few_orders` are compared by an estimate (layouts_plan.py), and of the best layouts others are simulated
(modality/joint_search.py).
"""

from collections.abc import Iterable, Iterator, Mapping
from math import gcd
from typing import NamedTuple

from planner.plan.plan_file import Edge, Layout, Plan, TaskPlacement, assignments
from planner.plan.task import TaskName
from planner.specs.inputs import Inputs
from planner.strategies.assignment.packed_modules import packs_samples


class EncoderOrder(NamedTuple):
    """When passes of an encoder run."""

    serves: int | None = 1  # micro-batches of its readers whose items one pass computes; None: all
    ahead: int | None = 0  # micro-batches that forwards run ahead of these; None: in front of all
    at_once: bool = False  # whether a backward runs when its last gradient is there, and not after all else


Orders = Mapping[str, EncoderOrder]  # by encoder
FRONT = EncoderOrder(serves=None)  # one pass in front of all, whose activations are kept until the end
STREAMED = EncoderOrder(ahead=1, at_once=True)  # with their readers, a micro-batch ahead


def few_orders(inputs: Inputs, layouts: Mapping[str, Layout]) -> list[Orders]:
    """The orders that layouts are tried with: all encoders in front of the LLM, in one pass or in several, or with it,
    which keeps less; those apart, for whose ranks nothing else waits, as far ahead as can be, or as is enough to be
    through their stages.
    """
    found: list[Orders] = []
    for usual in (FRONT, FRONT._replace(serves=1, ahead=None), STREAMED):
        each = {name: possible_order(inputs, layouts, name, usual) for name in layouts if inputs.model.targets(name)}
        found += [each] if each not in found else []
    return found


def possible_order(inputs: Inputs, layouts: Mapping[str, Layout], name: str, order: EncoderOrder) -> EncoderOrder:
    """The order of an encoder, or the nearest that the job and its software allow."""
    readers = inputs.model.targets(name)
    apart = all({*layouts[name].ranks}.isdisjoint(layouts[each].ranks) for each in readers if each in layouts)
    if inputs.software.knobs.orders == "named":
        return EncoderOrder(ahead=inputs.software.knobs.ahead if apart else 0, at_once=True)
    if apart and order in (FRONT, STREAMED):
        order = EncoderOrder(ahead=1 + layouts[name].pp if order is STREAMED else None, at_once=True)
    return order._replace(serves=1) if packs_samples(inputs) else order  # a pass has what its own packs read


def other_orders(order: EncoderOrder, count: int) -> Iterator[EncoderOrder]:
    """Orders that differ in a thing or two; `count`: micro-batches of the LLM."""
    serves, ahead = (count if each is None else min(each, count) for each in order[:2])
    yield order._replace(serves=1, ahead=None)
    yield order._replace(serves=None, ahead=0)
    yield from (order._replace(serves=each) for each in (serves * 2, serves // 2, 4, 1) if 0 < each < count)
    if serves < count:  # else its one pass is in front of all of them in any case
        yield from (order._replace(ahead=each) for each in (ahead * 2, ahead // 2, 1, 0) if each < count)
    yield order._replace(at_once=not order.at_once)


def order_rules(orders: Orders, edges: Iterable[Edge]) -> tuple[TaskPlacement, ...]:
    """The rules of a plan that say these orders; none where a forward runs when it is read, or a backward at last."""
    found = list[TaskPlacement]()
    for edge in (edge for edge in edges if edge.source in orders):
        order, (source, target) = orders[edge.source], (edge.source, edge.target)
        if order.ahead != 0:
            before = f"{target}.F0" if order.ahead is None else f"{target}.F-{order.ahead}"
            found.append(TaskPlacement(do=TaskName(f"{source}.F"), before=TaskName(before)))
        if order.at_once:
            found.append(TaskPlacement(do=TaskName(f"{source}.B"), after=TaskName(f"{target}.B")))
    return tuple(found)


def orders_of(plan: Plan) -> Orders:
    """The orders of encoders in the first step of a plan, as far as rules say them."""
    step, found = plan.steps[0], dict[str, EncoderOrder]()
    for edge in plan.edges:
        modules = [{a.module for a in assignments(plan, cells)} for cells in step.micro_batches]
        passes = [number for number, names in enumerate(modules) if edge.source in names]
        ahead, at_once = step.ahead(edge.source, edge.target), bool(step.rules(edge.source, "B"))
        found[edge.source] = EncoderOrder(gcd(*passes) or None, None if ahead >= len(modules) else ahead, at_once)
    return found
