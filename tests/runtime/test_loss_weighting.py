"""The loss of a step weighs tokens or samples as its plan says, once for all ranks, however its work is spread."""

import math

import pytest
import torch
import torch.nn.functional as F

from planner import files, pipeline
from planner.models.build import build, init_weights
from planner.models.inputs.training_items import PlannedItems, SyntheticSamples, batch_of_documents, synthetic_batch
from planner.specs.base import with_fields
from planner.specs.layers import TextEncoder, Vit
from planner.specs.layers.components import Experts
from planner.specs.workload.loss_weighting import target_weight, total_weight
from tests.documents import DOCS
from tests.examples import soaked
from tests.runtime.multi_module_plans import joined, layout
from tests.runtime.one_process import OneProcess
from tests.runtime.training_worlds import DECODER, ONCE, asked_for, run_all, spread
from tests.several_steps import LOSSES

ALL, LOW, HIGH = (0, 1, 2, 3), (0, 1), (2, 3)
VIT = Vit(layers=2, hidden=32, heads=8, ffn=48, patch=2, merge=2, out=8)
TEXT = TextEncoder(layers=2, hidden=32, heads=8, ffn=48, vocab=64, max_positions=64, positions="learned")
BALANCED = with_fields(DECODER, moe=Experts(experts=8, topk=2, ffn=16, balance=0.1))
TWO_ROWS = [
    {"vit": {(0,): (0,), (1,): (1,), (2,): (2,)}, "llm": {LOW: (0,), HIGH: (1,)}},
    {"vit": {(3,): (3,)}, "llm": {ALL: (2, 3)}},
]
PLANS = {
    "ulysses": spread(4, dp=4, zero=3, rows=[[(0, 1), (2, 3)], [ALL], [(3,)]]),
    "ring": spread(4, dp=4, splits={ALL: {"ring": 4}}, zero=2),
    "tp": spread(4, dp=2, tp=2),
    "tp, cp": spread(4, tp=2, cp=2, zero=1),
    "pp": spread(4, pp=2, dp=2, zero=1, rows=[[(0, 2), (1, 3)], [(0, 2)], [(1, 3)]]),
    "zero bubble": spread(4, pp=2, tp=2, order="zb_h1"),
    "experts": spread(4, BALANCED, dp=4, ep=2, zero=1, rows=[[(0, 1), (2, 3)], [ALL], [(3,)]]),
    "images with a loss of their own": spread(4, VIT, dp=2, tp=2),
    "words": spread(4, TEXT, dp=2, pp=2),
    "an encoder": joined({"llm": layout("llm", dp=4), "vit": layout("vit", dp=4)}, TWO_ROWS),
    "an encoder, in stages": joined(
        {"llm": layout("llm", pp=2, tp=2, zero=1), "vit": layout("vit", dp=4, zero=3)},
        [{**TWO_ROWS[0], "llm": {ALL: (0, 1)}}, TWO_ROWS[1]],
    ),
}


def with_loss(plan, loss):
    return with_fields(plan, uses=with_fields(plan.uses, loss=loss))


RUNS = {(name, loss): with_loss(plan, loss) for name, plan in PLANS.items() for loss in LOSSES}
WHOLLY, IN_PART = "tp, cp", ("zero bubble", "experts", "an encoder, in stages")
OFTEN = (  # all weightings of one, and one of each other; the others in the soak
    *((WHOLLY, loss) for loss in LOSSES), *((name, LOSSES[at % len(LOSSES)]) for at, name in enumerate(IN_PART)),
)  # fmt: skip


@pytest.fixture(scope="module")
def results(request):
    asked = dict.fromkeys([*asked_for(request, "name", "loss"), *((WHOLLY, loss) for loss in LOSSES)])
    return run_all(4, {each: RUNS[each] for each in asked})


@pytest.mark.slow
@pytest.mark.parametrize(("name", "loss"), soaked(RUNS, OFTEN))
@pytest.mark.every(2)
def test_loss_and_gradients_are_those_of_one_process(results, name, loss):
    result, plan = results[name, loss], RUNS[name, loss]
    assert (result.verify.loss_rel_err <= 1e-12, result.verify.grad_rel_err <= 1e-12) == (True, True), result.verify
    if name != "experts":  # balancing is a loss of whole micro-batches
        alone, _ = OneProcess(plan, ONCE).step(0)
        assert result.steps[0].loss == pytest.approx(alone, rel=1e-12)


@pytest.mark.slow
def test_weightings_differ(results):
    assert len({results[WHOLLY, loss].steps[0].loss for loss in LOSSES}) == len(LOSSES)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("at_once", [5, 10**6])
def test_a_packed_batch_has_the_weighted_loss_of_its_samples(loss, at_once):
    """Also where logits are computed a few at a time; by hand, from losses of each sample."""
    model, documents = build(DECODER, dtype=torch.float64), [(0, 13), (1, 2), (2, 29)]
    init_weights(model, 3)
    model.loss_tokens = at_once
    weights = {item: target_weight(loss, tokens) for item, tokens in documents}
    batch = batch_of_documents(SyntheticSamples(7), DECODER, documents, planned=PlannedItems(weights))
    packed = model(batch) / total_weight(loss, [tokens for _, tokens in documents])
    packed.backward()
    found = {name: weight.grad.clone() for name, weight in model.named_parameters()}
    model.zero_grad()
    summed = [(model(synthetic_batch(DECODER, [document], 7)), document[1]) for document in documents]
    want = {
        "token": lambda: sum(each for each, _ in summed) / 44,
        "sample": lambda: sum(each / tokens for each, tokens in summed) / 3,
        "square_root": lambda: (
            sum(each / math.sqrt(tokens) for each, tokens in summed) / sum(math.sqrt(tokens) for _, tokens in summed)
        ),
    }[loss]()
    want.backward()
    assert packed.item() == pytest.approx(want.item(), rel=1e-12)
    for name, weight in model.named_parameters():
        assert (found[name] - weight.grad).norm() <= 1e-12 * max(1e-3, weight.grad.norm()), name


def test_squared_errors_are_weighted_by_output():
    model, documents = build(VIT, dtype=torch.float64), [(0, 8), (1, 24)]
    init_weights(model, 3)
    batch = batch_of_documents(SyntheticSamples(7), VIT, documents, planned=PlannedItems({0: 1 / 2, 1: 1 / 6}))
    means = []
    for document in documents:
        alone = synthetic_batch(VIT, [document], 7)
        model.feeds_module = True
        means.append(F.mse_loss(model(alone), alone.targets.double()) * VIT.out)
        model.feeds_module = False
    assert model(batch).item() == pytest.approx(sum(means).item(), rel=1e-12)


def test_a_job_says_it_and_its_plan_carries_it(tmp_path):
    folder = DOCS / "examples" / "by-hand"
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    job = tmp_path / "job.yaml"
    before = pipeline.solve(str(job)).plan
    assert before.uses.loss == "token" and "loss:" not in files.dump(before)
    job.write_text(job.read_text() + "loss: square_root\n")
    plan = pipeline.solve(str(job)).plan
    assert plan.uses.loss == "square_root" and "\n  loss: square_root" in files.dump(plan)
    assert (plan.outcome, plan.steps) == (before.outcome, before.steps)
