"""How a module is spread over equal ranks, the same for all micro-batches: the layout other strategies start from.

Decision: tp, cp (a ring), pp with vpp chunks a rank, ep and etp of experts, ZeRO stage, recomputation, and sequences of
a micro-batch, all dividing what they split; dp is what is left. Every such layout is priced by the closed form

    T = m·t_slowest + (Σ_stages t − t_slowest)/vpp + sends + unhidden exchange + update + overhead

(costs/step/step.py) and kept if the memory model gives it a chance to run out of memory that the job allows
(costs/memory/footprint.py). The quickest few are simulated with the real sequences, longest first to the replica and
micro-batch that has least to do. The bound is of the busiest rank, given who does what: it proves nothing about other
layouts, of which the plan names the next best.

The space is Megatron-LM's (arXiv 2104.04473, 2205.05198, 2504.14960) with ZeRO's stages (arXiv 1910.02054).
"""

from planner.errors import Infeasible
from planner.plan.model import Plan
from planner.specs.base import changed
from planner.specs.inputs import Inputs
from planner.specs.kinds import kinds
from planner.strategies.base import left_out
from planner.strategies.static.best import best_of, instead
from planner.strategies.static.change import nothing_fits
from planner.strategies.static.screen import fixed_of, problem_of, settled, timed
from planner.strategies.static.space import space
from planner.verify.score import scored

SUMMARY = "one static layout: tensor, context, pipeline, expert and data parallelism, ZeRO, recomputation, micro-batch"


def supports(inputs: Inputs) -> str | None:
    """One module on ranks of one kind, one batch."""
    if len(inputs.model.modules) > 1:
        return left_out(inputs, "parallel_search")
    if len(kinds(inputs.cluster)) > 1:
        return "parallel_search spreads a module over ranks of one kind"
    if len(inputs.batches) > 1:
        return "parallel_search decides for one batch, as for all alike | solve it with --batches 1"
    if inputs.job.fix.items:
        return "parallel_search spreads all sequences alike: fix.items has no place in it"
    return None


def plan(inputs: Inputs, base: Plan | None) -> Plan:
    """The best layout found. Raises Infeasible, naming what binds."""
    inputs = settled(inputs)
    problem, fixed = problem_of(inputs), fixed_of(inputs)
    found = space(problem.trained, problem.machine.network.per_node, fixed)
    if not len(found["tp"]):
        raise nothing_fits(problem, found, None, fixed)
    screened = timed(problem, found)
    tried = best_of(inputs, problem, found, screened)
    if not tried:
        raise nothing_fits(problem, found, screened, fixed)
    work = f"{len(found['tp'])} layouts, {len(tried)} simulated"
    refused: list[Infeasible] = []
    for number, best in enumerate(tried):
        try:
            return changed(
                scored(best.plan, work), instead=instead(inputs.module, problem, tried[number:], found, screened)
            )
        except Infeasible as error:  # where micro-batches pile up, a plan holds more than the closed form counts
            refused.append(error)
    raise refused[0]
