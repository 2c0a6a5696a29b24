"""Plans of several tasks train as one process does: towers that tasks share, on other ranks in every micro-batch."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from planner import pipeline
from planner.errors import InputError
from planner.export import export_plan
from planner.follow import FollowedPlan
from planner.models.build import build, init_weights
from planner.models.inputs.training_items import synthetic_batch
from planner.plan.group_catalogue import process_groups
from planner.plan.legal.plan_laws import violations
from planner.plan.plan_file import FollowingSteps, Group, Layout, Plan, PlanTask, Step
from planner.plan.tasks.expand import expand
from planner.runtime.exchange.feature_parts import feature_parts
from planner.runtime.preflight.preflight_checks import require_quick_checks
from planner.specs.base import Indices, Ranks, with_fields
from planner.specs.layers import Decoder, TextEncoder, Vit
from planner.specs.layers.vit import Projector
from planner.why.plan_problem import sample_module
from tests.plans import plan_of, stages_of, uses
from tests.runtime.training_worlds import ONCE, run_all

CLASS = {"class_token": True, "positions": "learned", "projector": Projector(linears=1)}
SPECS = {
    "image": Vit(layers=2, hidden=16, heads=4, ffn=24, patch=2, out=16, max_positions=12, input_norm=True, **CLASS),
    "depth": Vit(layers=2, hidden=24, heads=4, ffn=32, patch=2, channels=1, out=16, max_positions=9, **CLASS),
    "text": TextEncoder(layers=2, hidden=16, heads=4, ffn=24, vocab=40, positions="learned", max_positions=12),
    "frozen": Vit(layers=1, hidden=16, heads=4, ffn=24, patch=2, merge=2, out=16, trained="none"),
    "words": Decoder(layers=2, hidden=16, heads=4, ffn=24, vocab=48),
}
SIZES = {
    "image": lambda sample: 5 + sample % 3,
    "depth": lambda sample: 3 + sample % 4,
    "text": lambda sample: 4 + sample % 5,
}
SIZES |= {"words": lambda sample: 6 + sample % 4, "frozen": lambda sample: 4 * (1 + sample % 3)}


def tower(ranks, **said) -> Layout:
    """Data-parallel over these ranks, forwards of a step before its backwards."""
    said = {"dp": len(ranks), "zero": 1, "schedule": "gpipe", "dtype": "float64", **said}
    return Layout(ranks=Ranks(ranks), **said)


def tasks_plan(layouts: dict[str, Layout], waves, tasks: dict[str, PlanTask], size: int = 4) -> Plan:
    """`waves`: of each micro-batch, module → ranks of a group → its samples."""
    groups, placed = {}, []
    for wave in waves:
        placed.append({})
        for module, cells in wave.items():
            for ranks, samples in cells.items():
                name, layout = f"{module}.{'+'.join(map(str, ranks))}", layouts[module]
                degree = len(ranks) // (layout.tp * layout.pp)
                groups[name] = Group(ranks=Ranks(ranks), split={"ring": degree} if degree > 1 else {})
                placed[-1].setdefault(module, {})[name] = samples
    items = {
        name: {at: SIZES[name](at) for task in tasks.values() if name in task.modules for at in task.samples}
        for name in layouts
    }
    facts = with_fields(uses(size, {name: SPECS[name] for name in layouts}, items), tasks=tasks)
    return plan_of(size, facts, layouts, groups, Step(sync="step", micro_batches=tuple(placed)))


def compared(modules: str, samples, weight: float = 1.0, loss="contrastive") -> PlanTask:
    return PlanTask(modules=tuple(modules.split()), loss=loss, samples=Indices(samples), weight=weight)


PLANS = {
    "two tasks share a tower": tasks_plan(
        {"image": tower((0, 1, 2, 3)), "text": tower((0, 1)), "depth": tower((2, 3))},
        [
            {"image": {(0,): (0, 4), (1,): (1, 5), (2,): (2, 6, 7), (3,): (3,)}},
            {"text": {(0,): (0, 1, 2), (1,): (3,)}, "depth": {(2,): (4, 5), (3,): (6, 7)}},
        ],
        {"image-text": compared("image text", range(4)), "depth-image": compared("depth image", range(4, 8))},
    ),
    "three tasks in waves": tasks_plan(
        {"image": tower((0, 1, 2)), "text": tower((0, 3), zero=0), "depth": tower((1, 3))},
        [
            {"image": {(0,): (0, 1, 2, 3, 4), (1,): (5, 6)}, "text": {(3,): (0, 1, 2, 3, 7)}},
            {"text": {(0,): (8, 9, 10)}, "depth": {(3,): (7, 8, 4)}},
            {"depth": {(1,): (5, 6, 9, 10)}},
        ],
        {"image-text": compared("image text", range(4), 0.25), "image-depth": compared("image depth", range(4, 7), 3.0),
         "text-depth": compared("text depth", range(7, 11))},
    ),
    "a task's samples in two micro-batches, a rank without any tower": tasks_plan(
        {"image": tower((1,)), "text": tower((1, 2))},
        [
            {"image": {(1,): (0, 2)}, "text": {(2,): (0, 1)}},
            {"image": {(1,): (1, 3)}, "text": {(1,): (2,), (2,): (3,)}},
        ],
        {"image-text": compared("image text", range(4), 2.0)},
    ),
    "items over several ranks": tasks_plan(
        {"image": tower((0, 1, 2, 3), tp=2, dp=2), "text": tower((0, 1, 2, 3), zero=2),
         "depth": tower((0, 1, 2, 3), pp=2, dp=2, stages=stages_of(2, 2))},
        [
            {"image": {(0, 1): (0, 1, 2), (2, 3): (3,)}, "text": {(0, 1): (0, 1), (2,): (2,), (3,): (3, 6)}},
            {"depth": {(0, 2): (4, 5), (1, 3): (6,)}, "text": {(0, 1): (4, 5)}},
        ],
        {"image-text": compared("image text", range(4)), "depth-text": compared("depth text", range(4, 7))},
    ),
    "losses of their own beside one that compares": tasks_plan(
        {"words": tower((0, 1, 2)), "image": tower((0, 1)), "text": tower((3,))},
        [
            {"words": {(2,): (0, 1)}, "image": {(0,): (4, 5), (1,): (6,)}, "text": {(3,): (4, 5, 6)}},
            {"words": {(0,): (2,), (1,): (3,)}},
        ],
        {"short": compared("words", (0, 2), 0.5, "own"), "long": compared("words", (1, 3), 3.0, "own"),
         "image-text": compared("image text", range(4, 7))},
    ),
    "a frozen tower": tasks_plan(
        {"frozen": tower((0, 1)), "text": tower((2, 3))},
        [{"frozen": {(0,): (0, 1), (1,): (2,)}, "text": {(2,): (0,), (3,): (1, 2)}}],
        {"locked": compared("frozen text", range(3))},
    ),
}  # fmt: skip
APART, SHIPPED = "two tasks share a tower", "the shipped example"


@pytest.fixture(scope="module")
def trained():
    plans = {**PLANS, SHIPPED: pipeline.solve("demo-clip-cpu-4").plan}
    return plans, run_all(4, plans)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*PLANS, SHIPPED])
@pytest.mark.every(2)
def test_gradients_are_those_of_one_process(trained, name):
    plan, verified = trained[0][name], trained[1][name].verify
    assert (verified.steps, verified.items) == (1, sum(map(len, plan.uses.items.values())))
    assert (verified.loss_rel_err <= 1e-12, verified.grad_rel_err <= 1e-12) == (True, True), verified
    assert trained[1][name].steps[0].loss == pytest.approx(loss_by_hand(plan), rel=1e-12)


def loss_by_hand(plan: Plan) -> float:
    """The loss of the first step: sample by sample, as CLIP writes it, and own losses as means over targets."""
    models, total = {name: build(plan.uses.models[name], dtype=torch.float64) for name in plan.layouts}, 0.0
    for model in models.values():
        init_weights(model, ONCE.seed)
    for task in plan.uses.tasks.values():
        for name in task.modules:
            models[name].feeds_module = task.loss == "contrastive"
        batches = {
            (name, at): synthetic_batch(models[name].spec, [(at, plan.uses.items[name][at])], ONCE.seed)
            for name in task.modules
            for at in task.samples
        }
        if task.loss == "own":
            summed = sum(models[name](batch).item() for (name, _), batch in batches.items())
            total += task.weight * summed / sum(len(batch.targets) for batch in batches.values())
            continue
        sides = []
        for name in task.modules:
            outputs = [models[name](batches[name, sample])[models[name].spec.class_tokens :] for sample in task.samples]
            sides.append(torch.stack([each.mean(0) / each.mean(0).norm() for each in outputs]))
        logits, labels = sides[0] @ sides[1].T / 0.07, torch.arange(len(task.samples))
        both = F.cross_entropy(logits, labels) + F.cross_entropy(logits.T, labels)
        total += task.weight * both.item() / 2
    return total


@pytest.mark.parametrize("name", PLANS)
def test_ranks_of_a_loss_have_all_of_each_feature_once(name):
    """And a group of their own, which every rank creates before the first step."""
    plan, tasks = PLANS[name], expand(PLANS[name])
    losses = [task for task in tasks if task.phase == "loss"]
    assert {task.ranks for task in losses} <= process_groups(plan)
    for loss in losses:
        parts = feature_parts(plan, tasks, loss)
        shares = [0.0] * 2 * len(loss.items)
        for part in (part for of_rank in parts.values() for part in of_rank):
            shares[part.place] += part.share * part.outputs
        assert shares == pytest.approx([1.0] * len(shares)) and {*parts} <= {*loss.ranks}


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"loss": "own"}, "task `locked` has no loss of its own: frozen and text output features"),
        ({"modules": ("frozen",)}, "compares features of two modules of the same width, and `frozen` has 16"),
        ({"modules": ("frozen", "words")}, "task `locked` is of `words`, which has no layout"),
    ],
)
def test_a_loss_that_modules_cannot_have_is_against_the_law(fields, what):
    plan = PLANS["a frozen tower"]
    tasks = {"locked": with_fields(plan.uses.tasks["locked"], **fields)}
    broken = violations(with_fields(plan, uses=with_fields(plan.uses, tasks=tasks)))[0]
    assert what in broken.message and broken.where == "uses.tasks.locked"


def test_what_cannot_be_run_is_refused_with_its_place(tmp_path):
    plan = PLANS[APART]
    zero = with_fields(plan, layouts={**plan.layouts, "text": with_fields(plan.layouts["text"], zero=3)})
    ahead = with_fields(plan, then=FollowingSteps(folder="steps"))
    for refused, options, where in (
        (zero, ONCE, r"\(layouts.text.zero\)"),
        (ahead, ONCE, r"\(then\)"),
        (plan, replace(ONCE, data=tmp_path), "--data"),
        (plan, replace(ONCE, weights=tmp_path), "--weights"),
    ):
        with pytest.raises(InputError, match=where):
            require_quick_checks(refused, options)


def test_other_programs_and_questions_refuse_several_tasks_with_their_place():
    plan = PLANS[APART]
    for target in ("megatron", "torchtitan", "deepspeed"):
        with pytest.raises(InputError, match=r"uses\.tasks"):
            export_plan(plan, target)
    with pytest.raises(InputError, match=r"uses\.tasks"):
        sample_module(plan)


def test_a_plan_is_followed_with_shares_of_the_targets_that_tasks_have():
    """By item: the weight of its task over the targets of the task's samples."""
    shares = FollowedPlan(PLANS["losses of their own beside one that compares"])
    sizes = {sample: SIZES["words"](sample) for sample in range(4)}
    want = {sample: 0.5 / (sizes[0] + sizes[2]) if sample % 2 == 0 else 3.0 / (sizes[1] + sizes[3]) for sample in sizes}
    assert shares.target_shares("words") == pytest.approx(want)
    with pytest.raises(InputError, match="features of `image` are compared with another module's"):
        shares.targets("image")
