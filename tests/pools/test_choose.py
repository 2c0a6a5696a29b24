"""What a pool gives a run: the front of brute force, whose points hold alone, and which more choices never worsen."""

from dataclasses import replace

import pytest

from planner import files, pipeline
from planner.callbacks import silent
from planner.errors import Infeasible
from planner.layouts import layout_problem, may_be_below, work_bound
from planner.pools import choose
from planner.pools.bills import tariff_of
from planner.pools.search import dominating, pool_search
from planner.scoring import with_bound_digest
from planner.specs.base import with_fields
from planner.specs.hardware.pool import Pool, PoolKind, Spot
from planner.specs.inputs import JobOptions, load_job
from tests.examples import soaked
from tests.pooled_jobs import bills, front_of, pooled, random_kinds
from tests.static_jobs import best_simulated

OPEN = "zero: 3, cp: 1, pp: 1, vpp: 1, recompute: full"  # tp and micro-batches are searched
H100 = PoolKind(kind="h100", counts=(8, 16))
A100 = PoolKind(kind="a100", counts=(8, 16, 24))


def undominated(every):
    """The choices to which no other is preferred, each (name, days, dollars): of equal ones the first."""
    front = []
    for at, (name, days, usd) in enumerate(every):
        others = [(d, u, number) for number, (_, d, u) in enumerate(every) if number != at]
        if not any(d <= days and u <= usd and ((d, u) != (days, usd) or number < at) for d, u, number in others):
            front.append((name, days, usd))
    return sorted(front, key=lambda each: each[1])


def every_bill(inputs, seconds_of):
    """The bill of each choice by itself, where the model fits."""
    found = []
    for offer in inputs.offers:
        try:
            seconds = seconds_of(offer.inputs)
        except Infeasible:
            continue
        bill = tariff_of(offer, inputs.job.run).bill(seconds)
        found.append((offer.offered.name, bill.days, bill.usd))
    return found


def one_by_one(inputs):
    return pipeline.decide(inputs).plan.prediction.step_seconds


@pytest.mark.parametrize("seed", soaked(range(24), (1, 2)))
def test_nothing_that_is_passed_over_is_of_the_front(tmp_path, seed):
    inputs = pooled(tmp_path, random_kinds(seed))
    every = every_bill(inputs, one_by_one)
    if every:
        assert bills(front_of(inputs)) == undominated(every)
    else:
        with pytest.raises(Infeasible):
            front_of(inputs)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(24))
def test_the_front_is_that_of_every_layout_by_simulation(tmp_path, seed):
    """Of the quickest layouts, with as many tried as the largest effort does."""
    options = JobOptions(effort=4, within=0.0)
    inputs = pooled(tmp_path, random_kinds(100 + seed), fixed=OPEN, options=options)

    def best(some):
        seconds = best_simulated(some, layout_problem(some))
        if seconds == float("inf"):
            raise Infeasible("nothing fits")
        return seconds

    every = every_bill(inputs, best)
    if every:
        for found, least in zip(bills(front_of(inputs)), undominated(every), strict=True):
            assert found[0] == least[0] and found[1:] == pytest.approx(least[1:], rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("fixed", [OPEN, "tp: 2, zero: 1", "dtype: float32, cp: 1"])
@pytest.mark.every(3)
def test_no_choice_is_quicker_than_the_work_on_it(tmp_path, fixed):
    inputs = pooled(tmp_path, (H100,), fixed=fixed)
    for offer in inputs.offers:
        problem, outcome = layout_problem(offer.inputs), pipeline.decide(offer.inputs).plan.outcome
        assert 0.0 < work_bound(problem) <= outcome.bound * (1.0 + 1e-9) and outcome.bound <= outcome.value
        assert may_be_below(problem, outcome.value * (1.0 + 1e-6))
        assert not may_be_below(problem, outcome.bound * (1.0 - 1e-6))


def test_what_is_always_interrupted_is_left_out(tmp_path):
    never = Spot(usd_per_hour=0.1, mean_hours=1e-5)
    answer = front_of(pooled(tmp_path, (with_fields(H100, counts=(8,), spot=never),)))
    assert [each.what for each in answer.left_out] == ["8xh100-80gb spot"] and len(answer.points) == 1


def test_what_states_alone_do_not_fit_on_is_infeasible(tmp_path):
    inputs = pooled(tmp_path, (PoolKind(kind="h100", counts=(1,)),), fixed="tp: 1")
    (offer,) = inputs.offers
    assert work_bound(layout_problem(offer.inputs)) == float("inf")
    with pytest.raises(Infeasible):
        pipeline.decide(offer.inputs)


@pytest.mark.slow
def test_every_point_by_itself_is_the_same_plan(tmp_path):
    """The job with the cluster of a point in place of its pool, and without the run."""
    for point in front_of(pooled(tmp_path, (H100, A100), fixed=OPEN)).points:
        name = point.point.offer.offered.name
        files.write(tmp_path / f"{name}.yaml", point.point.offer.offered.cluster)
        text = (tmp_path / "job.yaml").read_text().replace("pool.yaml", f"{name}.yaml").partition("run:")[0]
        (tmp_path / "alone.yaml").write_text(text)
        found = pipeline.solve(str(tmp_path / "alone.yaml"), JobOptions(effort=1)).plan
        same = with_fields(point.point.plan, uses=with_fields(point.point.plan.uses, sources=found.uses.sources))
        assert files.dump(with_bound_digest(same)) == files.dump(found)


def reached(answer):
    """Days and dollars of the front."""
    return [(days, usd) for _, days, usd in bills(answer)]


def is_no_worse(more, fewer):
    """Whether each point of a front has one of another that is neither later nor dearer."""
    return all(any(d <= days and u <= usd for d, u in reached(more)) for days, usd in reached(fewer))


@pytest.mark.slow
def test_more_choices_never_worsen(tmp_path):
    few = front_of(pooled(tmp_path, (with_fields(A100, counts=(8, 16)),)))
    more_nodes = front_of(pooled(tmp_path, (A100,)))
    more_kinds = front_of(pooled(tmp_path, (A100, H100)))
    assert is_no_worse(more_nodes, few) and is_no_worse(more_kinds, more_nodes)
    assert not is_no_worse(few, more_kinds)


@pytest.mark.slow
def test_several_kinds_at_once_are_of_the_front_where_counts_are_capped(tmp_path):
    """All of each kind at once is solved as any choice is, saves days, and no dollars."""
    kinds = (with_fields(H100, counts=(8, 16)), with_fields(A100, counts=(8, 16)))
    alone = pooled(tmp_path, kinds, fixed="tp: 2, cp: 1, pp: 1, zero: 1, recompute: full, micro_batch: 1")
    path = tmp_path / "pool.yaml"
    files.write(path, with_fields(files.read(path, Pool), mixed=True))
    both = load_job(str(tmp_path / "job.yaml"), JobOptions(effort=1))
    name = "16xh100-80gb+16xa100-80gb"
    assert [each.offered.name for each in both.offers] == [*(each.offered.name for each in alone.offers), name]
    answer = front_of(both)
    assert is_no_worse(answer, front_of(alone)) and answer.soonest.offer.offered.name == name
    assert bills(answer) == undominated(every_bill(both, one_by_one))
    cheapest = choose(replace(both, job=with_fields(both.job, objective="dollars")), pipeline.decide, silent)
    assert cheapest.chosen.offer.offered.name != name
    assert name in [each.tariff.offer.offered.name for each in cheapest.passed]


@pytest.mark.slow
def test_more_days_or_dollars_never_worsen(tmp_path):
    days = [front_of(pooled(tmp_path, (H100, A100), f"days: {days}")).cheapest.bill.usd for days in (10, 30, 99)]
    assert days == sorted(days, reverse=True) and days[0] > days[-1]
    usd = [front_of(pooled(tmp_path, (H100, A100), f"usd: {usd}")).soonest.bill.days for usd in (24.95e3, 26e3, 60e3)]
    assert usd == sorted(usd, reverse=True) and usd[0] > usd[-1]


@pytest.mark.parametrize("times", [3.0, pytest.param(0.5, marks=pytest.mark.slow)])
def test_prices_scale_bills(tmp_path, times):
    first, second = with_fields(H100, usd_per_hour=6.0), with_fields(A100, usd_per_hour=2.0)
    dearer = (with_fields(kind, usd_per_hour=kind.usd_per_hour * times) for kind in (first, second))
    each = [front_of(pooled(tmp_path, kinds)) for kinds in ((first, second), (*dearer,))]
    assert [name for name, _, _ in bills(each[0])] == [name for name, _, _ in bills(each[1])]
    assert [usd * times for _, _, usd in bills(each[0])] == pytest.approx([usd for _, _, usd in bills(each[1])])
    assert [days for _, days, _ in bills(each[0])] == [days for _, days, _ in bills(each[1])]


@pytest.mark.slow
def test_what_is_chosen_is_the_best_of_the_whole_front(tmp_path):
    for objective, limits in (("step_seconds", "usd: 25000"), ("dollars", "days: 12"), ("tokens_per_dollar", "")):
        inputs = pooled(tmp_path, (H100, A100), limits, objective=objective)
        whole = front_of(inputs)
        plan = pipeline.decide(inputs).plan
        assert plan.uses.cluster == whole.chosen.offer.offered.cluster
        assert plan.outcome.objective == objective
        best = whole.soonest if objective == "step_seconds" else whole.cheapest
        assert whole.chosen == best


def test_equal_choices_are_solved_once_and_the_first_is_taken(tmp_path):
    twice = (
        with_fields(H100, region="here"),
        with_fields(H100, region="there", spot=Spot(usd_per_hour=9.0, mean_hours=9)),
    )
    inputs, solved = pooled(tmp_path, twice), []
    search = pool_search(inputs.offers, inputs.job.run, lambda one: solved.append(one) or pipeline.decide(one), silent)
    points, passed = search.points("front", inputs.job.limits)
    assert len(solved) == 2 and len(points) + len(passed) == 6
    front = [point for point, by in dominating(points) if by is None]
    assert len(front) == 2 and {each.offer.offered.region for each in front} == {"here"}


@pytest.mark.slow
def test_a_budget_that_nothing_meets_is_told_what_it_would_take(tmp_path):
    inputs = pooled(tmp_path, (H100, A100), "usd: 100, days: 12")
    with pytest.raises(Infeasible) as caught:
        pipeline.decide(inputs)
    cheapest = front_of(pooled(tmp_path, (H100, A100), "days: 12")).cheapest
    assert f"${cheapest.bill.usd:,.0f} for the 12 days" in caught.value.fix and caught.value.exit_code == 3
    with pytest.raises(Infeasible, match="within 1e-05 days") as caught:
        pipeline.decide(pooled(tmp_path, (H100, A100), "days: 0.00001"))
    assert "days, on 24xa100-80gb" in caught.value.fix or "days, on 16xh100-80gb" in caught.value.fix


def test_limits_of_gpus_and_of_an_hour_leave_choices_out(tmp_path):
    inputs = pooled(tmp_path, (H100, A100), "gpus: 16, usd_per_hour: 60")
    assert [each.offered.name for each in inputs.offers] == ["8xh100-80gb", "8xa100-80gb", "16xa100-80gb"]
    assert {what for what, _ in inputs.left_out} == {"16xh100-80gb", "24xa100-80gb"}


def test_a_run_on_a_cluster_of_its_own_is_billed(tmp_path):
    """One kind and one count: the plan of the step, with its bill; and no plan where that is beyond the budget."""
    inputs = pooled(tmp_path, (with_fields(H100, counts=(8,)),))
    (offer,) = inputs.offers
    own = replace(inputs, offers=(), left_out=(), cluster=offer.offered.cluster)
    answer = front_of(own)
    assert files.dump(answer.solved.plan) == files.dump(pipeline.decide(offer.inputs).plan)
    assert bills(answer) == bills(front_of(inputs))
    with pytest.raises(Infeasible):
        front_of(replace(own, job=with_fields(own.job, limits=with_fields(own.job.limits, usd=1.0))))


def test_a_run_on_two_kinds_is_billed_by_both(tmp_path):
    job = tmp_path / "job.yaml"
    text = "format: planner.job/1\nname: two\nmodel: llama-3-8b\ncluster: h100x32-a100x32\nlayout: {zero: 3}\n"
    job.write_text(f"{text}workload: {{lengths: 4096, batch_rows: 64}}\ndegrees: [1]\nrun: {{tokens: 1e9}}\n")
    solved = pipeline.solve(str(job), JobOptions(effort=1))
    assert "on 32xh100-80gb+32xa100-80gb, simulated" in solved.told[0]
