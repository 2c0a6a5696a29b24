"""Seconds and memory of every layout of a space by the closed form, evaluated as arrays over layouts."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from math import ceil, log10

import numpy as np
from numpy.typing import NDArray

from planner.costs import LayoutColumns, columns_where, joined_columns, layout_count
from planner.costs.memory import OFFLOAD_STEPS, StageBytes, layers_on_stage, oom_chance, stages_bytes
from planner.costs.step import StepSeconds, static_step_seconds
from planner.layouts.screening.recomputed_layers import fullest_bytes, offloaded_bytes, solved_recompute
from planner.layouts.screening.solved_offload import (
    host_room,
    named_parts,
    offload_is_open,
    searched_offload,
    with_offload,
    with_offloaded_parts,
)
from planner.layouts.screening.solved_optimizer_offload import optimizer_offload_is_open, with_optimizer_offload
from planner.layouts.screening.unequal_batches import micro_batch_counts, unequal_batches
from planner.layouts.space.launchable_layouts import with_ep_overlap
from planner.layouts.space.layout_batches import column_batches
from planner.layouts.space.layout_fields import (
    EP_OVERLAP,
    FULL_LAYERS,
    OFFLOAD,
    OFFLOADS,
    RANK_ORDER,
    SOLVED_FIELDS,
    columns_for,
)
from planner.layouts.space.layout_problem import LayoutProblem
from planner.layouts.space.layout_space import LayoutSpace
from planner.layouts.space.rank_orders import OrderChoice, order_choices, orders_of
from planner.plan.plan_file import Layout
from planner.specs.layers import Module
from planner.specs.parallelism import ZERO_BUBBLE

Floats = NDArray[np.float64]
SAME_SECONDS = 1e-9  # share of a step by which orders differ that only round differently


@dataclass(frozen=True, slots=True)
class ScreenedLayouts:
    """Results by layout, (layouts,) each."""

    layouts: LayoutSpace  # with the layers that each recomputes in full, and the shares that it offloads
    seconds: Floats  # of a step
    bytes_needed: Floats  # bytes on the fullest rank

    def oom_chance(self, problem: LayoutProblem, place: int) -> float:
        """The chance that one layout runs out of memory."""
        if problem.limits.tokens_per_rank is not None:
            return 0.0 if self.fits(problem)[place] else 1.0
        return float(oom_chance(self.bytes_needed[place], problem.device_bytes, problem.accounting.spread))

    def fits(self, problem: LayoutProblem) -> NDArray[np.bool_]:
        """Whether each layout fits."""
        return np.asarray(self.bytes_needed <= problem.allowed)


def screen(problem: LayoutProblem, found: LayoutSpace) -> ScreenedLayouts:
    """Seconds and memory of every layout of a space, each with as little offloaded and as few layers recomputed in
    full as fit, and its ranks in the quickest order if it fits. Seconds are rounded to nine digits, so that ties are
    ties on every machine.
    """
    return screen_each([problem], found)[0]


def screen_each(problems: Sequence[LayoutProblem], found: LayoutSpace) -> list[ScreenedLayouts]:
    """Seconds and memory of every layout of a space in each of several problems that differ only in the bytes `beside`
    the module: together they take little longer than one, as what stages hold is computed once.
    """
    problem, shape = problems[0], (len(problems), len(found["tp"]))
    found = with_ep_overlap(problem, found)
    orders = order_choices(problem, found)
    solved = {name: np.zeros(shape, dtype=np.int64) for name in (*SOLVED_FIELDS, EP_OVERLAP)}
    seconds, needed = np.zeros(shape), np.zeros(shape)
    for places, at in column_batches(problem.trained, found):
        held, every = fullest_columns(problem, at), list[LayoutColumns]()
        stages = stages_of(problem, held)
        for number, each in enumerate(problems):
            own, needed[number, places] = fitted(each, at, held, stages)
            for name, column in solved_numbers(problem, own).items():
                solved[name][number, places] = column
            every.append(replace(own, offloaded_parts=0))  # which no second depends on
        fits = np.stack([needed[number, places] <= each.allowed for number, each in enumerate(problems)])
        tried = orders_of(orders, np.tile(places, len(problems)), fits.ravel())
        own_seconds, chosen = quickest_order(problem, joined_columns(every), tried)
        seconds[:, places], solved[RANK_ORDER][:, places] = (each.reshape(fits.shape) for each in (own_seconds, chosen))
    return [
        ScreenedLayouts({**found, **{name: column[number] for name, column in solved.items()}}, rounded(own), bytes_)
        for number, (own, bytes_) in enumerate(zip(seconds, needed, strict=True))
    ]


def solved_numbers(problem: LayoutProblem, at: LayoutColumns) -> LayoutSpace:
    """What was solved for, as a table of layouts has it."""
    layers = np.rint(at.full_recompute * layers_on_stage(problem.trained.module, at, 0))
    open_ = [name for name in OFFLOADS if getattr(problem.trained.fixed, name) is None]
    shares = {name: np.rint(getattr(at, name) * OFFLOAD_STEPS) for name in open_}
    if OFFLOAD in shares and np.any(at.offloaded_parts):
        shares[OFFLOAD] = -np.rint(at.offload * at.offloaded_parts)
    overlaps = np.broadcast_to("ep" in at.overlap, layers.shape) & ~loses_overlap(problem, at)
    return {
        FULL_LAYERS: layers,
        EP_OVERLAP: overlaps,
        **shares,
    }


def rounded(seconds: Floats) -> Floats:
    """Seconds rounded to nine digits of the least."""
    return np.round(seconds, 9 - ceil(log10(seconds.min()))) if len(seconds) else seconds


def anything_fits(problem: LayoutProblem, found: LayoutSpace) -> bool:
    """Whether any layout of a space fits."""
    return any(
        (with_memory(problem, at, fullest_columns(problem, at))[1] <= problem.allowed).any()
        for _, at in column_batches(problem.trained, found)
    )


def quickest_order(
    problem: LayoutProblem, at: LayoutColumns, orders: Sequence[OrderChoice]
) -> tuple[Floats, NDArray[np.int64]]:
    """Seconds of a step in the quickest order of ranks, and its place in RANK_ORDERS; of equals the first."""
    seconds, chosen = np.full(at.tp.shape, np.inf), np.zeros(at.tp.shape, dtype=np.int64)
    for choice in orders:
        (tried,) = np.nonzero(choice.tried)
        if len(tried):
            some = replace(columns_where(at, choice.tried), rank_order=choice.rank_order)
            own = seconds_of(problem, some)
            better = own < seconds[tried] * (1.0 - SAME_SECONDS)
            seconds[tried[better]], chosen[tried[better]] = own[better], choice.place
    return seconds, chosen


def loses_overlap(problem: LayoutProblem, at: LayoutColumns) -> NDArray[np.bool_]:
    """Whether layouts recompute layers in full beside which their framework does not overlap ep."""
    searched = "ep" in at.overlap and "ep" in problem.trained.overlap and problem.knobs.ep_overlap == "interleaved"
    return np.asarray((np.asarray(at.full_recompute) > 0.0) & searched)


def seconds_of(problem: LayoutProblem, at: LayoutColumns) -> Floats:
    """Seconds of a step, (layouts,), with the overlap that they can have."""
    alone = loses_overlap(problem, at)
    seconds = overlapped_seconds(problem, at)
    if alone.any():
        some = replace(columns_where(at, alone), overlap=at.overlap - {"ep"})
        seconds[alone] = overlapped_seconds(problem, some)
    return seconds


def overlapped_seconds(problem: LayoutProblem, at: LayoutColumns) -> Floats:
    """Seconds of a step, (layouts,); for unequal sequences at least those of the longest alone on one replica."""
    trained = problem.trained
    if trained.equal_lengths:
        return np.asarray(static_step_seconds(trained.module, at, problem.machine, by_cause=False).seconds)
    shared = replace(at, micro_batch=trained.mean_sequences / (at.pipelines * micro_batch_counts(trained, at)))
    longest = replace(at, seq=float(max(trained.sizes)), batch=at.pipelines, micro_batch=1.0)
    both, count = joined_columns([shared, longest]), layout_count(at)
    step = static_step_seconds(trained.module, both, problem.machine, by_cause=False)
    own = StepSeconds(*(np.asarray(part)[:count] if np.ndim(part) else part for part in astuple(step)))
    alone = np.broadcast_to(step.seconds, (2 * count,))[count:]
    return np.asarray(np.maximum(with_unequal_batches(problem, at, own), alone))


def with_unequal_batches(problem: LayoutProblem, at: LayoutColumns, step: StepSeconds) -> Floats:
    """Seconds of a step of unequal micro-batches: the fullest replica's, or of the slowest in each micro-batch where
    all join it; and the largest fills and drains the pipeline, in which no other of its stage's passes can run.
    """
    unequal = unequal_batches(problem.trained, at, problem.machine)
    joined = joins_micro_batches(problem.trained.module, at)
    longer = np.where(joined, unequal.in_step, unequal.fullest_replica) - 1.0
    passes = step.compute + step.tp + step.cp + step.ep
    return np.asarray(step.seconds + longer * passes + (unequal.largest - 1.0) * step.bubble)


def joins_micro_batches(module: Module, at: LayoutColumns) -> NDArray[np.bool_]:
    """Whether all ranks of a stage take part in every micro-batch, as plans have it
    (plan/mesh/synchronisation.py).
    """
    moe = module.routed_experts
    return np.asarray((np.asarray(at.zero) >= 3) | (at.ep * at.etp > 1) | (moe is not None and moe.balance > 0))


def with_memory(problem: LayoutProblem, at: LayoutColumns, held: LayoutColumns) -> tuple[LayoutColumns, Floats]:
    """The layouts with the layers that they recompute in full and the shares that they offload of activations and, if
    nothing else fits, of the optimizer's moments; and the bytes on the fullest rank, or where the job limits tokens
    instead, 0 or infinity. `held`: the same layouts with the micro-batches that memory has to hold.
    """
    return fitted(problem, at, held, stages_of(problem, held))


def stages_of(problem: LayoutProblem, held: LayoutColumns) -> list[StageBytes]:
    """What the stages of layouts hold; nothing where the job limits tokens instead."""
    limited = problem.limits.tokens_per_rank is not None
    parts = searched_offload(problem)
    return [] if limited else [*stages_bytes(problem.trained.module, held, problem.accounting, parts=parts)]


def fitted(
    problem: LayoutProblem, at: LayoutColumns, held: LayoutColumns, stages: list[StageBytes]
) -> tuple[LayoutColumns, Floats]:
    """The layouts with what they recompute and offload so that they fit, and the bytes on the fullest rank, of what
    their `stages` hold.
    """
    most = problem.limits.tokens_per_rank
    if most is not None:
        tokens = np.rint(held.micro_batch * held.seq) / (at.tp * at.cp)
        return at, np.where(tokens > most, np.inf, 0.0)
    share, offload, open_ = np.broadcast_to(at.full_recompute, at.tp.shape), at.offload, recompute_is_open(problem, at)
    if open_:
        whole = "ranges" not in problem.knobs.recompute
        share = solved_recompute(stages, problem.allowed, problem.accounting, whole, offload)
    parts = at.offloaded_parts
    if offload_is_open(problem, at):
        solve = with_offloaded_parts if searched_offload(problem) else with_offload
        share, offload, parts = solve(problem, at, stages, share, open_)
        stages = [stage.naming(named_parts(problem, parts)) for stage in stages] if np.any(parts) else stages
    solved = replace(at, full_recompute=share, offload=offload, offloaded_parts=parts)
    needed = fullest_bytes(stages, share, problem.accounting.fragmentation, offload)
    if optimizer_offload_is_open(problem):
        solved, needed = with_optimizer_offload(problem, at, solved, stages, needed)
    host = offloaded_bytes(stages, solved.full_recompute, solved.offload, solved.optimizer_offload)
    return solved, np.where(host > host_room(problem, at), np.inf, needed)


def recompute_is_open(problem: LayoutProblem, at: LayoutColumns) -> bool:
    """Whether layers may be recomputed in full: the job does not say, the framework can, beside offload where there is
    any, and backward is in one piece.
    """
    fixed = problem.trained.fixed
    if fixed.offload and problem.knobs.offload == "alone":
        return False
    return fixed.recompute is None and at.schedule not in ZERO_BUBBLE and "full" in problem.knobs.recompute


def fullest_columns(problem: LayoutProblem, at: LayoutColumns) -> LayoutColumns:
    """The layouts with equal micro-batches, each as large as the one with most tokens, which memory has to hold."""
    trained = problem.trained
    if trained.equal_lengths:
        return at
    longest = float(max(trained.sizes))
    sequences = unequal_batches(trained, at, problem.machine).most_tokens / longest
    batch = micro_batch_counts(trained, at) * at.pipelines * sequences
    return replace(at, seq=longest, batch=batch, micro_batch=sequences)


def closed_form_parts(problem: LayoutProblem, layout: Layout) -> StepSeconds:
    """Seconds of a step by part, from the closed form."""
    return static_step_seconds(problem.trained.module, columns_for(layout, problem.trained), problem.machine)
