"""One static layout of a module over equal ranks, for all micro-batches: the layout that other strategies start from.

Decision: tp, cp (a ring), pp with vpp chunks per rank, ep and etp of experts, ZeRO stage, recomputation, and sequences
per micro-batch, all dividing what they shard; dp is the rest. Every such layout is priced by the closed form

    T = m·t_slowest + (Σ_stages t − t_slowest)/vpp + sends + exposed exchange + update + overhead

(costs/step/static_step.py) and kept if its probability of running out of memory is one that the job allows
(costs/memory/footprint.py). The quickest few are simulated with the real sequences, longest first to the replica and
micro-batch with the least load. The bound is that of the busiest rank with the assignment given: it proves nothing
about other layouts, of which the plan names the next best.

The space is Megatron-LM's (arXiv 2104.04473, 2205.05198, 2504.14960) with ZeRO's stages (arXiv 1910.02054).
"""

from planner.errors import Infeasible
from planner.plan.plan_file import Plan
from planner.scoring import with_score
from planner.specs.base import with_fields
from planner.specs.hardware.rank_kinds import rank_kinds
from planner.specs.inputs import Inputs
from planner.strategies.plan_drafts import only_one_module
from planner.strategies.static.layout_change import infeasible_error
from planner.strategies.static.layout_screening import fixed_fields, layout_problem, screen_seconds, with_fixed_fields
from planner.strategies.static.layout_space import layout_space
from planner.strategies.static.simulated_layouts import layout_alternatives, simulate_best

SUMMARY = "one static layout: tensor, context, pipeline, expert and data parallelism, ZeRO, recomputation, micro-batch"


def supports(inputs: Inputs) -> str | None:
    """Needs one module, ranks of one kind, and one batch."""
    if len(inputs.model.modules) > 1:
        return only_one_module(inputs, "parallel_search")
    if len(rank_kinds(inputs.cluster)) > 1:
        return "parallel_search places a module on ranks of one kind"
    if len(inputs.batches) > 1:
        return "parallel_search decides the layout from one batch | solve it with --batches 1"
    if inputs.job.fix.items:
        return "parallel_search treats all sequences alike: it does not take fix.items"
    return None


def plan(inputs: Inputs, base: Plan | None) -> Plan:
    """The best layout found. Raises Infeasible, naming the binding limit."""
    inputs = with_fixed_fields(inputs)
    problem, fixed = layout_problem(inputs), fixed_fields(inputs)
    layouts = layout_space(problem.trained, problem.machine.network.per_node, fixed)
    if not len(layouts["tp"]):
        raise infeasible_error(problem, layouts, None, fixed)
    screened = screen_seconds(problem, layouts)
    simulated = simulate_best(inputs, problem, layouts, screened)
    if not simulated:
        raise infeasible_error(problem, layouts, screened, fixed)
    work = f"{len(layouts['tp'])} layouts, {len(simulated)} simulated"
    refused: list[Infeasible] = []
    for number, best in enumerate(simulated):
        try:
            return with_fields(
                with_score(best.plan, work),
                alternatives=layout_alternatives(inputs.module, problem, simulated[number:], layouts, screened),
            )
        except Infeasible as error:  # where micro-batches accumulate, a plan holds more than in the closed form
            refused.append(error)
    raise refused[0]
