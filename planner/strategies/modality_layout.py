"""One decision over all modules of a job: where each encoder is and with which layout, beside which layout of the LLM.

Decision: of the LLM, that is the module of the samples, a layout of parallel_search's space, on all ranks or without
those that it leaves to encoders; of each encoder its place, among the LLM's ranks, on its first stage, or apart, and
tp, cp, pp, ZeRO, recomputation and offload of its own (strategies/modality/joint_candidates.py). Samples and what they
read are assigned as in plans by hand (strategies/static/joint_plan.py). Candidates are ranked by the closed form of
each module,

    T ≈ max(T_llm + Σ T_encoder among its ranks, Σ T_encoder apart) + Σ T_encoder apart / micro-batches

the quickest of each kind are simulated, and fields of the best are changed one by one (joint_search.py). Of all that
were simulated, that of least expected seconds is chosen (scoring/expected_seconds.py).

The placements are those of MegaScale-Omni (encoders multiplexed with every pipeline stage), of Megatron-LM's first
stage, and of DistTrain (encoders disaggregated, arXiv 2408.04275); layouts of encoders do not depend on the LLM's.
"""

from planner.errors import Infeasible
from planner.layouts import unbounded_jointly, with_joint_fields
from planner.plan.legal.plan_laws import require_legal
from planner.plan.plan_file import Plan
from planner.scoring import over_joint_space, with_score
from planner.specs.base import with_fields
from planner.specs.inputs import Inputs
from planner.strategies.modality.job_search import search_job
from planner.strategies.modality.joint_alternatives import joint_alternatives
from planner.strategies.modality.joint_errors import nearest_error, require_possible_fields
from planner.strategies.modality.joint_search import JointSearch
from planner.strategies.static import JointItems, quicker_assignment, solve_together, unsupported_together

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
        as_fixed = solve_together(inputs)
        return with_fields(as_fixed, made=with_fields(as_fixed.made, strategy=inputs.job.strategy))
    inputs = with_joint_fields(inputs)
    require_possible_fields(inputs)
    done = search_job(inputs)
    scored = scored_best(inputs, done)
    require_legal(scored, str(inputs.file))
    bounded = scored if unbounded_jointly(inputs) else over_joint_space(scored)
    return with_fields(bounded, alternatives=joint_alternatives(done))


def fixes_stages(inputs: Inputs) -> bool:
    """Whether a job fixes every layout and which layers are on the stages of one, as layouts that are copied from a
    plan may: no search decides these.
    """
    fixed = inputs.job.fix.layouts
    return {*inputs.model.modules} <= {*fixed} and any(layout.stages for layout in fixed.values())


def scored_best(inputs: Inputs, done: JointSearch) -> Plan:
    """The plan of least expected seconds that fits with its score, too: outputs of frozen encoders may wait longer in
    the simulated step than in the order of its tasks, by which the search holds plans against memory. Raises Infeasible
    where none does.
    """
    work = f"{done.priced} joint layouts priced, {len(done.tried)} simulated"
    while (best := done.chosen) and best.plan:
        chosen, binding = quicker_assignment(inputs, best.plan, best.seconds, ASSIGNMENTS), ""
        for each in (chosen,) if chosen is best.plan else (chosen, best.plan):
            try:
                return with_score(each, work)
            except Infeasible as error:
                binding = error.message
        done.refuse(best, binding)
    raise nearest_error(done)
