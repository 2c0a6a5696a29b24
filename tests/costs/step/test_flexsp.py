"""FlexSP's cost model, computed here anew from its published numbers, and the figures of its own solver."""

import pytest

from planner.costs.packing_problem import packing_problem
from planner.costs.pricing import Pricing
from planner.costs.ulysses_or_ring import allowed_degrees
from planner.packing.packed_groups import packing_seconds
from planner.specs.inputs import JobOptions, load_job
from planner.strategies.plan_drafts import data_parallel_layouts, plan_uses
from tests.groupings import best_of_shape

JOB = "flexsp-gpt-7b-a100x64"
# arXiv 2412.01523 and its released solver: ms over tokens, MB of all-to-all per token, GB/s by degree
ALPHA1, ALPHA2, BETA1, A2A_MB = 5.128e-6, 0.1839576, 629.3563, 2.0
GB_PER_S = {2: 119.54, 4: 104.07, 8: 96.5, 16: 10.33, 32: 5.94, 64: 4.87}
CAP = 6449
STATIC_64, REACHED = (6016.4, 7910.5), (3007.0, 5520.0)  # ms of its first two batches; what is to be reached


def formula_ms(degree: int, lengths: list[int]) -> float:
    """One group in one micro-batch: compute over the group, and all-to-all at its bandwidth (MB over GB/s is ms)."""
    compute = (ALPHA1 * sum(s * s for s in lengths) + ALPHA2 * sum(lengths)) / degree + BETA1
    return compute + A2A_MB * sum(lengths) / degree / GB_PER_S[degree]


def problems(inputs):
    layouts = data_parallel_layouts(inputs)
    used = plan_uses(inputs, layouts, allowed_degrees(inputs.spec, inputs.cluster.size, inputs.job.degrees))
    pricing = Pricing(used.models, layouts, inputs.cluster, used.prices, used.devices)
    return [packing_problem(pricing, inputs.module, used, batch.items) for batch in inputs.batches]


def shape_of(problem, degree: int) -> int:
    return next(at for at, shape in enumerate(problem.shapes) if shape.degree == degree)


@pytest.fixture(scope="module")
def problem():
    return problems(load_job(JOB, JobOptions()))[0]


@pytest.mark.parametrize("degree", GB_PER_S)
def test_a_group_takes_what_the_formula_says(problem, degree):
    items = tuple(sorted(problem.sizes)[:7])
    lengths = [problem.sizes[item] for item in items]
    assert all(length % 128 == 0 for length in lengths)
    assert problem.seconds(shape_of(problem, degree), items) * 1e3 == pytest.approx(
        formula_ms(degree, lengths), rel=1e-12
    )
    assert {shape.cap for shape in problem.shapes} == {CAP} and (problem.micro_batch_seconds, problem.step_seconds) == (
        0,
        0,
    )


def test_the_static_degree_takes_what_the_formula_says(problem):
    """One group of 64 to a micro-batch: the compute of all, once, and a constant for each."""
    lengths = list(problem.sizes.values())
    count = -(-sum(lengths) // (64 * CAP))
    static = packing_seconds(problem, best_of_shape(problem, shape_of(problem, 64))) * 1e3
    assert static == pytest.approx(formula_ms(64, lengths) + (count - 1) * BETA1, rel=1e-9)


@pytest.fixture(scope="module")
def released(shared):
    """The first two batches of the token lengths released with FlexSP."""
    path = shared / "data/seqlen/flexsp_wikipedia_first_half.csv.gz"
    return load_job(JOB, JobOptions(batches=2, lengths=str(path)))


@pytest.mark.slow
def test_its_own_static_figures_come_out(released):
    static = [
        packing_seconds(problem, best_of_shape(problem, shape_of(problem, 64))) * 1e3 for problem in problems(released)
    ]
    assert [round(value, 1) for value in static] == list(STATIC_64)
