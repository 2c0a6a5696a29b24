"""A module measured with and without recomputation: each layout costs what its own layers were measured to."""

from itertools import pairwise

import pytest

from planner import files, pipeline
from planner.costs.compute.fit_lines import unmeasured_recompute
from planner.costs.pricing import pricing_of
from planner.errors import InputError
from planner.plan.plan_file import Plan, Prices
from planner.plan.task import Task
from planner.plan.tasks.expand import expand
from planner.scoring.plan_memory import PlanMemory
from planner.scoring.score import score
from planner.specs import library
from planner.specs.base import Layers, Ranks, with_fields
from planner.specs.hardware.profile import CollectiveCosts, CollectivePoint, ModuleCosts, PassCosts, PassFit, Profile
from planner.specs.inputs import JobOptions, load_job
from tests.plans import sharded_plan, staged_plan

FORWARD = PassFit(ms_per_token2=1e-4, ms_per_token=0.02, ms=0.3)
WORDS = ("none", "selective", "full")


def layer(more: float, kept: float) -> PassCosts:
    """Its backward takes twice forward, and so much of it again."""
    each = (getattr(FORWARD, name) * (2 + more) for name in ("ms_per_token2", "ms_per_token", "ms"))
    backward = PassFit(**dict(zip(("ms_per_token2", "ms_per_token", "ms"), each, strict=True)))
    return PassCosts(
        forward=FORWARD, backward=backward, activation_kib_per_token=kept, working_kib_per_token=16.0 - kept
    )


MEASURED = ModuleCosts(
    source="fitted",
    spread=0.05,
    layer=layer(0.0, 16.0),
    recomputing={"selective": layer(0.5, 6.0), "full": layer(1.0, 1.0)},
    ends=PassCosts(forward=FORWARD, backward=FORWARD, activation_kib_per_token=2.0),
    update_ns_per_parameter=1.0,
)
PUBLISHED = with_fields(MEASURED, source="published", layer=MEASURED.recomputing["full"], recomputing={})
ANY = tuple(CollectivePoint(ranks=n, gb_per_s=1.0, latency_us=5.0) for n in (2, 4))
COLLECTIVES = {
    kind: CollectiveCosts(source="fitted", spread=0.1, points=ANY)
    for kind in ("all_to_all", "all_gather", "reduce_scatter", "p2p")
}


def measured(plan: Plan, recompute, costs: ModuleCosts = MEASURED) -> Plan:
    prices = Prices(profile="made up", modules={"llm": costs}, collectives=COLLECTIVES)
    layouts = {"llm": with_fields(plan.layouts["llm"], recompute=recompute)}
    return with_fields(plan, layouts=layouts, uses=with_fields(plan.uses, prices=prices))


PLANS = [staged_plan(2, 3), sharded_plan(4, [[(0, 4)], [(0, 2), (2, 2)]])]  # of four layers


@pytest.mark.parametrize("plan", PLANS, ids=["pipeline", "groups"])
def test_more_recomputation_takes_longer_and_keeps_less(plan):
    scores = [
        score(measured(plan, how)) for how in ("none", {0: "selective"}, {0: "full"}, {0: "full", 1: "selective"})
    ]
    scores += [score(measured(plan, "full"))]
    for less, more in pairwise(scores):
        assert less.step_seconds < more.step_seconds
        assert less.memory.peaks[0] >= more.memory.peaks[0]  # of one layer, what is not kept is made again
    assert scores[0].memory.peaks[0] > scores[-1].memory.peaks[0]


@pytest.mark.parametrize("costs", [MEASURED, PUBLISHED], ids=["measured", "published"])
@pytest.mark.parametrize("plan", PLANS, ids=["pipeline", "groups"])
@pytest.mark.every(4)
def test_recompute_is_the_same_by_ranges(plan, costs):
    """Also the halves of a backward, which no plan with recomputation has, though prices know them."""
    for how in WORDS:
        word, *ranges = (measured(plan, each, costs) for each in (how, {"0-3": how}, {"0-1": how, "2-3": how}))
        passes = [task.changed(phase=phase) for task in expand(plan) if task.phase == "B" for phase in "BIW"]
        for each in ranges:
            assert (score(word).step_seconds, score(word).memory) == (score(each).step_seconds, score(each).memory)
            ours, theirs = pricing_of(word).price, pricing_of(each).price
            assert [ours(task) for task in passes] == [theirs(task) for task in passes]


def test_published_full_recompute_leaves_w_half_of_backward_without_forward():
    """Where the published layers recompute nothing, W is half of all that has weights."""
    tasks = [Task("llm", Layers((0, 1)), "W", 0, "g", Ranks((0,)), (5, 8))] * 3
    again, none, some = (
        pricing_of(measured(PLANS[0], how, PUBLISHED)).price(task).value
        for how, task in zip(({"0-3": "full"}, "none", {0: "full"}), tasks, strict=True)
    )
    forward = (0.02 * 13 + 0.3) * 1e-3
    assert again == pytest.approx(2 * (3 * forward - forward) / 2)
    assert none == some == pytest.approx(2 * 3 * forward / 2)


@pytest.mark.parametrize("recompute", ["selective", "full", {0: "full", "2-3": "selective"}])
@pytest.mark.parametrize("plan", PLANS, ids=["pipeline", "groups"])
def test_passes_and_bytes_are_those_of_each_layer(plan, recompute):
    """Against the same plan without recomputation. A layer recomputed in full also communicates again."""
    ours, plain = measured(plan, recompute), measured(plan, "none")
    price, plain_price = pricing_of(ours).price, pricing_of(plain).price
    held, plain_held = (PlanMemory(each, pricing_of(each)).forward_bytes for each in (ours, plain))
    for task in expand(ours):
        words = [ours.layouts["llm"].layer_recompute(number) for number in task.layers]
        if task.phase == "B":
            more = sum({"none": 0.0, "selective": 0.5, "full": 1.0}[how] for how in words)
            squares, tokens = sum(s * s for s in task.sizes), sum(task.sizes)
            again = FORWARD.ms_per_token2 * squares + FORWARD.ms_per_token * tokens
            again = (again / task.degree + FORWARD.ms) * more * 1e-3
            sent = plain_price(task.changed(phase="F")).comm * words.count("full") / len(words)
            assert price(task).value == pytest.approx(plain_price(task).value + again + sent)
            assert price(task).comm == pytest.approx(plain_price(task).comm + sent)
        elif task.phase == "F":
            less = sum({"none": 0.0, "selective": 10.0, "full": 15.0}[how] for how in words)
            assert held(task) == pytest.approx(plain_held(task) - 1024 * less * task.tokens / task.degree)
        else:
            assert price(task) == plain_price(task)
        if task.phase == "F":
            assert price(task).value == pytest.approx(plain_price(task).value, rel=1e-12)


@pytest.mark.parametrize("how", WORDS)
def test_weight_gradients_do_not_depend_on_recompute(how):
    price = pricing_of(measured(staged_plan(2, 1), how)).price
    back, inputs, weights = (price(Task("llm", Layers((0, 1)), phase, 0, "g", Ranks((0,)), (5, 8))) for phase in "BIW")
    assert weights.value == pytest.approx(2 * (2 * 0.02 * 13 + 2 * 0.3) / 2 * 1e-3)
    assert inputs.value + weights.value == pytest.approx(back.value)


# --------------------------------------------------------------------------------------------------- of whole jobs

JOB = """\
format: planner.job/1
name: made-up
model: tiny-decoder
cluster: cpu-4
profile: ./profile.yaml
strategy: sequence_groups
workload: {{lengths: {{from: file, path: lengths.txt}}, batch_rows: 24, max_tokens: 2048}}
layout: {{zero: 3, dtype: float32, recompute: {how}}}
degrees: [1, 2, 4]
limits: {{tokens_per_rank: 1024}}
"""


@pytest.fixture
def inputs_of(tmp_path):
    def inputs(how: str, costs: ModuleCosts = MEASURED):
        base = library.read_named("cpu", Profile)[0]
        profile = with_fields(base, modules={"tiny-decoder/llm": costs}, collectives=COLLECTIVES)
        files.write(tmp_path / "profile.yaml", profile)
        (tmp_path / "lengths.txt").write_text("\n".join(str(40 + 83 * n) for n in range(24)) + "\n")
        (tmp_path / "job.yaml").write_text(JOB.format(how=how))
        return load_job(str(tmp_path / "job.yaml"), JobOptions())

    return inputs


def test_a_profile_without_that_recompute_is_refused(inputs_of):
    """It would be priced as if nothing were recomputed."""
    before = with_fields(MEASURED, recomputing={})
    assert pipeline.decide(inputs_of("none", before)).plan.outcome.value > 0
    some = with_fields(MEASURED, recomputing={"full": MEASURED.recomputing["full"]})
    for costs, how in ((before, "full"), (before, "selective"), (some, "selective")):
        with pytest.raises(InputError, match=f"tiny-decoder/llm` was measured without recompute {how}") as refused:
            pipeline.decide(inputs_of(how, costs))
        assert "planner profile tiny-decoder" in refused.value.fix
    again = with_fields(PLANS[1].layouts["llm"], recompute="full")
    assert unmeasured_recompute(with_fields(before, source="published"), again, range(4)) == []


def test_a_device_kind_without_that_recompute_is_named():
    plan = measured(PLANS[0], "full")
    modules = {"llm": with_fields(MEASURED, recomputing={}), "llm@toy": MEASURED}
    told = with_fields(plan, uses=with_fields(plan.uses, prices=with_fields(plan.uses.prices, modules=modules)))
    assert score(told).step_seconds == score(plan).step_seconds
    turned = dict(zip(modules, reversed(modules.values()), strict=True))
    untold_there = with_fields(plan, uses=with_fields(plan.uses, prices=with_fields(plan.uses.prices, modules=turned)))
    with pytest.raises(InputError, match="`llm@toy` was measured without") as refused:
        score(untold_there)
    assert refused.value.where == "uses.prices.modules.llm@toy"


def test_old_costs_ask_for_a_new_measurement(inputs_of):
    plan = pipeline.decide(inputs_of("none", with_fields(MEASURED, recomputing={}))).plan
    for change, fix in (("recompute=full", "measure it again (planner profile)"), ("dtype=bf16", "profile the model")):
        with pytest.raises(InputError, match="not known for another") as refused:
            pipeline.why_not(plan, (change,))
        assert fix in refused.value.fix
