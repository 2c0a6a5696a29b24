"""One decision over all modules of a job: where each encoder is and with which layout, beside which layout of the LLM.

Decision: of the LLM, that is the module of the samples, a layout of parallel_search's space, on all ranks or without
those that it leaves to encoders; of each encoder its place, among the LLM's ranks, on its first stage, or apart, and
tp, cp, pp, ZeRO, recomputation and offload of its own. Each line names the function that adds it:

    T ≈ max(T_llm + Σ T_encoder among its ranks, Σ T_encoder apart)   ranks candidates: candidate_seconds
        + Σ T_encoder apart / micro-batches                           (modality/joint_candidates.py)
    who works on which samples and items: least T, estimated          JointItems.best (assignment/joint_assignment.py)
    Σ bytes of modules on a rank ≤ what it may hold, by least time    CheapestRoom.fitting (modality/cheapest_room.py)
    T simulated: the quickest of each kind, trainers' own plans       search_job (modality/job_search.py)
    fields of the best changed one by one, while T falls              improve (modality/joint_search.py)
    least expected seconds of all that were simulated                 quickest_scored (static/tried_layouts.py)
    of T within the noise of the quickest, the plainest               plainest (modality/plain_layouts.py)
    no joint layouts take less                                        joint_bound (layouts/bounds/joint_bound.py)

The placements are those of MegaScale-Omni (encoders multiplexed with every pipeline stage), of Megatron-LM's first
stage, and of DistTrain (encoders disaggregated, arXiv 2408.04275); layouts of encoders do not depend on the LLM's.
"""

from dataclasses import replace
from functools import partial

from planner.errors import Infeasible
from planner.layouts import unbounded_jointly, with_joint_fields
from planner.plan.legal.plan_laws import require_legal
from planner.plan.plan_file import Plan
from planner.scoring import over_joint_space, with_score
from planner.specs.base import with_fields
from planner.specs.inputs import Inputs
from planner.strategies.assignment import JointItems
from planner.strategies.modality.job_search import search_job
from planner.strategies.modality.joint_alternatives import joint_alternatives
from planner.strategies.modality.joint_errors import nearest_error, require_possible_fields
from planner.strategies.modality.joint_search import JointSearch
from planner.strategies.modality.plain_layouts import conventional, plainest
from planner.strategies.static import quicker_assignment, solve_fixed, unsupported_together
from planner.strategies.static.tried_layouts import TriedLayouts, chosen_plan

SUMMARY = "encoders and LLM together: a layout of each, and the ranks of each: all, the first stage, or their own"

ASSIGNMENTS = (JointItems.best, JointItems.by_samples)  # that are tried of the layouts chosen in the end


def supports(inputs: Inputs) -> str | None:
    """Needs modules whose items the job defines, and ranks of one kind. Layouts of several batches are those of the
    first.
    """
    reason = unsupported_together(inputs)
    if reason:
        return reason
    if inputs.job.fix.items:
        return "modality_layout treats all samples alike: it does not take fix.items"
    return None


def plan(inputs: Inputs, base: Plan | None) -> Plan:
    """The best plan found. Raises Infeasible, naming what binds in the candidate that came nearest, and InputError for
    fixed fields that no layout has.
    """
    if fixes_stages(inputs):
        as_fixed = solve_fixed(inputs)
        return with_fields(as_fixed, made=with_fields(as_fixed.made, strategy=inputs.job.strategy))
    inputs = with_joint_fields(inputs)
    require_possible_fields(inputs)
    done = search_job(inputs)
    quickest = done.quickest_scored(partial(scored, inputs))
    if quickest is None:
        raise nearest_error(done)
    chosen = plainest_that_fits(inputs, done, quickest)
    plan = chosen_plan(
        chosen, quickest, conventional(done), f"{done.priced} joint layouts priced, {len(done.tried)} simulated"
    )
    require_legal(plan, str(inputs.file))
    bounded = plan if unbounded_jointly(inputs) else over_joint_space(plan)
    return with_fields(bounded, alternatives=joint_alternatives(done, chosen))


def fixes_stages(inputs: Inputs) -> bool:
    """Whether a job fixes every layout and which layers are on the stages of one, as layouts that are copied from a
    plan may: no search decides these.
    """
    fixed = inputs.job.fix.layouts
    return {*inputs.model.modules} <= {*fixed} and any(layout.stages for layout in fixed.values())


def plainest_that_fits(inputs: Inputs, done: JointSearch, quickest: TriedLayouts) -> TriedLayouts:
    """The plainest joint layouts near the quickest, with their scored plan; the quickest where that does not fit with
    its score, or takes too long.
    """
    plain = plainest(done, quickest)
    if plain.layouts != quickest.layouts:
        try:
            plan = scored(inputs, plain)
            if quickest.plan and plan.outcome.value <= (1.0 + inputs.job.within) * quickest.plan.outcome.value:
                return replace(plain, plan=plan)
        except Infeasible:  # by simulation
            pass
    return quickest


def scored(inputs: Inputs, one: TriedLayouts) -> Plan:
    """The plan of joint layouts with its score, by the quickest assignment that fits with it: outputs of frozen
    encoders may wait longer in the simulated step than in the order of its tasks, by which the search holds plans
    against memory. Raises Infeasible.
    """
    assert one.plan, "a plan that fits is scored"
    quicker = quicker_assignment(inputs, one.plan, one.seconds, ASSIGNMENTS)
    try:
        return with_score(quicker, "")
    except Infeasible:
        if quicker is one.plan:
            raise
        return with_score(one.plan, "")
