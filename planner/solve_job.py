"""Solves a job batch by batch with its strategy, or with the best of those that apply."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter

from planner import files
from planner.callbacks import OnProgress
from planner.costs import OBJECTIVES, StepWork, find_objective
from planner.errors import Infeasible, InputError, Unsupported
from planner.layouts import fixed_fields, with_joint_fields
from planner.plan.descriptions import fixable_layout
from planner.plan.join_plans import join_plans
from planner.plan.launchable.launch_refusals import require_launchable, unlaunchable_error
from planner.plan.plan_file import Alternative, Asked, Decision, Plan
from planner.scoring import answer_about, restate_in_objective
from planner.specs.base import with_fields
from planner.specs.inputs import Inputs, JobOptions, load_job, require_chosen
from planner.specs.job import BY_HAND, Job
from planner.specs.workload.length_sources import SampleMix
from planner.strategies import (
    BEST,
    STRATEGIES,
    SolvedJob,
    base_strategy,
    best_of_candidates,
    decided_by,
    decides_layouts,
    refining_strategy,
    solving_strategy,
    strategy_called,
    strategy_deciding,
    unsupported,
)
from planner.strategies.static import (
    assign_batch,
    impossible_fields,
    solve_fixed,
    undefined_items,
    unsupported_together,
)
from planner.units import percent


def read_job(reference: str, options: JobOptions) -> Inputs:
    """Read a job, and all that it names. Raises InputError, also for a strategy or an objective that there is not."""
    return load_job(reference, options, {"strategy": (*STRATEGIES, BEST), "objective": OBJECTIVES})


@contextmanager
def answer_for(inputs: Inputs) -> Iterator[None]:
    """Errors of an answer about a job name its file for an impossible figure, and for impossible prices theirs."""

    def place_of(where: str) -> str:
        _, _, table, *entries = where.split(".", 3)
        name = "".join(entries)
        module, _, kind = name.partition("@")
        roles = {"modules": (f"profile {kind}", "profile"), "rates": (f"device {name}",), "timing": ("software",)}
        roles["collectives"] = ("profile",)
        path = next((inputs.sources[role] for role in roles[table] if role in inputs.sources), None)
        entry = (f"{inputs.model.name}/{module}",) if table == "modules" else ()
        return files.place(path, table, *entry) if path else where

    with answer_about(str(inputs.file), place_of):
        yield


def solve_job(inputs: Inputs, on_batch: OnProgress) -> SolvedJob:
    """The plan of all batches of a job. Raises InputError where the strategy does not support the job, or its software
    cannot launch what it fixes, and Infeasible.
    """
    require_objective(inputs)
    require_items(inputs)
    if inputs.job.strategy == BY_HAND:
        return solve_each(inputs, solve_fixed, on_batch)
    require_launchable(inputs, fixed_fields(inputs), "layout")
    require_possible(inputs)
    require_no_packs(inputs)
    if inputs.job.strategy == BEST:
        known = KnownPlans()
        strategies = {name: partial(solve_with, name, on_batch=on_batch, known=known) for name in STRATEGIES}
        return best_of_candidates(inputs, strategies, STRATEGIES)
    solved = solve_by_strategy(inputs, on_batch, KnownPlans())
    require_launchable_plan(solved.plan)
    return solved


def require_items(inputs: Inputs) -> None:
    """Raises Unsupported where a job fixes the layout of each of several modules, and not what one of them reads."""
    modules = inputs.model.modules
    reason = undefined_items(inputs) if len(modules) > 1 and {*modules} <= {*inputs.job.fix.layouts} else None
    if reason:
        raise unsupported_error(reason, files.place(inputs.sources["job"], "workload"))
    unable = unsupported_together(inputs) if inputs.job.strategy == BY_HAND else None
    if unable:
        raise unsupported_error(unable, f"{inputs.file} (fix.layouts)")


def unsupported_error(reason: str, where: str, usual_fix: str = "") -> Unsupported:
    """The error of a reason, with the fix that stands after ` | ` in it."""
    message, _, fix = reason.partition(" | ")
    return Unsupported(message, where=where, fix=fix or usual_fix)


def require_launchable_plan(plan: Plan) -> None:
    """Raises Infeasible where a strategy's plan is one that the job's software cannot launch."""
    if error := unlaunchable_error(plan, f"strategy: {BEST}; or "):
        raise error


class KnownPlans:
    """Plans of searches that others start from, by strategy: of those that are tried one after another, what refines
    one does not search again.
    """

    def __init__(self) -> None:
        self.found: dict[str, tuple[Inputs, Plan]] = {}

    def plan(self, inputs: Inputs, base: Plan | None) -> Plan:
        """The plan of one batch by the job's own strategy, from the plan that it starts from. Raises Infeasible."""
        name = inputs.job.strategy
        if base is None and name in self.found:
            of, plan = self.found[name]
            if (of.job, of.batches) == (inputs.job, inputs.batches):
                return plan
        found = strategy_called(name).plan(inputs, base)
        if base is None:
            self.found[name] = inputs, found
        return found


def solve_with(name: str, inputs: Inputs, on_batch: OnProgress, known: KnownPlans | None = None) -> SolvedJob:
    """The plan that a strategy of the table gives, whichever the job names; `known`: what others found for this job.
    Raises InputError and Infeasible.
    """
    named = replace(inputs, job=with_fields(inputs.job, strategy=name))
    return solve_by_strategy(named, on_batch, known or KnownPlans())


def require_possible(inputs: Inputs) -> None:
    """Raises InputError where no layout has the fields that the job fixes, whatever the others are; of several modules
    their strategy knows, as each may be on ranks of its own.
    """
    wrong = impossible_fields(inputs) if len(inputs.model.modules) == 1 else None
    if wrong:
        where = f"{inputs.sources.get('job', inputs.job.name)} (fix.layouts.{inputs.module})"
        raise InputError(wrong[0], where=where, fix=wrong[1])


def require_no_packs(inputs: Inputs) -> None:
    """Raises Unsupported where samples are to be packed, and a strategy decides micro-batches by itself."""
    if inputs.job.limits.inputs_per_rank and len(inputs.model.modules) == 1:
        where = files.place(inputs.sources["job"], "limits", "inputs_per_rank")
        message = "strategies keep tokens_per_rank; samples are packed to inputs_per_rank where layouts are fixed"
        raise Unsupported(message, where=where, fix="limits.tokens_per_rank; or planner predict, of a fixed layout")


def require_objective(inputs: Inputs) -> None:
    """Raises InputError where no such objective exists, or the cluster lacks what it needs (the price of a rank)."""
    objective = find_objective(inputs.job.objective, f"{inputs.sources.get('job', 'the job')} (objective)")
    try:
        objective.of(StepWork(1.0, inputs.cluster, inputs.devices, 1))
    except InputError as error:
        where = f"{inputs.sources.get('cluster', inputs.cluster.name)} (ranks)"
        raise InputError(error.message, where=where, fix=error.fix) from error


def solve_by_strategy(inputs: Inputs, on_batch: OnProgress, known: KnownPlans) -> SolvedJob:
    """Solves the job batch by batch with its own strategy. Raises Infeasible; where experts are whole on each of its
    ranks, it names the strategy that shards them.
    """
    require_supported(inputs)
    try:
        return solve_each(inputs, partial(refined_plan, known=known), on_batch)
    except Infeasible as error:
        search, sharded = able_strategy(inputs, "layouts"), decides_layouts(inputs.job.strategy)
        if inputs.spec.routed_experts is None or sharded or not search:
            raise
        fix = f"{error.fix}; or strategy: {search}, which shards experts over ranks"
        raise Infeasible(error.message, where=error.where, fix=fix) from error


def require_supported(inputs: Inputs) -> None:
    """Raises Unsupported where the job's strategy, or the one that it refines, does not support the job."""
    reason = unsupported_reason(inputs)
    if reason:
        able = (able_strategy(inputs, "layouts") if inputs.spec.routed_experts else "") or able_strategy(inputs)
        fix = f"strategy: {able}, or another job" if able else "change the job, or its strategy"
        raise unsupported_error(reason, f"{inputs.file} (strategy)", fix)


def able_strategy(inputs: Inputs, decision: Decision | None = None) -> str:
    """The first strategy of the table that can plan a job, and decides this by itself; "" where none can."""
    able = (name for name, entry in STRATEGIES.items() if not entry.refines and decision in (None, *entry.decides))
    return next((name for name in able if not unsupported(name, inputs)), "")


def refined_plan(inputs: Inputs, known: KnownPlans) -> Plan:
    """The plan of one batch by the job's own strategy."""
    base = base_plan(inputs, known)
    plan = known.plan(inputs, base)
    return with_fields(plan, alternatives=(*plan.alternatives, *unrefined_alternative(inputs, plan, known)))


def solve_each(inputs: Inputs, plan_of_batch: Callable[[Inputs], Plan], on_batch: OnProgress) -> SolvedJob:
    """The plans of all batches, joined, and the seconds that each took. Of several modules, the first batch decides the
    layouts: the samples and items of later ones are assigned to them.
    """
    several, plans, seconds = len(inputs.model.modules) > 1, list[Plan](), []
    for number, batch in enumerate(inputs.batches):
        on_batch(number, len(inputs.batches), "")
        start = perf_counter()
        alone = replace(inputs, batches=(batch,))
        plans.append(plan_with_layouts(alone, plans[0]) if several and plans else plan_of_batch(alone))
        seconds.append(perf_counter() - start)
    return SolvedJob(restate_in_objective(join_plans(plans), inputs.job.objective), tuple(seconds))


def plan_with_layouts(inputs: Inputs, first: Plan) -> Plan:
    """The plan of a batch with the layouts of an earlier one, refined as that was. Raises Infeasible where it does not
    fit.
    """
    name = first.made.strategy
    if "groups" in first.made.decided:
        return strategy_called(name).plan(inputs, first)
    assigned = assign_batch(inputs, first)
    return strategy_called(name).plan(inputs, assigned) if base_of(inputs) else assigned


def unsupported_reason(inputs: Inputs) -> str | None:
    """Why the job's strategy, or the one that it refines, does not support the job; None where both do."""
    reason = unsupported(inputs.job.strategy, inputs)
    return reason or (unsupported_reason(base_inputs_of(inputs)) if base_of(inputs) else None)


def base_of(inputs: Inputs) -> str:
    """The strategy from whose plan the job's own starts; empty where it starts from none."""
    return base_strategy(inputs.job.strategy, len(inputs.model.modules))


def base_inputs_of(inputs: Inputs) -> Inputs:
    """The job as given to the strategy that its own strategy refines."""
    base = refining_strategy(inputs.job.strategy).inputs_for_base(inputs)
    return replace(base, job=with_fields(base.job, strategy=base_of(inputs)))


def base_plan(inputs: Inputs, known: KnownPlans) -> Plan | None:
    """The plan that the job's strategy refines, recorded under the job's strategy name; None where it refines none.

    Raises Infeasible.
    """
    if not base_of(inputs):
        return None
    refined_inputs = base_inputs_of(inputs)
    base = known.plan(refined_inputs, base_plan(refined_inputs, known))
    own = inputs.job.strategy
    decided = base.made.decided | decided_by(own, len(inputs.model.modules))
    return with_fields(base, made=with_fields(base.made, strategy=own, decided=decided))


def unrefined_alternative(inputs: Inputs, chosen: Plan, known: KnownPlans) -> tuple[Alternative, ...]:
    """What the refined strategy gives by itself, as an alternative: its plan may be one that the refinement cannot
    start from.
    """
    name = base_of(inputs)
    base_inputs = replace(inputs, job=with_fields(inputs.job, strategy=name))
    if not name or unsupported(name, base_inputs):
        return ()
    try:
        plan = known.plan(base_inputs, base_plan(base_inputs, known))
    except Infeasible:
        return ()
    slowdown = plan.outcome.value / chosen.outcome.value - 1.0
    return (
        Alternative(
            strategy=name,
            zero=plan.layouts[inputs.module].zero,
            sync=plan.steps[0].sync,
            value=plan.outcome.value,
            because=f"what {name} gives alone, {percent(abs(slowdown))} {'slower' if slowdown >= 0 else 'quicker'}",
            groups="groups" in plan.made.decided,
            layouts={module: fixable_layout(layout) for module, layout in plan.layouts.items()},
        ),
    )


def static_inputs(job: str, options: JobOptions) -> Inputs:
    """The inputs of a job that static layouts can be of, one for each of its modules. Raises InputError."""
    inputs = read_job(job, options)
    require_chosen(inputs)
    require_objective(inputs)
    of_several = len(inputs.model.modules) > 1
    search = strategy_deciding("layouts", len(inputs.model.modules))
    reason = unsupported_together(inputs) if of_several else unsupported(search, inputs)
    if reason:
        message, _, fix = reason.replace(search, "a static layout").partition(" | ")
        raise InputError(message, where=job, fix=fix or "another job")
    return inputs


def per_batch_inputs(job: str, options: JobOptions) -> Inputs:
    """The inputs of a job whose strategy decides each batch by itself. Raises InputError."""
    inputs = read_job(job, options)
    require_chosen(inputs)
    if inputs.job.strategy == BY_HAND:
        raise InputError(
            "the job fixes the layout of every module", where=f"{job} (fix.layouts)", fix="leave --static out"
        )
    if decides_layouts(inputs.job.strategy):
        message = f"the strategy {inputs.job.strategy} gives one layout for all batches already"
        raise InputError(message, where=f"{job} (strategy)", fix="leave --static out")
    return inputs


def inputs_of_mixes(job: str, options: JobOptions) -> Inputs:
    """The inputs of a job of several modules that draws its samples, and whose layouts are to be decided together.
    Raises InputError.
    """
    inputs = read_job(job, replace(options, mix=None, lengths=None))
    require_chosen(inputs)
    path, lengths = inputs.sources["job"], inputs.job.workload.lengths
    if options.lengths or not isinstance(lengths, SampleMix):
        where = "--lengths" if options.lengths else files.place(path, "workload", "lengths")
        fix = "lengths: {from: sample_mix, text: ..., images: ...}"
        raise InputError("the job's samples are not drawn, and have the one mix that they have", where=where, fix=fix)
    together = strategy_deciding("layouts", len(inputs.model.modules))
    if inputs.job.strategy not in (together, BEST):
        message = f"the strategy {inputs.job.strategy} does not decide layouts of several modules together"
        raise InputError(message, where=f"{path} (strategy)", fix=f"strategy: {together}")
    inputs = with_joint_fields(replace(inputs, job=with_fields(inputs.job, strategy=together, planning="ahead")))
    require_objective(inputs)
    require_items(inputs)
    require_supported(replace(inputs, batches=inputs.batches[:1]))
    require_launchable(inputs, fixed_fields(inputs), "layout")
    require_possible(inputs)
    return inputs


def inputs_again(job: Path, plan: Plan) -> Inputs:
    """The inputs of a job with the options of a plan, and the same file of lengths if that is still there.

    Raises InputError.
    """
    made, lengths = plan.made, plan.uses.sources.get("lengths")
    path = job.parent / lengths.path if lengths else None
    given = str(path) if path and os.path.isfile(path) else None
    return read_job(
        str(job), JobOptions(made.batches, made.first_row, made.seed, made.effort, given, within=plan.uses.asked.within)
    )


def with_asked(plan: Plan, job: Job) -> Plan:
    """The plan with what its job asked, so that it tells its whole problem."""
    strategy = "" if job.strategy == plan.made.strategy else job.strategy
    asked = Asked(
        strategy=strategy, layout=job.layout, degrees=job.degrees, sync=job.sync, within=job.within, tables=job.tables
    )
    return with_fields(plan, uses=with_fields(plan.uses, asked=asked))


def asked_strategy(plan: Plan) -> str:
    """The strategy that a plan's job asked for."""
    return plan.uses.asked.strategy or solving_strategy(plan.made)


def with_asks_of(inputs: Inputs, plan: Plan) -> Inputs:
    """The inputs, of which what the job asks, and the software, are those of a plan."""
    uses, prices = plan.uses, plan.uses.prices
    job = with_fields(
        inputs.job,
        limits=uses.limits,
        fix=uses.fix,
        loss=uses.loss,
        layout=uses.asked.layout,
        degrees=uses.asked.degrees,
        sync=uses.asked.sync,
        within=uses.asked.within,
        tables=uses.asked.tables,
        strategy=asked_strategy(plan),
        objective=plan.outcome.objective,
    )
    return replace(
        inputs,
        job=job,
        software=uses.software,
        timing=prices.timing,
        accounting=prices.accounting,
        software_spread=prices.spread,
        own_runs=prices.own_runs,
    )
