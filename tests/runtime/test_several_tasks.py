"""Plans of several tasks train as one process does: towers that tasks share, on other ranks in every micro-batch."""

import pytest
import torch
import torch.nn.functional as F

from planner.models.build import build, init_weights
from planner.models.inputs.training_items import synthetic_batch
from planner.plan.plan_file import Group, Layout, Plan, PlanTask, Step
from planner.specs.base import Indices, Ranks, with_fields
from planner.specs.layers import Decoder, TextEncoder, Vit
from planner.specs.layers.vit import Projector
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
SIZES = {"image": lambda row: 5 + row % 3, "depth": lambda row: 3 + row % 4, "text": lambda row: 4 + row % 5}
SIZES |= {"words": lambda row: 6 + row % 4, "frozen": lambda row: 4 * (1 + row % 3)}


def tower(ranks, **said) -> Layout:
    """Data-parallel over these ranks, forwards of a step before its backwards."""
    said = {"dp": len(ranks), "zero": 1, "schedule": "gpipe", "dtype": "float64", **said}
    return Layout(ranks=Ranks(ranks), **said)


def tasks_plan(layouts: dict[str, Layout], waves, tasks: dict[str, PlanTask], size: int = 4) -> Plan:
    """`waves`: of each micro-batch, module → ranks of a group → its rows."""
    groups, placed = {}, []
    for wave in waves:
        placed.append({})
        for module, cells in wave.items():
            for ranks, rows in cells.items():
                name, layout = f"{module}.{'+'.join(map(str, ranks))}", layouts[module]
                degree = len(ranks) // (layout.tp * layout.pp)
                groups[name] = Group(ranks=Ranks(ranks), split={"ring": degree} if degree > 1 else {})
                placed[-1].setdefault(module, {})[name] = rows
    items = {name: {row: SIZES[name](row) for task in tasks.values() if name in task.modules for row in task.rows}
             for name in layouts}  # fmt: skip
    facts = with_fields(uses(size, {name: SPECS[name] for name in layouts}, items), tasks=tasks)
    return plan_of(size, facts, layouts, groups, Step(sync="step", micro_batches=tuple(placed)))


def compared(modules, rows, weight: float = 1.0) -> PlanTask:
    return PlanTask(modules=tuple(modules), loss="contrastive", rows=Indices(rows), weight=weight)


def own(module, rows, weight: float = 1.0) -> PlanTask:
    return PlanTask(modules=(module,), loss="own", rows=Indices(rows), weight=weight)


PLANS = {
    "two tasks share a tower": tasks_plan(
        {"image": tower((0, 1, 2, 3)), "text": tower((0, 1)), "depth": tower((2, 3))},
        [
            {"image": {(0,): (0, 4), (1,): (1, 5), (2,): (2, 6, 7), (3,): (3,)}},
            {"text": {(0,): (0, 1, 2), (1,): (3,)}, "depth": {(2,): (4, 5), (3,): (6, 7)}},
        ],
        {"image-text": compared(("image", "text"), range(4)), "depth-image": compared(("depth", "image"), range(4, 8))},
    ),
    "three tasks in waves": tasks_plan(
        {"image": tower((0, 1, 2)), "text": tower((0, 3), zero=0), "depth": tower((1, 3))},
        [
            {"image": {(0,): (0, 1, 2, 3, 4), (1,): (5, 6)}, "text": {(3,): (0, 1, 2, 3, 7)}},
            {"text": {(0,): (8, 9, 10)}, "depth": {(3,): (7, 8, 4)}},
            {"depth": {(1,): (5, 6, 9, 10)}},
        ],
        {
            "image-text": compared(("image", "text"), range(4), weight=0.25),
            "image-depth": compared(("image", "depth"), range(4, 7), weight=3.0),
            "text-depth": compared(("text", "depth"), range(7, 11)),
        },
    ),
    "a task's rows in two micro-batches, a rank without any tower": tasks_plan(
        {"image": tower((1,)), "text": tower((1, 2))},
        [
            {"image": {(1,): (0, 2)}, "text": {(2,): (0, 1)}},
            {"image": {(1,): (1, 3)}, "text": {(1,): (2,), (2,): (3,)}},
        ],
        {"image-text": compared(("image", "text"), range(4), weight=2.0)},
    ),
    "items over several ranks": tasks_plan(
        {
            "image": tower((0, 1, 2, 3), tp=2, dp=2),
            "text": tower((0, 1, 2, 3), zero=2),
            "depth": tower((0, 1, 2, 3), pp=2, dp=2, stages=stages_of(2, 2)),
        },
        [
            {"image": {(0, 1): (0, 1, 2), (2, 3): (3,)}, "text": {(0, 1): (0, 1), (2,): (2,), (3,): (3, 6)}},
            {"depth": {(0, 2): (4, 5), (1, 3): (6,)}, "text": {(0, 1): (4, 5)}},
        ],
        {"image-text": compared(("image", "text"), range(4)), "depth-text": compared(("depth", "text"), range(4, 7))},
    ),
    "losses of their own beside one that compares": tasks_plan(
        {"words": tower((0, 1, 2)), "image": tower((0, 1)), "text": tower((3,))},
        [
            {"words": {(2,): (0, 1)}, "image": {(0,): (4, 5), (1,): (6,)}, "text": {(3,): (4, 5, 6)}},
            {"words": {(0,): (2,), (1,): (3,)}},
        ],
        {
            "short": own("words", (0, 2), 0.5),
            "long": own("words", (1, 3), 3.0),
            "image-text": compared(("image", "text"), range(4, 7)),
        },
    ),
    "a frozen tower": tasks_plan(
        {"frozen": tower((0, 1)), "text": tower((2, 3))},
        [{"frozen": {(0,): (0, 1), (1,): (2,)}, "text": {(2,): (0,), (3,): (1, 2)}}],
        {"locked": compared(("frozen", "text"), range(3))},
    ),
}


@pytest.fixture(scope="module")
def results():
    return run_all(4, PLANS)


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANS)
def test_gradients_are_those_of_one_process(results, name):
    verified, plan = results[name].verify, PLANS[name]
    assert (verified.steps, verified.items) == (1, sum(map(len, plan.uses.items.values())))
    assert (verified.loss_rel_err <= 1e-12, verified.grad_rel_err <= 1e-12) == (True, True), verified
    assert results[name].steps[0].loss == pytest.approx(loss_by_hand(plan), rel=1e-12)


def loss_by_hand(plan: Plan) -> float:
    """The loss of the first step: row by row, as CLIP writes it, and own losses as means over targets."""
    models, total = {name: build(plan.uses.models[name], dtype=torch.float64) for name in plan.layouts}, 0.0
    for model in models.values():
        init_weights(model, ONCE.seed)
    for task in plan.uses.tasks.values():
        for name in task.modules:
            models[name].feeds_module = task.loss == "contrastive"
        batches = {(name, row): synthetic_batch(models[name].spec, [(row, plan.uses.items[name][row])], ONCE.seed)
                   for name in task.modules for row in task.rows}  # fmt: skip
        if task.loss == "own":
            summed = sum(models[name](batch).item() for (name, _), batch in batches.items())
            total += task.weight * summed / sum(len(batch.targets) for batch in batches.values())
            continue
        sides = []
        for name in task.modules:
            outputs = [models[name](batches[name, row])[models[name].spec.class_tokens :] for row in task.rows]
            sides.append(torch.stack([each.mean(0) / each.mean(0).norm() for each in outputs]))
        logits, labels = sides[0] @ sides[1].T / 0.07, torch.arange(len(task.rows))
        both = F.cross_entropy(logits, labels) + F.cross_entropy(logits.T, labels)
        total += task.weight * both.item() / 2
    return total
