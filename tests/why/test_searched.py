"""Plans of one static layout: what can be asked of them is the search with something changed; of others, what to do."""

from functools import cache

import pytest

from planner import pipeline
from planner.errors import InputError
from tests.static_jobs import small_cluster, static_job

ALONE = "tp: 1, cp: 1, pp: 1, micro_batch: 1"  # data parallelism, which is all that can be asked again


@pytest.fixture(scope="module")
def solve(tmp_path_factory):
    """The plan of a job, solved once."""
    folder = tmp_path_factory.mktemp("jobs")

    @cache
    def solved(fixed=ALONE, kept="", length=4096):
        cluster = small_cluster(folder, "h100-80gb", 8)
        return pipeline.solve(static_job(folder, "llama-3-8b", cluster, (length,) * 16, fixed, kept)).plan

    return solved


@pytest.mark.parametrize("kept", ["", "recompute: full", "zero: 3, recompute: selective"])
@pytest.mark.every(3)
def test_a_search_asked_again_finds_what_it_found(solve, kept):
    plan = solve(kept=kept)
    answer = pipeline.why_not(plan, ("effort=2",))
    assert answer.again == pytest.approx(plan.outcome.value)
    assert answer.seconds == 0


@pytest.mark.parametrize("kept", ["", "zero: 3, recompute: full"])
@pytest.mark.parametrize(("change", "said"), [("zero=1", "zero: 1"), ("recompute=full", "recompute: full")])
@pytest.mark.every(4)
def test_a_change_is_what_the_job_could_have_said(solve, kept, change, said):
    """In the place of what it said of the same, and beside the rest."""
    plan = solve(kept=kept)
    words = dict(word.split(": ") for word in kept.split(", ") if word) | dict([said.split(": ")])
    other = solve(kept=", ".join(f"{name}: {value}" for name, value in words.items()))
    answer = pipeline.why_not(plan, (change,))
    assert answer.after is not None
    assert answer.after.value == pytest.approx(other.outcome.value)


@pytest.mark.slow
def test_other_strategies_do_not_take_what_was_fixed(solve):
    answer = pipeline.why_not(solve(), ("strategy=sequence_groups",))
    assert answer.infeasible is not None
    assert "fix.layouts" in answer.infeasible.message and "|" not in answer.infeasible.message


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "fixed"),
    [
        ("tp=2", "tp: 2"),
        ("pp=2", "pp: 2"),
        ("cp=4", "cp: 4"),
        ("micro_batch=2", "micro_batch: 2"),
        ("dp=4", "dp: 4"),
        ("recompute={0-2: full}", "recompute: {0-2: full}"),
    ],
)
@pytest.mark.every(6)
def test_a_field_of_the_layout_is_fixed_and_the_others_are_searched(solve, change, fixed):
    answer = pipeline.why_not(solve(""), (change,))
    assert answer.after is not None
    assert answer.after.value == pytest.approx(solve(fixed).outcome.value)


@pytest.mark.slow
def test_what_offload_saves_is_asked_by_its_share(solve):
    """Of 10240 tokens on a rank some activations go to the host; without that, layers are recomputed."""
    plan = solve("micro_batch: 2, tp: 1, cp: 1, pp: 1, zero: 3", length=5120)
    offload = plan.layouts["llm"].offload
    assert 0 < offload < 1
    answer = pipeline.why_not(plan, ("offload=0",))
    assert answer.after is not None and answer.after.value > plan.outcome.value
    same = pipeline.why_not(plan, (f"offload={offload:.4f}",))
    assert same.after is not None and same.after.value == pytest.approx(plan.outcome.value)
    with pytest.raises(InputError, match="would not hide"):
        pipeline.why_not(plan, ("offload=1",))


@pytest.mark.slow
def test_a_degree_that_divides_nothing_names_one_that_fits(solve):
    answer = pipeline.why_not(solve(""), ("tp=7",))
    assert answer.infeasible is not None and "instead" in answer.infeasible.fix
