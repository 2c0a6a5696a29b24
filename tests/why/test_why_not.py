"""What an answer says is what both plans are worth; nothing changed costs nothing; what is impossible says why."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import pipeline
from planner.errors import InputError
from planner.plan.plan_file import assignments
from planner.scoring.score import score
from planner.specs.base import with_fields
from planner.specs.inputs import JobOptions
from planner.units import GIB
from planner.why.apply_changes import apply_changes
from planner.why.change_setters import change_layout
from planner.why.plan_problem import plan_inputs, single_step
from planner.why.step_facts import step_facts
from tests.examples import examples


def test_the_plans_own_problem_gives_the_same_decisions(plan, wide):
    for made in (plan, wide):
        again = pipeline.plan_of(plan_inputs(single_step(made, 0)))
        assert again.groups == made.groups
        assert again.steps == made.steps
        assert again.outcome == made.outcome
        assert again.uses.prices == made.uses.prices


@pytest.mark.slow
def test_a_step_of_several_is_solved_as_it_was():
    both = pipeline.solve("demo-cpu-4", JobOptions(batches=2)).plan
    for number, step in enumerate(both.steps):
        again = pipeline.plan_of(plan_inputs(single_step(both, number)))
        assert again.outcome == step.outcome
        assert again.steps[0].micro_batches == step.micro_batches
    with pytest.raises(InputError, match="no step 2"):
        single_step(both, 2)


@pytest.mark.parametrize("change", ["zero=3", "sync=micro_batch", "ranks=64", "nodes=8", "recompute=none"])
@pytest.mark.every(4)
def test_what_the_plan_already_does_costs_nothing(plan, wide, change):
    """What ranks and nodes are is asked of the large plan, the rest of the small one, with its degrees said too."""
    asked = wide if "=8" in change or "=64" in change else plan
    degrees = ",".join(map(str, asked.uses.degrees))
    answer = pipeline.why_not(asked, (f"degrees={degrees}", change))
    assert (answer.seconds, answer.because, answer.follows) == (0, (), ())


def test_every_number_is_one_of_the_two_plans(wide):
    answer = pipeline.why_not(wide, ("degrees=64",))
    inputs = plan_inputs(wide)
    other = pipeline.plan_of(changed_degrees(inputs, (64,)))
    assert answer.after is not None
    for said, made in ((answer.before, wide), (answer.after, other)):
        scored = score(made)
        parts = scored.timeline.breakdown()
        comm = said.exchange_across + said.exchange_within + said.other_comm
        assert said.value == scored.step_seconds
        assert said.compute == pytest.approx(parts.compute)
        assert comm == pytest.approx(parts.exposed_comm)
        assert said.compute + comm + said.idle == pytest.approx(said.value)
        assert said.peak_memory_gib == max(scored.memory.peaks) / GIB
        assert said.micro_batches == len(made.steps[0].micro_batches)
    assert answer.seconds == answer.after.value - answer.before.value
    assert "64" in answer.after.groups


def changed_degrees(inputs, degrees):
    from dataclasses import replace

    return replace(inputs, job=with_fields(inputs.job, degrees=degrees))


@pytest.mark.slow
def test_the_reasons_add_up_to_the_difference(wide):
    for change in ("degrees=64", "nodes=4", "degrees=16"):
        answer = pipeline.why_not(wide, (change,))
        assert answer.because
        told = sum(clause.after - clause.before for clause in answer.because)
        said = sum(abs(clause.after - clause.before) for clause in answer.because)
        assert told == pytest.approx(answer.seconds, abs=0.1 * said)
        assert answer.because[0].part in answer.because[0].text


def test_a_fixed_item_has_its_degree_and_the_bound_its_set(plan):
    item = min(plan.uses.items["llm"], key=lambda i: plan.uses.items["llm"][i])
    answer = pipeline.why_not(plan, (f"items.{item}.degree=4",))
    assert answer.after is not None
    assert answer.after.value >= plan.outcome.bound * (1 - 1e-9)


@pytest.mark.slow
def test_an_impossible_change_names_what_binds_and_frees_it(plan):
    answer = pipeline.why_not(plan, ("tokens_per_rank=400",))
    assert answer.after is None
    assert answer.infeasible is not None
    assert "tokens a rank can hold" in answer.infeasible.where
    limit = answer.infeasible.fix.partition(" tokens per rank")[0]
    assert pipeline.why_not(plan, (f"tokens_per_rank={limit}",)).after is not None
    assert pipeline.why_not(plan, (f"tokens_per_rank={int(limit) - 1}",)).after is None


@pytest.mark.slow
def test_another_zero_stage_brings_its_sync_and_a_strategy_that_can(plan):
    answer = pipeline.why_not(plan, ("zero=2",))
    assert answer.follows[0] == "sync=step"
    if answer.after:
        assert answer.follows[1].startswith("strategy=")
    else:
        assert answer.infeasible is not None
        assert answer.infeasible.where.startswith("strategy")
    assert pipeline.why_not(plan, ("sync=step",)).follows[0] == "zero=2"
    assert pipeline.why_not(plan, ("sync=step", "zero=3")).infeasible


@pytest.mark.slow
def test_an_item_that_does_not_fit_is_told_the_least_degree_that_holds_it(wide):
    item, size = max(wide.uses.items["llm"].items(), key=lambda entry: entry[1])
    answer = pipeline.why_not(wide, (f"items.{item}.degree=2",))
    least = min(d for d in wide.uses.degrees if d * wide.uses.limits.tokens_per_rank >= size)
    assert answer.infeasible is not None
    assert answer.infeasible.fix.startswith(f"items.{item}.degree={least}, or ")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("zero", "KEY=VALUE"),
        ("zero=4", "0, 1, 2, 3"),
        ("zero=", "KEY=VALUE"),
        ("colour=red", "items.N.degree, degrees"),
        ("items.7.size=3", "items.N.degree"),
        ("items.999999.degree=2", "one of"),
        ("items.1.degree=5", "from 1 to 4"),
        ("degrees=2,x", "whole number"),
        ("ranks=0", "whole number"),
        ("sync=never", "micro_batch, step"),
        ("strategy=luck", "sequence_groups"),
        ("memory_margin=0.1", "tokens_per_rank=none"),
    ],
)
def test_what_cannot_be_asked_says_what_can(plan, change, said):
    with pytest.raises(InputError) as error:
        pipeline.why_not(plan, (change,))
    assert said in str(error.value)


@pytest.mark.parametrize("first", ["recompute=none", "schedule=zb_h1"])
def test_changes_exclude_each_other_only_together(plan, first):
    """In whatever order they are said: a schedule that keeps activations waits until nothing is recomputed."""
    words = tuple(sorted(("recompute=none", "schedule=zb_h1"), key=lambda word: word != first))
    recomputing = change_layout(plan_inputs(plan), recompute="full")
    assert apply_changes(recomputing, words).job.layout.schedule == "zb_h1"
    with pytest.raises(InputError, match="keeps activations") as error:
        apply_changes(recomputing, ("schedule=zb_h1",))
    assert error.value.where == "schedule=zb_h1" and "recompute: none" in error.value.fix


def test_a_key_is_said_once(plan):
    with pytest.raises(InputError, match="twice"):
        pipeline.why_not(plan, ("zero=2", "zero=3"))


@pytest.mark.slow
@given(st.lists(st.sampled_from([1, 2, 4]), min_size=1, max_size=3, unique=True), st.integers(700, 3000))
@examples(10, deadline=None)
def test_a_change_is_never_better_than_its_own_bound(plan, degrees, limit):
    words = (f"degrees={','.join(map(str, degrees))}", f"tokens_per_rank={limit}")
    answer = pipeline.why_not(plan, words)
    assert (answer.after is None) != (answer.infeasible is None)
    if answer.after:
        assert answer.after.bound <= answer.after.value * (1 + 1e-9)


def test_items_of_the_facts_are_those_of_the_plan(plan):
    said = step_facts(plan, score(plan))
    placed = [a for row in plan.steps[0].micro_batches for a in assignments(plan, row)]
    assert said.tokens == sum(plan.uses.items["llm"][item] for a in placed for item in a.items)
    assert said.held == said.tokens <= said.room
