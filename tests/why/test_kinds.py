"""Plans of ranks of several kinds carry prices for each, and their problem is solved again with all of them."""

from dataclasses import replace
from pathlib import Path

import pytest

from planner import files, pipeline
from planner.errors import InputError
from planner.plan.plan_file import Plan, assignments
from planner.scoring.score import score
from planner.specs.base import with_fields
from planner.specs.hardware.cluster import device_of_rank
from planner.specs.hardware.profile import ModuleCosts, PassCosts, PassFit
from planner.units import GIB, KIB
from planner.why import WhyItem, WhyPlan
from planner.why.plan_problem import plan_inputs, single_step
from planner.why.resize_cluster import bytes_per_token, with_memory, with_ranks
from planner.why.why_plan import variants
from tests.examples import soaked

GOLDEN = Path(__file__).parents[1] / "golden/sequence_groups/two-kinds/plan.yaml"


@pytest.fixture(scope="module")
def plan():
    """That of the golden one's problem with less effort, as answers solve it again and again."""
    inputs = plan_inputs(single_step(files.read(GOLDEN, Plan), 0))
    return pipeline.plan_of(replace(inputs, effort=1))


@pytest.mark.slow
def test_the_plans_own_problem_has_all_its_prices(plan):
    again = pipeline.plan_of(plan_inputs(single_step(plan, 0)))
    assert again.uses.prices == plan.uses.prices
    assert again.groups == plan.groups
    assert again.steps == plan.steps
    assert again.outcome == plan.outcome


@pytest.mark.slow
def test_a_kind_without_prices_is_named(plan):
    rates = {kind: each for kind, each in plan.uses.prices.rates.items() if "a100" not in kind}
    prices = with_fields(plan.uses.prices, rates=rates)
    with pytest.raises(InputError, match="no prices for `llm` on a100-40gb"):
        plan_inputs(with_fields(plan, uses=with_fields(plan.uses, prices=prices)))


def keeping(kib: float) -> ModuleCosts:
    """Somebody's layers, each of which keeps so much of a token."""
    fit = PassFit(ms_per_token=0.01)
    layer = PassCosts(forward=fit, backward=fit, activation_kib_per_token=kib)
    return ModuleCosts(source="published", spread=0.1, layer=layer)


@pytest.mark.slow
@pytest.mark.every(6)
@pytest.mark.parametrize("change", ["degrees=1,2,4", "zero=3", "recompute=none"])
def test_what_already_is_costs_nothing(plan, change):
    answer = pipeline.why_not(plan, (change,))
    assert (answer.seconds, answer.because, answer.follows) == (0, (), ())


@pytest.mark.soak
def test_each_kind_could_have_a_node_more(plan):
    answer = pipeline.why(plan)
    assert isinstance(answer, WhyPlan)
    assert answer.again == pytest.approx(plan.outcome.value)
    nodes = [s for s in answer.sensitivities if "node (" in s.what]
    assert [s.what for s in nodes] == ["one more node (4 × h100-80gb)", "one more node (4 × a100-40gb)"]
    inputs = plan_inputs(single_step(plan, 0))
    for at, s in enumerate(nodes):
        assert s.seconds == score(pipeline.plan_of(with_ranks(inputs, at, 8))).step_seconds
    assert nodes[0].seconds < nodes[1].seconds < answer.facts.value


@pytest.mark.slow
def test_neighbours_of_one_kind_get_one_node_together(plan):
    half = tuple(with_fields(entry, count=2, per_node=2) for entry in plan.ranks for _ in range(2))
    parted = replace(plan_inputs(single_step(plan, 0)), cluster=with_fields(plan.uses.cluster, ranks=half))
    nodes = [variant.what for variant in variants(parted) if "node (" in variant.what]
    assert nodes == ["one more node (2 × h100-80gb)", "one more node (2 × a100-40gb)"]


@pytest.mark.slow
def test_a_gib_more_is_as_many_tokens_as_fit_every_kind(plan):
    inputs = plan_inputs(single_step(plan, 0))
    limits = with_fields(inputs.job.limits, tokens_per_rank=2000)
    profile = with_fields(inputs.profile, modules={"two-kinds/llm@a100-40gb": keeping(512.0)})
    limited = replace(inputs, job=with_fields(inputs.job, limits=limits), profile=profile)
    dear, cheap = (bytes_per_token(limited, kind) for kind in ("a100-40gb", "h100-80gb"))
    assert dear == 512 * KIB * inputs.spec.layers > cheap
    more, _ = with_memory(limited, 1.0)
    assert more.job.limits.tokens_per_rank == 2000 + int(GIB / dear)


@pytest.mark.slow
@pytest.mark.parametrize("which", soaked(["longest", "shortest"], ["shortest"]))
@pytest.mark.every(2)
def test_an_item_has_each_degree_on_each_kind(plan, which):
    sizes = plan.uses.items["llm"]
    item = (max if which == "longest" else min)(sizes, key=lambda i: sizes[i])
    answer = pipeline.why(plan, str(item))
    assert isinstance(answer, WhyItem)
    assert [(c.degree, c.kind) for c in answer.choices] == [
        (degree, kind) for degree in (1, 2, 4) for kind in ("h100-80gb", "a100-40gb")
    ]
    (chosen,) = [c for c in answer.choices if c.chosen]
    placed = next(a for row in plan.steps[0].micro_batches for a in assignments(plan, row) if item in a.items)
    assert chosen.ranks == plan.groups[placed.group].ranks
    for c in answer.choices:
        assert {device_of_rank(plan.uses.cluster, rank) for rank in c.ranks} == {c.kind}
        assert c.chosen or c.fits == (answer.tokens <= c.room_per_rank * c.degree)
    rooms, alone = ({c.kind: getattr(c, name) for c in answer.choices} for name in ("room_per_rank", "seconds"))
    assert rooms["h100-80gb"] > rooms["a100-40gb"] and alone["h100-80gb"] < alone["a100-40gb"]


@pytest.mark.slow
def test_ranks_of_which_kind_is_asked(plan):
    with pytest.raises(InputError, match="of which kind"):
        pipeline.why_not(plan, ("nodes=1",))
