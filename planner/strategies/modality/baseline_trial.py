"""One baseline simulated: the best of its first candidates that fit, given recomputation where they do not by
themselves.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice

from planner.errors import Infeasible, InputError
from planner.plan.plan_file import Layout
from planner.specs.base import with_fields
from planner.specs.inputs import Inputs
from planner.specs.parallelism import Parallelism
from planner.strategies.assignment.encoder_orders import EncoderOrder, possible_order
from planner.strategies.modality.joint_search import NO_LIMITS, JointTrials, Limits
from planner.strategies.static.tried_layouts import TriedLayouts

Layouts = dict[str, Layout]
FOLLOWING = EncoderOrder(at_once=True)  # of encoders as trainers have them: with their readers
FITTING = {1: 1, 2: 1, 3: 4, 4: 8}  # candidates that fit, of which the best is taken, by effort
CANDIDATES = 4  # times as many are looked at


def best_trial(
    trials: JointTrials,
    name: str,
    candidates: Iterable[Layouts],
    limits: Limits = NO_LIMITS,
    order: EncoderOrder = FOLLOWING,
) -> TriedLayouts:
    """The quickest by simulation, with encoders in this order; where none fits within the limits, the first, with what
    binds.
    """
    most, tried = FITTING[trials.inputs.effort], dict[str, TriedLayouts]()
    try:
        for layouts in islice(candidates, CANDIDATES * most):
            if str(layouts) not in tried:
                tried[str(layouts)] = with_recomputation(trials, layouts, order, name, limits)
            if sum(bool(each.plan or each.left_out) for each in tried.values()) == most:
                break
    except (Infeasible, InputError) as error:
        if not tried:
            return TriedLayouts({}, name, because=error.message)
    if not tried:
        return TriedLayouts({}, name, because="there are no such layouts")
    return min(tried.values(), key=lambda each: each.seconds)


def with_open_fields(inputs: Inputs, name: str, **fields: int) -> Inputs:
    """The job with these fields of a module's layout fixed, as far as it leaves them open. Raises InputError where what
    it fixes excludes them.
    """
    fix = inputs.job.fix
    given = fix.layouts.get(name, Parallelism())
    left = {field: value for field, value in fields.items() if getattr(given, field) is None}
    layouts = {**fix.layouts, name: with_fields(given, **left)}
    return replace(inputs, job=with_fields(inputs.job, fix=with_fields(fix, layouts=layouts)))


def with_recomputation(
    trials: JointTrials, layouts: Layouts, order: EncoderOrder, name: str, limits: Limits
) -> TriedLayouts:
    """The layouts simulated; where they do not fit, with encoders, then with all modules recomputed in full, which take
    longer.
    """
    inputs, every = trials.inputs, (layouts, *leaner_layouts(trials.inputs, layouts))
    orders = {each: possible_order(inputs, layouts, each, order) for each in layouts if each != inputs.module}
    tried = (trials.simulate(each, orders, name, limits) for each in every)
    return next((each for each in tried if each.plan or each.left_out), None) or trials.simulate(layouts, orders, name)


def leaner_layouts(inputs: Inputs, layouts: Layouts) -> Iterator[Layouts]:
    """The layouts with all encoders recomputed in full, then with all modules, as far as that is another."""
    encoders = {
        name: each if name == inputs.module else with_fields(each, recompute="full", offload=0.0)
        for name, each in layouts.items()
    }
    llm = layouts[inputs.module]
    schedule = "1f1b" if llm.schedule in ("zb_h1", "zb_h2") else llm.schedule
    every = {**encoders, inputs.module: with_fields(llm, recompute="full", offload=0.0, schedule=schedule)}
    yield from (each for each in (encoders, every) if each != layouts)
