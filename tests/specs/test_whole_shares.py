"""Shares of whole documents: nothing is cut or lost, none is much longer than an even one, and a split that cuts no
document costs what the longest share costs on one rank.
"""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.costs import pricing_of
from planner.plan.plan_file import Plan
from planner.plan.task import Task
from planner.plan.tasks.expand import expand
from planner.plan.tokens.token_shards import rank_token_spans
from planner.scoring import score
from planner.specs.inputs import JobOptions, load_job
from planner.specs.sequence_sharding import UNEVEN, rank_spans, whole_shares
from planner.strategies.static.layouts_plan import plan_together
from tests.examples import examples
from tests.placed_jobs import EVERY_RANK, LONG_IMAGE, LONG_VIDEO, placed_job

documents = st.lists(st.integers(1, 40).map(lambda each: 4 * each), min_size=1, max_size=24)
degrees = st.integers(1, 6)


@given(documents, degrees)
@examples(300)
def test_shares_are_all_documents_in_order_and_nearly_even(lengths, degree):
    shares = whole_shares(lengths, (degree, 1))
    if shares is None:
        return
    assert len(shares) == degree
    assert [length for share in shares for length in share] == lengths
    assert max(map(sum, shares)) <= sum(lengths) / degree * (1 + UNEVEN)


@given(st.integers(1, 50), degrees, st.integers(1, 5))
@examples(100)
def test_equal_documents_that_divide_are_shared_evenly(length, degree, each):
    shares = whole_shares([length] * (degree * each), (degree, 1))
    assert shares == ([(length,) * each] * degree if degree > 1 else None)


@given(documents, degrees)
@examples(200)
def test_spans_of_all_ranks_are_all_tokens(lengths, degree):
    """With whole parts or without, ranks have every token once, in order; whole parts are cut nowhere."""
    spans = [rank_spans(lengths, (degree, 1), index, 4, parts=True) for index in range(degree)]
    every = [span for of_rank in spans for span in of_rank]
    assert all(one.last == two.first or two.first == 0 for one, two in pairwise(every))
    assert sum(last - first for _, first, last in every) == sum(lengths)
    if whole_shares(lengths, (degree, 1)):
        assert every == [(document, 0, length) for document, length in enumerate(lengths)]


def test_texts_and_rings_are_sharded_as_ever():
    assert whole_shares([8, 8], (1, 2)) is None
    assert rank_spans([8, 8], (2, 1), 0) == rank_spans([8, 8], (2, 1), 0, parts=True)
    assert rank_spans([12, 4], (2, 1), 0, parts=True) == rank_spans([12, 4], (2, 1), 0) == [(0, 0, 8)]


@pytest.fixture(scope="module")
def plans(tmp_path_factory) -> dict[str, Plan]:
    jobs = {"image": LONG_IMAGE, "video": LONG_VIDEO}
    paths = {name: placed_job(tmp_path_factory.mktemp(name), EVERY_RANK, **files) for name, files in jobs.items()}
    return {name: plan_together(load_job(path, JobOptions())) for name, path in paths.items()}


def long_pass(plan: Plan) -> Task:
    """The forward of the first item over several ranks."""
    return next(task for task in expand(plan, 0) if (task.module, task.phase, task.items) == ("vit", "F", (0,)))


def test_a_split_that_cuts_no_document_costs_what_a_share_does(plans):
    """Of one rank that has half of the frames; a long image exchanges heads."""
    split, image = (long_pass(plans[name]) for name in ("video", "image"))
    alone = split.changed(degree=1, parts=(split.parts[0][:1],), sizes=(1200,))
    pricing = pricing_of(plans["video"])
    assert pricing.price(split).value == pytest.approx(pricing.price(alone).value, rel=1e-12)
    assert pricing.price(split).comm == 0.0 < pricing_of(plans["image"]).price(image).comm


def test_shares_of_as_many_tokens_cost_what_the_slower_one_does(plans):
    """Attention within a frame of 800 tokens takes longer than within eight of 101, although these are more tokens."""
    split, pricing = long_pass(plans["video"]), pricing_of(plans["video"])
    uneven = split.changed(parts=((800, *[101] * 8),), sizes=(1608,))
    assert uneven.shares() == [(800,), (101,) * 8]
    assert pricing.price(uneven).value == pytest.approx(pricing.price(uneven.of_share((800,))).value, rel=1e-12)
    assert pricing.price(uneven).value > pricing.price(uneven.of_share((101,) * 8)).value


def test_each_rank_has_whole_frames(plans):
    plan, task = plans["video"], long_pass(plans["video"])
    spans = [rank_token_spans(plan.uses.models["vit"], plan.layouts["vit"], task, rank) for rank in task.ranks]
    assert spans == [[(0, 0, 1200)], [(1, 0, 1200)]]


def test_memory_is_that_of_the_fullest_rank(plans):
    task = long_pass(plans["video"])
    held = score(plans["video"]).plan_memory.forward_bytes(task)
    assert held == pytest.approx(score(plans["video"]).plan_memory.forward_bytes(task.fullest_share()))
