"""Comparing plans: the same say nothing, worse is the mirror of better, and stale inputs are not a worse plan."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from planner.check import Tolerances, compare, exit_code
from planner.check.checked_plan import as_stated
from planner.check.finding import classify_gap, classify_value
from planner.check.parts import Part, part_findings
from planner.plan.legal.plan_laws import violations
from planner.specs.base import with_fields
from planner.specs.job import Limits
from tests.check.small_plans import (
    WEB,
    at,
    categories,
    one_by_one,
    other_digest,
    repriced,
    restated,
    solve,
    with_rows,
    write_job,
)
from tests.examples import examples
from tests.plans import encoder_plan, staged_plan, timed


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    return write_job(tmp_path_factory.mktemp("job"))


@pytest.fixture(scope="module")
def plan(job):
    return solve(job)


@pytest.fixture(scope="module")
def batches(tmp_path_factory):
    """One batch, and two of which it is the first."""
    path = write_job(tmp_path_factory.mktemp("job"), lengths=WEB)
    return solve(path), solve(path, batches=2)


# ------------------------------------------------------------------------------------------------------ the same


@pytest.mark.slow
def test_identical_plans_have_no_findings(plan, batches):
    assert compare(plan, plan) == []
    assert [compare(solved, solved) for solved in batches] == [[], []]


@pytest.mark.slow
@examples(7)
@given(rows=st.integers(1, 24), seed=st.integers(0, 99), batches=st.integers(1, 2), effort=st.integers(1, 2))
def test_no_plan_differs_from_itself(tmp_path_factory, rows, seed, batches, effort):
    path = write_job(tmp_path_factory.mktemp("job"), rows)
    solved = solve(path, seed=seed, batches=batches, effort=effort)
    assert compare(solved, solved) == []
    assert compare(solved, solve(path, seed=seed, batches=batches, effort=effort)) == []


def test_names_of_groups_and_their_order_in_a_row_are_no_decisions(plan):
    names = {name: f"team-{number}" for number, name in enumerate(plan.groups)}
    rows = tuple({names[n]: row[n] for n in reversed(row)} for row in plan.steps[0].micro_batches)
    groups = {names[name]: group for name, group in plan.groups.items()}
    assert compare(plan, with_fields(with_rows(plan, rows), groups=groups)) == []


# ------------------------------------------------------------------------------------------------ worse and better


def test_slower_decisions_are_a_regression_and_say_what_moved(plan):
    findings = compare(plan, one_by_one(plan))
    (worse,) = at(findings, "outcome.value")
    assert worse.category == "regression"
    assert worse.new > worse.old == pytest.approx(plan.outcome.value, rel=1e-6)
    assert at(findings, "outcome.gap")[0].category == "regression"
    (rows,) = at(findings, "steps[0].micro_batches")
    assert rows.category == "drift"
    assert "items moved" in rows.message
    assert "16 of 16 micro-batches differ: [0] " in rows.message
    assert "nothing → ⟨2⟩ and" in rows.message
    assert exit_code(findings) == 1


def test_faster_decisions_are_a_gain(plan):
    findings = compare(one_by_one(plan), plan)
    assert at(findings, "outcome.value")[0].category == "gain"
    assert exit_code(findings) == 0


def test_other_decisions_of_the_same_worth_are_a_drift(plan):
    mirrored = with_rows(plan, plan.steps[0].micro_batches[::-1])
    (order,) = compare(plan, mirrored)
    assert (order.category, order.message) == ("drift", "the same micro-batches in another order")
    reordered = tuple({name: items[::-1] for name, items in row.items()} for row in plan.steps[0].micro_batches)
    (within,) = compare(plan, with_rows(plan, reordered))
    assert within.message == "the same groups work on the same items in another order"


def swapped(plan, picks):
    """Pairs of items change places."""
    rows = [{name: list(items) for name, items in row.items()} for row in plan.steps[0].micro_batches]
    slots = [(row, name, at) for row in rows for name, items in row.items() for at in range(len(items))]
    for a, b in picks:
        (row, name, i), (other_row, other, j) = slots[a % len(slots)], slots[b % len(slots)]
        row[name][i], other_row[other][j] = other_row[other][j], row[name][i]
    return with_rows(plan, tuple({name: tuple(items) for name, items in row.items()} for row in rows))


@pytest.mark.slow
@examples(10)
@given(
    picks=st.lists(st.tuples(st.integers(0, 15), st.integers(0, 15)), max_size=4),
    value=st.floats(0, 0.1),
    gap=st.floats(0, 0.1),
)
def test_a_regression_one_way_is_a_gain_the_other_way(plan, picks, value, gap):
    edited = swapped(plan, picks)
    assume(not violations(edited))
    edited, tolerances = restated(edited), Tolerances(value, gap)
    there, back = compare(plan, edited, tolerances), compare(edited, plan, tolerances)
    mirror = {"regression": "gain", "gain": "regression", "drift": "drift"}
    for where in ("outcome.value", "outcome.gap"):
        assert [mirror[f.category] for f in at(there, where)] == categories(at(back, where))
    assert (exit_code(there), exit_code(back)) == (
        "regression" in categories(there),
        "regression" in categories(back),
    )


def test_exactly_the_tolerance_is_tolerated():
    assert classify_value(100.0, 102.0, 0.02) == "drift"
    assert classify_value(100.0, 102.001, 0.02) == "regression"
    assert classify_value(102.0, 100.0, 0.02) == "drift"
    assert classify_value(102.001, 100.0, 0.02) == "gain"
    assert classify_value(0.3, 0.3 * (1 + 1e-9), 0.0) is None
    assert classify_gap(0.06, 0.07, 0.01) is None
    assert classify_gap(0.06, 0.0701, 0.01) == "regression"
    assert classify_gap(0.0701, 0.06, 0.01) == "gain"


def test_a_tolerance_wide_enough_lets_anything_pass(plan):
    findings = compare(plan, one_by_one(plan), Tolerances(value=1e9, gap=1e9))
    assert set(categories(findings)) == {"drift"}


def test_a_weaker_proof_of_the_same_plan_is_a_regression(plan):
    bound = plan.outcome.bound * 0.9
    weaker = with_fields(plan, outcome=with_fields(plan.outcome, bound=bound, gap=plan.outcome.value / bound - 1))
    assert [(f.category, f.where) for f in compare(plan, weaker)] == [("regression", "outcome.gap")]


# ---------------------------------------------------------------------------------------------------- stale inputs


def test_another_digest_alone_is_only_stale(plan):
    (stale,) = compare(plan, other_digest(plan))
    assert (stale.category, stale.where) == ("stale_inputs", "uses.sources.profile")
    assert stale.new == "0123456789abcdef"
    assert exit_code([stale]) == 0


def test_dearer_prices_of_the_same_work_are_a_regression(plan):
    findings = compare(plan, other_digest(repriced(plan, 1.5)))
    assert {f.where for f in findings} - {"outcome.gap"} == {"outcome.value", "uses.sources.profile"}
    (value,) = at(findings, "outcome.value")
    assert value.category == "regression"
    assert value.new > 1.2 * value.old
    assert value.message.endswith("profile changed, for the same model, data and cluster")


def test_decisions_that_are_worse_under_the_new_inputs_too_are_a_regression(plan):
    findings = compare(plan, other_digest(one_by_one(repriced(plan, 0.1))))
    assert at(findings, "outcome.value")[0].category == "gain"
    (worse,) = at(findings, "decisions")
    assert worse.category == "regression"
    assert worse.old == pytest.approx(repriced(plan, 0.1).outcome.value, rel=1e-6)


def test_old_decisions_that_the_new_inputs_forbid_are_no_measure(plan, tmp_path):
    narrow = solve(write_job(tmp_path, degrees="[4]"))
    findings = compare(plan, narrow)
    assert {f.where for f in findings if f.category == "stale_inputs"} == {"uses.sources.job"}
    assert not at(findings, "decisions")
    (value,) = at(findings, "outcome.value")
    assert (value.category, exit_code(findings)) == ("regression", 1)
    assert ": degrees changed, for the same" in value.message
    capped = with_fields(plan, uses=with_fields(plan.uses, limits=Limits(tokens_per_rank=100)))
    assert exit_code(compare(capped, capped)) == 1  # nothing fits any more


def test_other_work_is_told_by_step_token_and_sample_and_judged_where_that_is_asked_for(plan, tmp_path):
    """Twice the documents, of the same lengths: twice a step, as long a token and a sample."""
    longer = with_fields(repriced(plan, 1.5), uses=with_fields(repriced(plan, 1.5).uses, models=bigger(plan)))
    longer = other_digest(restated(longer), "model")
    (told,) = at(compare(plan, longer), "uses")
    assert told.category == "changed_input"
    ratio = f"{longer.outcome.value / plan.outcome.value - 1:.1%}".replace("%", " %")
    assert told.message == f"{ratio} longer a step, {ratio} longer a token, {ratio} longer a sample: the model changed"
    assert exit_code(compare(plan, longer)) == 0  # the old decisions are no better under the new inputs
    judged = compare(plan, longer, Tolerances(judge_changed_inputs=True))
    (value,) = at(judged, "outcome.value")
    assert (value.category, exit_code(judged)) == ("regression", 1)
    assert "a token: the model changed" in value.message


def test_other_work_with_other_decisions_is_not_judged_and_says_so(plan, tmp_path):
    fewer = solve(write_job(tmp_path, rows=8))
    (unjudged,) = [f for f in compare(plan, fewer) if f.category == "unjudged"]
    assert "--allow-unjudged" in unjudged.message
    assert exit_code(compare(plan, fewer)) == 1
    assert exit_code(compare(plan, fewer, Tolerances(allow_unjudged=True))) == 0


@pytest.mark.parametrize(("name", "tolerance", "blocks"), [("memory", 0.5, False), ("memory", 0.0, True)])
def test_more_memory_is_judged_where_a_threshold_is_given(plan, name, tolerance, blocks):
    fuller = with_fields(
        plan, prediction=with_fields(plan.prediction, peak_memory_gib=plan.prediction.peak_memory_gib * 1.1)
    )
    part = Part("planner", as_stated(plan), as_stated(fuller))
    assert [*part_findings(part, Tolerances())] == []
    found = [*part_findings(part, Tolerances(**{name: tolerance}))]
    assert (exit_code(found), found[0].where) == (blocks, "prediction.peak_memory_gib")


def bigger(plan):
    models = plan.uses.models
    return {name: with_fields(module, layers=module.layers + 1) for name, module in models.items()}


# ------------------------------------------------------------------------------------------------ added and removed


def test_a_batch_that_is_gone_or_new(batches):
    one, two = batches
    gone = compare(two, one)
    assert [(f.category, f.where) for f in gone] == [("drift", "made.batches"), ("removed", "steps[1]")]
    come = compare(one, two)
    assert [(f.category, f.where) for f in come] == [("drift", "made.batches"), ("added", "steps[1]")]


def test_items_that_are_gone_are_removed_and_their_time_is_not_judged(plan):
    rows = plan.steps[0].micro_batches
    last = list(rows[-1])[-1]
    (item,) = rows[-1][last][-1:]
    items = {i: size for i, size in plan.uses.items["llm"].items() if i != item}
    fewer = with_rows(plan, (*rows[:-1], {**rows[-1], last: rows[-1][last][:-1]}))
    fewer = restated(with_fields(fewer, uses=with_fields(plan.uses, items={"llm": items})))
    findings = compare(plan, fewer)
    (removed,) = at(findings, "steps[0].items.llm")
    assert (removed.category, removed.old) == ("removed", f"1 ({item})")
    assert "regression" not in categories(findings) and "gain" not in categories(findings)
    assert at(compare(fewer, plan), "steps[0].items.llm")[0].category == "added"


@pytest.mark.slow
def test_modules_layouts_and_orders(plan):
    both = priced_by(encoder_plan(), plan)
    assert compare(both, both) == []
    reordered = restated(with_fields(both, steps=(with_fields(both.steps[0], order={"llm": "gpipe"}),)))
    assert at(compare(both, reordered), "steps[0].order.llm")[0].new == "gpipe"
    layouts = {**both.layouts, "llm": with_fields(both.layouts["llm"], zero=0)}
    (layout,) = at(compare(both, restated(with_fields(both, layouts=layouts))), "layouts.llm")
    assert layout.message.endswith("zero: 0, recompute: none, micro_batch: 1, dtype: bf16}")
    placed = timed(both, "vit", ahead=1, at_once=True)
    assert at(compare(both, restated(placed)), "steps[0].order.place")[0].new == "2 placements"
    alone = priced_by(staged_plan(4, 2), plan)
    assert at(compare(both, alone), "layouts.vit")[0].category == "removed"
    assert at(compare(alone, both), "layouts.vit")[0].category == "added"


def priced_by(toy, plan):
    """A toy's decisions with the rates of another plan."""
    prices = with_fields(plan.uses.prices, rates=dict.fromkeys(toy.uses.devices, *plan.uses.prices.rates.values()))
    return restated(with_fields(toy, uses=with_fields(toy.uses, prices=prices)))


# -------------------------------------------------------------------------------------------------------- illegal


def twice(plan):
    """The first item is also put into the last micro-batch."""
    rows = plan.steps[0].micro_batches
    item = next(iter(rows[0].values()))[0]
    name = next(iter(rows[-1]))
    return item, with_rows(plan, (*rows[:-1], {**rows[-1], name: (*rows[-1][name], item)}))


def test_an_illegal_old_plan_is_found_and_does_not_block_a_legal_new_one(plan):
    _, illegal = twice(plan)
    findings = compare(illegal, plan)
    assert set(categories(findings)) == {"gain"}
    assert exit_code(findings) == 0
    assert {"illegal", "drift"} == set(categories(compare(illegal, illegal)))
