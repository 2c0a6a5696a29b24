"""What a search asks of plans that it tries is what their scores say, with prices shared or not."""

from dataclasses import replace
from itertools import pairwise
from math import inf

import numpy as np
import pytest

from planner.costs import pricing_of, step_prices
from planner.errors import Infeasible
from planner.layouts import layouts_of, screen
from planner.plan.tasks.expand import expand
from planner.scoring import TriedPlan, score
from planner.scoring.tried_plan import least_peaks
from planner.specs.inputs import JobOptions, load_job
from planner.strategies.assignment.joint_assignment import JointItems
from planner.strategies.modality.joint_candidates import JointSpace, joint_candidates
from planner.strategies.modality.joint_changes import neighbours
from planner.strategies.modality.joint_search import CLEARLY_SLOWER, JointSearch, JointTrials, Limits
from planner.strategies.modality.module_space import ModuleSpace
from planner.strategies.static.layouts_plan import pricing_for
from tests.modality_jobs import seeing_job

EACH = 2  # of the candidates, and of the changes of each, about one in so many is tried


def every_layouts(inputs):
    """Candidates of a job, and changes of each."""
    for number, candidate in enumerate(joint_candidates(JointSpace(inputs))[::EACH]):
        others = [*neighbours(inputs, candidate.layouts)][number % EACH :: EACH * EACH]
        yield from ((layouts, candidate.orders) for layouts in (candidate.layouts, *others))


@pytest.fixture(scope="module")
def tried(tmp_path_factory):
    inputs = seeing_job(tmp_path_factory.mktemp("job"))
    trials = JointTrials(inputs)
    found = [trials.simulate(*one, "") for one in every_layouts(inputs)]
    fitting = [each for each in found if each.plan]
    assert len(fitting) > 60
    return trials, fitting


@pytest.mark.slow
def test_prices_that_plans_share_are_their_own_to_the_last_bit(tried):
    trials, fitting = tried
    for each in fitting[::12]:
        tasks = expand(each.plan)
        own, shared = (pricing_of(each.plan, prices) for prices in (None, trials.prices))
        prices = [step_prices(pricing, tasks) for pricing in (own, shared)]
        assert [prices[0](task) for task in tasks] == [prices[1](task) for task in tasks]
    assert len(trials.prices.known) < len(fitting)


@pytest.mark.slow
def test_seconds_and_memory_are_those_of_the_score(tried):
    for each in tried[1][::12]:
        scored, own = score(each.plan), TriedPlan(each.plan)
        assert own.step_seconds() == scored.step_seconds == pytest.approx(each.seconds, rel=1e-8)
        assert own.memory.peaks == pytest.approx(scored.memory.peaks, rel=1e-12)
        assert own.memory_share == pytest.approx(scored.memory_share(scored.fullest_rank), rel=1e-12)


@pytest.mark.slow
def test_ranks_hold_no_less_than_is_known_before_tasks_are_made(tried):
    exact = 0
    for each in tried[1]:
        own = TriedPlan(each.plan)
        least, peaks = np.array(least_peaks(each.plan, own.plan_memory, {})), np.array(own.memory.peaks)
        assert (least <= peaks * (1.0 + 1e-12)).all()
        exact += least.max() >= peaks.max() * (1.0 - 1e-9)
    assert exact > len(tried[1]) / 4


@pytest.mark.slow
def test_steps_take_no_less_than_is_known_before_tasks_are_made(tried):
    shares = [TriedPlan(each.plan).least_seconds / each.seconds for each in tried[1]]
    assert max(shares) <= 1.0 + 1e-8 and max(shares) > 0.6


@pytest.mark.slow
def test_what_takes_too_long_at_least_is_not_simulated_and_not_remembered(tried):
    trials, fitting = tried
    slow, least = next((each, own) for each in fitting if (own := TriedPlan(each.plan).least_seconds) < each.estimate)
    fresh = JointTrials(trials.inputs)
    left = fresh.simulate(slow.layouts, slow.orders, "", Limits(least=least * 0.99))
    assert left.plan is None and left.seconds == inf and left.least == least and "at least" in left.because
    assert fresh.simulate(slow.layouts, slow.orders, "", Limits(least=least)).seconds == slow.seconds


@pytest.mark.slow
def test_no_change_that_is_skipped_is_quicker_than_what_it_changes(tried):
    """Of the best layouts, from which a search goes on."""
    trials, fitting = tried
    quickest, skipped = sorted(fitting, key=lambda each: each.seconds), 0
    for start in quickest[:3]:
        for layouts in neighbours(trials.inputs, start.layouts):
            found = trials.simulate(layouts, start.orders, "")
            if found.plan and found.estimate > CLEARLY_SLOWER * start.estimate:
                skipped += 1
                assert found.seconds >= start.seconds * (1 - 1e-9)
    assert skipped > 5


@pytest.mark.slow
def test_what_is_estimated_as_too_slow_is_not_simulated_and_not_remembered(tried):
    trials, fitting = tried
    slow = max(fitting, key=lambda each: each.estimate)
    fresh = JointTrials(trials.inputs)
    left = fresh.simulate(slow.layouts, slow.orders, "", Limits(slow.estimate / CLEARLY_SLOWER))
    assert left.plan is None and left.seconds == inf and "estimated" in left.because
    assert fresh.simulate(slow.layouts, slow.orders, "").seconds == slow.seconds


TOO_MUCH = Infeasible("too much", where="memory", fix="less")


@pytest.mark.slow
def test_what_is_refused_is_not_the_best(tried):
    trials, fitting = tried
    done = JointSearch(trials=trials, most=len(fitting), priced=0, starts=fitting[:1])
    for each in fitting[1:9]:
        done.simulate(each)
    rising = done.rising
    for one, following in pairwise(rising):
        assert done.best is one
        done.refuse(one, TOO_MUCH)
        assert done.best is following and one not in done.rising


@pytest.mark.slow
def test_what_was_left_out_beside_one_that_is_refused_is_simulated(tried):
    trials, fitting = tried
    slow = max(fitting, key=lambda each: each.estimate)
    done, quick = (
        JointSearch(trials=JointTrials(trials.inputs), most=len(fitting), priced=0),
        replace(fitting[0], seconds=1e-6),
    )
    done.tried["quick"] = quick
    assert done.simulate(slow).least and done.best is quick
    done.refuse(quick, TOO_MUCH)
    assert done.best and done.best.seconds == slow.seconds


@pytest.mark.slow
def test_what_was_estimated_far_slower_than_one_that_is_refused_is_simulated(tried):
    trials, fitting = tried
    slow = max(fitting, key=lambda each: each.estimate)
    done, quick = (
        JointSearch(trials=JointTrials(trials.inputs), most=len(fitting), priced=0),
        replace(fitting[0], estimate=1e-6),
    )
    done.tried["quick"] = quick
    assert done.simulate(slow, done.far_slower).far and done.best is quick
    done.refuse(quick, TOO_MUCH)
    assert done.best and done.best.seconds == slow.seconds


@pytest.mark.slow
def test_estimates_have_the_bubble_of_a_pipeline(tried):
    trials, fitting = tried
    for each in (each for each in fitting if each.layouts[trials.inputs.module].pp > 1):
        joint = JointItems(pricing_for(trials.inputs, each.layouts), trials.inputs, each.layouts, each.orders)
        cells = joint.best().cells[trials.inputs.module]
        work = joint.placed([[*map(tuple, of_replica)] for of_replica in zip(*cells, strict=True)]).work
        own = sum(turn.seconds for turn in work.turns)
        waited = [(work.warm_up + work.drain)[[*ranks]].max() for ranks in work.replicas]
        assert min(waited) > 0.0 and each.estimate >= own.max() > max(waited)


@pytest.mark.parametrize("values", [{"tp": 2, "cp": 1}, {"zero": 1}, {"pp": 2, "micro_batch": 1}])
@pytest.mark.every(3)
def test_part_of_a_space_is_screened_as_by_itself(values):
    able = JointSpace(load_job("qwen2.5-vl-7b-h200x8", JobOptions())).llm(8)
    part, every = able.with_values(**values), layouts_of(able.problem, able.problem.trained.fixed)
    kept = np.logical_and.reduce([every[name] == value for name, value in values.items()])
    alone = ModuleSpace(able.problem, {name: column[kept] for name, column in every.items()})
    assert len(part.rising) and part.screened.seconds == pytest.approx(screen(able.problem, alone.layouts).seconds)
    assert [each.layout for each in part.quickest(4)] == [each.layout for each in alone.quickest(4)]
