"""A run that starts from a checkpoint has its loss, however the model is spread; another model's is refused."""

import pytest
import torch

from planner.errors import InputError
from planner.models.build import build, init_weights
from planner.models.inputs.training_items import synthetic_batch
from planner.plan.plan_file import Group, Layout, Step
from planner.runtime import RunOptions, run
from planner.runtime.preflight.preflight_checks import require_runnable
from planner.specs.base import Ranks, with_fields
from tests.checkpoint_files import save_checkpoint
from tests.plans import decoder, plan_of, uses

SPEC = with_fields(decoder(2), kv_heads=4)
ITEMS = {0: 24, 1: 16}


def plan(zero):
    whole = Layout(ranks=Ranks((0, 1)), dp=2, zero=zero, dtype="float64")
    groups = {"both": Group(ranks=Ranks((0, 1)), split={"ulysses": 2})}
    sync = "micro_batch" if zero == 3 else "step"
    step = Step(sync=sync, micro_batches=({"both": (0,)}, {"both": (1,)}))
    return plan_of(2, uses(2, {"llm": SPEC}, {"llm": ITEMS}), {"llm": whole}, groups, step)


def checkpoint(folder, spec=SPEC):
    """Of weights that no seed gives; returns the loss that they have on the items of seed 0."""
    model = build(spec, dtype=torch.float64)
    init_weights(model, 77)
    with torch.no_grad():
        model.norm.weight.mul_(3)
    save_checkpoint(dict(model.named_parameters()), spec, folder)
    return sum(model(synthetic_batch(spec, [item], 0)).item() for item in ITEMS.items()) / sum(ITEMS.values())


@pytest.mark.slow
@pytest.mark.parametrize("zero", [3, 1])
def test_training_starts_from_them(tmp_path, zero):
    want = checkpoint(tmp_path)
    result = run(plan(zero), RunOptions(steps=2, verify=True, weights=tmp_path), print)
    assert result.steps[0].loss == pytest.approx(want, rel=1e-12)
    assert result.verify.loss_rel_err <= 1e-12 and result.verify.grad_rel_err <= 1e-12


def test_another_model_s_are_refused_before_a_launch(tmp_path):
    checkpoint(tmp_path)
    require_runnable(plan(3), RunOptions(weights=tmp_path))
    checkpoint(tmp_path, with_fields(SPEC, vocab=65))
    with pytest.raises(InputError, match=r"`model.embed_tokens.weight` is \[65, 32\], the model has \[64, 32\]"):
        require_runnable(plan(3), RunOptions(weights=tmp_path))
    with pytest.raises(InputError, match="and no index"):
        require_runnable(plan(3), RunOptions(weights=tmp_path / "none"))
