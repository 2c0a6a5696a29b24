"""The bound over the space of layouts that a plan was chosen from, found again from the plan alone."""

from dataclasses import replace

from planner.layouts import (
    JointProblem,
    LayoutProblem,
    TrainingSetup,
    joint_bound,
    layout_bounds,
    layouts_of,
    least_divided,
    mixed_work_bound,
    priced_machine,
    priced_problem,
    rank_counts,
    searched_overlap,
    space_bound,
)
from planner.plan.mesh.even_stages import has_even_stages
from planner.plan.plan_file import Plan
from planner.scoring.bounds.bounded_step import step_sizes
from planner.specs.base import with_fields
from planner.specs.hardware.cluster import entry_of_kind, rank_kinds, ranks_of_kind
from planner.specs.parallelism import Parallelism


def plan_space_seconds(plan: Plan) -> float:
    """Seconds that no layout of the space can beat, of several modules no layouts, ranks and assignments; infinite
    where nothing in it fits. The plan has one step, and its `uses.fix` all fields that were fixed.
    """
    if len(plan.layouts) > 1:
        return joint_bound(joint_problem_of_plan(plan))
    (name,) = plan.layouts
    if len(rank_kinds(plan.uses.cluster)) > 1:
        return mixed_work_seconds(plan, name)
    fixed = plan.uses.fix.layouts.get(name, Parallelism())
    return min(space_seconds_on(plan, name, count) for count in rank_counts(plan.size, fixed))


def mixed_work_seconds(plan: Plan, name: str) -> float:
    """Seconds that no layout of the only module can beat on ranks of several kinds, by its work on each."""
    cluster = plan.uses.cluster
    problems = {kind: problem_on_kind(plan, name, kind) for kind in rank_kinds(cluster)}
    return mixed_work_bound(problems, {kind: len(ranks_of_kind(cluster, kind)) for kind in problems})


def problem_on_kind(plan: Plan, name: str, kind: str) -> LayoutProblem:
    """The problem of the only module on all ranks, as if they were of this kind."""
    uses, own = plan.uses, problem_of_plan(plan, name, plan.size)
    machine = priced_machine(uses.cluster, uses.devices, uses.prices, kind)
    timed = entry_of_kind(uses.prices.modules, name, kind) is not None or bool(uses.prices.collectives)
    return replace(own, machine=machine, accounting=machine.accounting, by_rates=not timed)


def problem_of_plan(plan: Plan, name: str, count: int) -> LayoutProblem:
    """The problem of the only module on so many ranks, as if all were of the first kind."""
    uses = plan.uses
    fixed = with_fields(uses.fix.layouts.get(name, Parallelism()), ranks=None)
    sizes, overlap = tuple(step_sizes(plan, 0, name).values()), searched_overlap(fixed, uses.software.knobs)
    trained = TrainingSetup(uses.models[name], count, sizes, fixed, overlap=overlap)
    return priced_problem(trained, uses.cluster, uses.devices, uses.prices, uses.limits, uses.software.knobs)


def space_seconds_on(plan: Plan, name: str, count: int) -> float:
    """Seconds that no layout of the only module on so many ranks can beat."""
    problem = problem_of_plan(plan, name, count)
    trained = problem.trained
    found = layouts_of(problem, trained.fixed)
    return least_divided(problem, found, space_bound(problem, layout_bounds(problem, found)).seconds).seconds


def least_work(plan: Plan) -> float:
    """Ranks' seconds of all passes of a plan's module at least, whatever its layout: on n ranks no step takes less than
    an n-th of them.
    """
    problem = joint_problem_of_plan(plan)
    return problem.least_pass_seconds(problem.module)


def joint_problem_of_plan(plan: Plan) -> JointProblem:
    """What the bound of a plan of several modules is found from: all items that it has, which are those of its step."""
    uses = plan.uses
    return JointProblem(
        models=uses.models,
        edges=plan.edges,
        sizes={name: uses.items[name] for name in uses.models},
        fixed={name: fixed_of_plan(plan, name) for name in uses.models},
        cluster=uses.cluster,
        devices=uses.devices,
        prices=uses.prices,
        limits=uses.limits,
        knobs=uses.software.knobs,
        uneven=stages_are_open(plan) or not all(map(has_even_stages, plan.layouts.values())),
        repeated=uses.repeated,
    )


def stages_are_open(plan: Plan) -> bool:
    """Whether stages of pipelines might have other layers: something was searched, and the job says none."""
    fixed = any(layout.stages for layout in plan.uses.fix.layouts.values())
    return bool(plan.made.decided) and plan.uses.software.knobs.uneven_stages and not fixed


def fixed_of_plan(plan: Plan, name: str) -> Parallelism:
    """The fields of a module's layout that were fixed: all of them where nothing was searched. Layers of stages are
    none of them: where they are uneven, they may be any.
    """
    if plan.made.decided:
        return with_fields(plan.uses.fix.layouts.get(name, Parallelism()), stages=None)
    layout = plan.layouts[name]
    decided = {field: getattr(layout, field) for field in Parallelism.__struct_fields__ if field != "stages"}
    return Parallelism(**decided)
