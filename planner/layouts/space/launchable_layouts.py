"""The layouts of a job that its framework can launch, with what of them is solved for before they are priced."""

import numpy as np

from planner.costs import DISPATCHES, seconds_by_dispatch
from planner.errors import InputError
from planner.layouts.space.layout_batches import columns_at
from planner.layouts.space.layout_fields import DISPATCH, EP_OVERLAP, SOLVED_FIELDS
from planner.layouts.space.layout_problem import LayoutProblem
from planner.layouts.space.layout_space import LayoutSpace, layout_space
from planner.layouts.space.rank_orders import ORDER_RULES, order_choices
from planner.plan.launchable.launch_refusals import launchable
from planner.plan.launchable.launch_rules import RULES, trained_facts
from planner.specs.base import with_fields
from planner.specs.parallelism import Parallelism

OTHER_RULES = tuple(rule for rule in RULES if rule not in ORDER_RULES)
OVERLAP_RULES = tuple(rule for rule in RULES if rule.name == "overlap of ep")
DISPATCH_RULES = tuple(rule for rule in RULES if rule.name.startswith("dispatch"))


def layouts_of(problem: LayoutProblem, fixed: Parallelism) -> LayoutSpace:
    """The layouts with the fixed fields that the job's framework can launch, of even stages. Raises InputError
    where the job says the layers of stages: a search divides them itself (layouts/bounds/split_bound.py).
    """
    trained = problem.trained
    if fixed.stages:
        fix = "fix the whole layout of every module, and ask planner predict; or leave stages out"
        raise InputError("the layers of stages are not searched", where="fix.layouts (stages)", fix=fix)
    per_node, schedules = problem.machine.network.per_node, problem.knobs.schedules
    found = with_ep_overlap(problem, with_dispatch(problem, layout_space(trained, per_node, fixed, schedules)))
    facts = trained_facts(trained.module, trained.ranks, trained.sizes)
    columns = {name: column for name, column in found.items() if name not in (*SOLVED_FIELDS, EP_OVERLAP)}
    able = launchable(columns, trained.fixed, facts, problem.knobs, OTHER_RULES)
    able &= np.any([choice.tried for choice in order_choices(problem, found)], axis=0)
    return {name: column[able] for name, column in found.items()}


def with_dispatch(problem: LayoutProblem, found: LayoutSpace) -> LayoutSpace:
    """The layouts, each with the quickest kind of dispatch among those that it can be launched with: of equals the
    first. It goes by the seconds of the mean micro-batch, with ranks in the default order or the job's; memory differs
    by communicators alone.
    """
    kinds = [DISPATCHES.index(each) for each in problem.dispatches]
    if len(kinds) == 1 or not len(found["tp"]):
        return {**found, DISPATCH: np.full_like(found[DISPATCH], kinds[0])}
    trained = problem.trained
    at = columns_at(trained, found)
    seconds = seconds_by_dispatch(trained.module, at, problem.machine, problem.dispatches)
    facts = trained_facts(trained.module, trained.ranks, trained.sizes)
    each = np.stack(np.broadcast_arrays(*seconds))
    for number, kind in enumerate(kinds):
        columns = {"ep": found["ep"], "etp": found["etp"], DISPATCH: np.full_like(found[DISPATCH], kind)}
        able = launchable(columns, trained.fixed, facts, problem.knobs, DISPATCH_RULES)
        each[number] = np.where(able, each[number], np.inf)
    return {**found, DISPATCH: np.asarray(kinds)[np.argmin(each, axis=0)]}


def with_ep_overlap(problem: LayoutProblem, found: LayoutSpace) -> LayoutSpace:
    """The layouts, with their exchanges with experts beside compute where the framework can launch that."""
    trained = problem.trained
    if "ep" not in trained.overlap or trained.module.routed_experts is None:
        return found
    facts, asked = trained_facts(trained.module, trained.ranks), with_fields(trained.fixed, overlap=("ep",))
    columns = {name: found[name] for name in ("pp", "vpp", "recompute")}
    able = launchable(columns, asked, facts, problem.knobs, OVERLAP_RULES) & (found["ep"] * found["etp"] > 1)
    return {**found, EP_OVERLAP: able.astype(np.int64)}
