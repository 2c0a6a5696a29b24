"""The order of forwards and of both halves of backwards on each stage of a pipeline (zero bubble, arXiv 2401.10241).

Decision: of each stage of a static layout with pp ≥ 2 and one chunk of layers a rank, the order of F, I (gradient of
the inputs, which the stage before waits for) and W (gradient of the weights, which nobody waits for before the update),
in the memory there is: F takes a micro-batch's activations, I gives back what W does not need, and W the rest. With
E(x, s) the end of a slot on stage s, minimise the last end of all, where

    E(F k, s) ≥ E(F k, s − 1) + send + F,   E(I k, s) ≥ E(I k, s + 1) + send + I,   E(W k, s) ≥ E(I k, s) + W,

slots of a stage do not overlap, and Σ held ≤ cap − states at all times. Orders are made by rules, beside the hand-made
ones, and improved (orders/search.py). Where micro-batches are unlike, the sequence in which they come is decided too
(orders/sequence.py): rows of the step change places, and forwards run 0, 1, 2, … in the new sequence. The bound is of
every order of these passes in any sequence (orders/anyhow.py). Each micro-batch has its own seconds; where replicas
differ, those of the slowest. Where activations are made again, backward stays whole (B), and only F and B are ordered.

The layout, and who works on what, are those of the strategy before it; the plan is never worse than that one's own.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import inf

from planner.costs.pricing import pricing_of
from planner.errors import Infeasible, InputError
from planner.orders import Order, Pipeline, search_sequences
from planner.orders.problem import Rows
from planner.plan.alike import alike_groups
from planner.plan.expand import expand
from planner.plan.join import tidy
from planner.plan.legal import violations
from planner.plan.model import Instead, Layout, Plan
from planner.plan.schedules import Slot, schedule
from planner.plan.schedules.explicit import printed
from planner.plan.words import spoken
from planner.specs.base import changed
from planner.specs.inputs import Inputs
from planner.specs.parallelism import Parallelism
from planner.strategies.base import left_out
from planner.strategies.static.screen import settled
from planner.units import percent
from planner.verify.pipelined import Replica, parts, pipelines
from planner.verify.score import scored

SUMMARY = "the order of forwards and both halves of backwards on each pipeline stage, in the memory there is"
SAME = 1e-6  # relative: orders that differ by less are as good
HAND_MADE = ("1f1b", "zb_h1", "zb_h2", "gpipe")


def supports(inputs: Inputs) -> str | None:
    """A pipeline whose ranks have one chunk of layers each."""
    if len(inputs.model.modules) > 1:
        return left_out(inputs, "pipeline_order")
    fixed = inputs.job.fix.layouts.get(inputs.module, Parallelism())
    if (fixed.pp or 1) < 2:
        return f"pipeline_order orders the stages of a pipeline: it needs fix.layouts.{inputs.module}.pp of 2 or more"
    if (fixed.vpp or 1) > 1:
        return "pipeline_order orders stages of one chunk of layers each: it needs vpp: 1"
    if fixed.schedule:
        return f"pipeline_order decides the order, and fix.layouts.{inputs.module}.schedule fixes it"
    return None


def before(inputs: Inputs) -> Inputs:
    """The job as the strategy before this one should see it: one chunk a rank."""
    fix = inputs.job.fix
    fixed = fix.layouts.get(inputs.module, Parallelism())
    layouts = {**fix.layouts, inputs.module: changed(fixed, vpp=1)}
    return replace(inputs, job=changed(inputs.job, fix=changed(fix, layouts=layouts)))


def plan(inputs: Inputs, base: Plan | None) -> Plan:
    """The base with the best order found, or its own. Raises Infeasible."""
    if base is None:
        raise InputError("pipeline_order starts from a static layout", where="strategy", fix="solve the job whole")
    ((module, layout),) = base.layouts.items()
    base = changed(base, uses=changed(base.uses, fix=settled(inputs).job.fix))
    pricing = pricing_of(base)
    replicas = pipelines(base, pricing, expand(base, 0, alike_groups(base, 0).ranks))
    if not replicas or layout.pp < 2:
        raise InputError("the layout's ranks are no pipeline of one chunk each", where="strategy", fix="pp: 2, vpp: 1")
    problem = slowest(replicas, len(base.steps[0].micro_batches))
    made = search_sequences(problem, "step", inputs.effort, known(problem), inputs.seed)
    own = str(layout.schedule or "1f1b")
    names = dict.fromkeys((own, *(name for name in HAND_MADE if parts(base) or not name.startswith("zb"))))
    tried = {name: attempt(base, module, named(name, problem), made.effort) for name in names}
    order = written(made.found.order, parts(base))
    tried["made"] = attempt(in_sequence(base, made.sequence), module, order, made.effort)
    values = {name: each.outcome.value if isinstance(each, Plan) else inf for name, each in tried.items()}
    chosen = min(tried, key=lambda name: values[name])  # the first of equal ones, which are shorter to write
    best = tried[chosen]
    if isinstance(best, Infeasible):
        raise best
    others = [otherwise(layout, name, tried[name], best) for name in tried if name not in (chosen, "made")]
    return changed(best, instead=tuple(others))


def slowest(replicas: Sequence[Replica], micro_batches: int) -> Pipeline:
    """All replicas as one: of each micro-batch what it takes and holds where that is most."""
    rows = range(micro_batches)
    if len({row for each in replicas for row in each.rows}) < micro_batches:
        message = "no group works in some of the step's micro-batches, and an order has to name them all"
        raise InputError(message, where="strategy", fix="fewer micro-batches")

    def most(name: str) -> Rows:
        tables: list[Rows] = [getattr(each.pipeline, name) for each in replicas]
        places = [{row: place for place, row in enumerate(each.rows)} for each in replicas]
        return tuple(
            tuple(max(t[s][p[row]] if row in p else 0.0 for t, p in zip(tables, places, strict=True)) for row in rows)
            for s in range(len(tables[0]))
        )

    every = [each.pipeline for each in replicas]
    stages = range(every[0].stages)
    return Pipeline(
        **{name: most(name) for name in ("forward", "inputs", "weights", "ahead", "back", "held", "kept")},
        cap=tuple(min(each.cap[s] for each in every) for s in stages),
        after=tuple(max(each.after[s] for each in every) for s in stages),
    )


def known(problem: Pipeline) -> list[Order]:
    """The hand-made orders in letters; a whole backward is I and W at once."""
    letters = {"F": "F", "B": "IW", "I": "I", "W": "W"}
    named = (schedule(name, problem.stages, problem.micro_batches) for name in HAND_MADE)
    return [tuple("".join(letters[phase] for phase, _, _ in slots) for slots in ranks) for ranks in named]


def named(name: str, problem: Pipeline) -> str | tuple[str, ...]:
    """A hand-made order by its name; one of whole backwards slot by slot, as it was chosen among others."""
    slots = schedule(name, problem.stages, problem.micro_batches)
    return name if any(phase == "I" for of_stage in slots for phase, _, _ in of_stage) else printed(slots)


def written(order: Order, parted: bool) -> tuple[str, ...]:
    """The order as a plan says it."""
    return printed([slots_of(word, parted) for word in order])


def slots_of(word: str, parted: bool) -> list[Slot]:
    """Numbered; where backward is whole, it stands where I does."""
    slots: list[Slot] = []
    done = {"F": 0, "I": 0, "W": 0}
    for letter in word:
        if parted or letter != "W":
            slots.append(("F" if letter == "F" else "W" if letter == "W" else "I" if parted else "B", done[letter], 0))
        done[letter] += 1
    return slots


def in_sequence(base: Plan, sequence: Sequence[int]) -> Plan:
    """The base with its rows in another sequence; each stays whole, so that replicas meet as they did."""
    rows = base.steps[0].micro_batches
    return changed(base, steps=(changed(base.steps[0], micro_batches=tuple(rows[k] for k in sequence)),))


def attempt(base: Plan, module: str, order: str | tuple[str, ...], effort: str) -> Plan | Infeasible:
    """The base in this order, legal and scored."""
    step = changed(base.steps[0], order={module: order}, outcome=None, prediction=None)
    tried = changed(base, steps=(step,), instead=())
    for broken in violations(tried):
        return Infeasible(broken.message, where=broken.where, fix=broken.fix)
    try:
        return scored(tried, f"{base.outcome.effort}, {effort}")
    except Infeasible as error:
        return error


def otherwise(layout: Layout, name: str, tried: Plan | Infeasible, best: Plan) -> Instead:
    """What another order of the same passes gives."""
    ordered = changed(spoken(layout), schedule=name)
    said = Instead(
        strategy="pipeline_order",
        zero=layout.zero,
        sync=best.steps[0].sync,
        layouts={next(iter(best.layouts)): ordered},
    )
    if isinstance(tried, Infeasible):
        return changed(said, because=tried.message)
    slower = tried.outcome.value / best.outcome.value - 1
    because = f"{percent(slower)} slower" if slower > SAME else "as good"
    return changed(said, value=tidy(tried.outcome.value), because=because)
