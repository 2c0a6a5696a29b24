"""The order of forwards and of both halves of backwards on each stage of a pipeline (zero bubble, arXiv 2401.10241).

Decision: for each stage of a static layout with pp ≥ 2 and one chunk of layers per rank, the order of F, I (input
gradient, which the previous stage waits for) and W (weight gradient, which only the update waits for), within memory:
F allocates a micro-batch's activations, I releases what W does not need, and W the rest. With E(x, s) the end of a slot
on stage s, minimise the last end of all, where

    E(F k, s) ≥ E(F k, s − 1) + send + F,   E(I k, s) ≥ E(I k, s + 1) + send + I,   E(W k, s) ≥ E(I k, s) + W,

slots of a stage do not overlap, and Σ activations ≤ capacity − states at all times. Orders are constructed by rules,
beside the known schedules, and improved (orders/order_search.py). Where micro-batches differ, their sequence is decided
too (orders/sequence_search.py): micro-batches of the step are permuted, and forwards run 0, 1, 2, … in the new
sequence. The bound is over every order of these passes in any sequence (orders/any_sequence_bound.py). Each micro-batch
has its own seconds; where replicas differ, those of the slowest. With recomputed activations, backward is not split
(B), and only F and B are ordered.

The layout and the assignment are those of the refined strategy; the plan is never worse than that one's own.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import inf

from planner.costs import pricing_of
from planner.errors import Infeasible, Unsupported
from planner.layouts import with_joint_fields
from planner.orders import Order, PipelineProblem, StageTable, search_sequences
from planner.plan.descriptions import fixable_layout
from planner.plan.join_plans import round_digits
from planner.plan.legal.plan_laws import violations
from planner.plan.mesh.identical_groups import identical_groups
from planner.plan.plan_file import Alternative, Layout, Plan
from planner.plan.schedules import Slot, schedule_slots
from planner.plan.schedules.explicit import slot_lines
from planner.plan.tasks.expand import expand
from planner.scoring import ReplicaPipeline, replica_pipelines, splits_backward, with_score
from planner.specs.base import with_fields
from planner.specs.inputs import Inputs
from planner.specs.parallelism import Parallelism
from planner.units import percent

SUMMARY = "the order of forwards and both halves of backwards on each pipeline stage, in the memory there is"
EQUALLY_GOOD = 1e-6  # relative: orders that differ by less are equally good
KNOWN_SCHEDULES = ("1f1b", "zb_h1", "zb_h2", "gpipe")


def supports(inputs: Inputs) -> str | None:
    """Needs a pipeline with one chunk of layers per rank."""
    fixed = inputs.job.fix.layouts.get(inputs.module, Parallelism())
    if (fixed.pp or 1) < 2:
        return f"pipeline_order orders the stages of a pipeline: it needs fix.layouts.{inputs.module}.pp of 2 or more"
    if (fixed.vpp or 1) > 1:
        return "pipeline_order orders stages of one chunk of layers each: it needs vpp: 1"
    if fixed.schedule:
        return f"pipeline_order decides the order, and fix.layouts.{inputs.module}.schedule fixes it"
    return None


def inputs_for_base(inputs: Inputs) -> Inputs:
    """The job as given to the refined strategy: one chunk per rank, under 1F1B, since the order is decided here,
    nothing offloaded, which orders do not know, and the quickest, as orders of one's own are plain in no layout.
    """
    fix = inputs.job.fix
    fixed = fix.layouts.get(inputs.module, Parallelism())
    layouts = {**fix.layouts, inputs.module: with_fields(fixed, vpp=1, schedule="1f1b", offload=fixed.offload or 0.0)}
    return replace(inputs, job=with_fields(inputs.job, within=0.0, fix=with_fields(fix, layouts=layouts)))


def plan(inputs: Inputs, base: Plan | None) -> Plan:
    """The base with the best order found, which may be its own. Raises Infeasible."""
    if base is None:
        raise Unsupported("pipeline_order starts from a static layout", where="strategy", fix="solve the job whole")
    ((module, layout),) = base.layouts.items()
    base = with_fields(base, uses=with_fields(base.uses, fix=with_joint_fields(inputs).job.fix))
    pricing = pricing_of(base)
    replicas = replica_pipelines(base, pricing, expand(base, 0, identical_groups(base, 0).ranks))
    if not replicas or layout.pp < 2:
        raise Unsupported("the layout's ranks are no pipeline of one chunk each", where="strategy", fix="pp: 2, vpp: 1")
    problem = slowest_pipeline(replicas, len(base.steps[0].micro_batches))
    searched = search_sequences(problem, "step", inputs.effort, known_orders(problem), inputs.seed)
    own = str(layout.schedule or "1f1b")
    names = dict.fromkeys(
        (own, *(name for name in KNOWN_SCHEDULES if splits_backward(base) or not name.startswith("zb")))
    )
    tried = {name: try_order(base, module, schedule_as_order(name, problem), searched.effort) for name in names}
    order = order_as_text(searched.result.order, splits_backward(base))
    tried["made"] = try_order(permute_micro_batches(base, searched.sequence), module, order, searched.effort)
    values = {name: each.outcome.value if isinstance(each, Plan) else inf for name, each in tried.items()}
    chosen = min(tried, key=lambda name: values[name])  # of equal ones the first: a schedule's name is shorter to write
    best = tried[chosen]
    if isinstance(best, Infeasible):
        raise best
    others = [order_alternative(layout, name, tried[name], best) for name in tried if name not in (chosen, "made")]
    return with_fields(best, alternatives=tuple(others))


def slowest_pipeline(replicas: Sequence[ReplicaPipeline], micro_batches: int) -> PipelineProblem:
    """One pipeline for all replicas: the most seconds and bytes of each micro-batch over them. Raises Unsupported."""
    numbers = range(micro_batches)
    if len({number for each in replicas for number in each.micro_batches}) < micro_batches:
        message = "no group works in some of the step's micro-batches, and an order has to name them all"
        raise Unsupported(message, where="strategy", fix="fewer micro-batches")

    every = [each.pipeline for each in replicas]
    columns = [{number: column for column, number in enumerate(each.micro_batches)} for each in replicas]

    def most(tables: Sequence[StageTable]) -> StageTable:
        return tuple(
            tuple(
                max(t[s][c[number]] if number in c else 0.0 for t, c in zip(tables, columns, strict=True))
                for number in numbers
            )
            for s in range(len(tables[0]))
        )

    stages = range(every[0].stages)
    return PipelineProblem(
        forward=most([each.forward for each in every]),
        input_grads=most([each.input_grads for each in every]),
        weight_grads=most([each.weight_grads for each in every]),
        forward_sends=most([each.forward_sends for each in every]),
        backward_sends=most([each.backward_sends for each in every]),
        activations=most([each.activations for each in every]),
        kept_for_weights=most([each.kept_for_weights for each in every]),
        capacity=tuple(min(each.capacity[s] for each in every) for s in stages),
        tail_seconds=tuple(max(each.tail_seconds[s] for each in every) for s in stages),
    )


def known_orders(problem: PipelineProblem) -> list[Order]:
    """The known schedules as orders in letters; an unsplit backward is I directly followed by W."""
    letters = {"F": "F", "B": "IW", "I": "I", "W": "W"}
    named = (schedule_slots(name, problem.stages, problem.micro_batches) for name in KNOWN_SCHEDULES)
    return [tuple("".join(letters[phase] for phase, _, _ in slots) for slots in ranks) for ranks in named]


def schedule_as_order(name: str, problem: PipelineProblem) -> str | tuple[str, ...]:
    """A known schedule by its name; one of unsplit backwards slot by slot, as it was chosen among others."""
    slots = schedule_slots(name, problem.stages, problem.micro_batches)
    return name if any(phase == "I" for of_stage in slots for phase, _, _ in of_stage) else slot_lines(slots)


def order_as_text(order: Order, split: bool) -> tuple[str, ...]:
    """The order as a plan file states it."""
    return slot_lines([numbered_slots(word, split) for word in order])


def numbered_slots(word: str, split: bool) -> list[Slot]:
    """Slots with their micro-batches; an unsplit backward is where I is."""
    slots: list[Slot] = []
    done = {"F": 0, "I": 0, "W": 0}
    for letter in word:
        if split or letter != "W":
            slots.append(("F" if letter == "F" else "W" if letter == "W" else "I" if split else "B", done[letter], 0))
        done[letter] += 1
    return slots


def permute_micro_batches(base: Plan, sequence: Sequence[int]) -> Plan:
    """The base with its micro-batches permuted; each keeps all its groups, so that replicas synchronise as before."""
    micro_batches = base.steps[0].micro_batches
    return with_fields(
        base, steps=(with_fields(base.steps[0], micro_batches=tuple(micro_batches[k] for k in sequence)),)
    )


def try_order(base: Plan, module: str, order: str | tuple[str, ...], effort: str) -> Plan | Infeasible:
    """The base in this order, scored; or the reason why it is not legal or does not fit."""
    step = with_fields(base.steps[0], order={module: order}, outcome=None, prediction=None)
    tried = with_fields(base, steps=(step,), alternatives=())
    for violation in violations(tried):
        return Infeasible(violation.message, where=violation.where, fix=violation.fix)
    try:
        return with_score(tried, f"{base.outcome.effort}, {effort}")
    except Infeasible as error:
        return error


def order_alternative(layout: Layout, name: str, tried: Plan | Infeasible, best: Plan) -> Alternative:
    """Another order of the same passes, as an alternative of the plan."""
    ordered = with_fields(fixable_layout(layout), schedule=name)
    alternative = Alternative(
        strategy="pipeline_order",
        zero=layout.zero,
        sync=best.steps[0].sync,
        layouts={next(iter(best.layouts)): ordered},
    )
    if isinstance(tried, Infeasible):
        return with_fields(alternative, because=tried.message)
    slower = tried.outcome.value / best.outcome.value - 1
    because = f"{percent(slower)} slower" if slower > EQUALLY_GOOD else "as good"
    return with_fields(alternative, value=round_digits(tried.outcome.value), because=because)
