"""A run that starts from a checkpoint has its loss, however the model is spread; another model's is refused."""

from dataclasses import replace

import pytest
import torch

from planner import hf
from planner.errors import InputError
from planner.models.batch import IGNORED, EncoderFeatures
from planner.models.build import build, init_weights
from planner.models.checkpoints.hugging_face import load_checkpoint, require_checkpoint
from planner.models.inputs.training_items import synthetic_batch
from planner.plan.plan_file import Group, Layout, Step
from planner.runtime import RunOptions, run
from planner.runtime.preflight.preflight_checks import require_runnable
from planner.specs.base import Ranks, with_fields
from tests.checkpoint_files import save_checkpoint
from tests.models.checkpoints.test_hugging_face import varied
from tests.plans import decoder, plan_of, uses
from tests.runtime import multi_module_plans

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


def llava(folder):
    """A checkpoint of LLaVA, and its modules; its loss on an image of 16 patches in 23 tokens, of seed 0."""
    import transformers

    shape = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4, "vocab_size": 64}
    tower = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 3, "image_size": 8, "patch_size": 2}
    config = transformers.LlavaConfig(
        text_config=transformers.LlamaConfig(**shape, num_attention_heads=8, num_key_value_heads=4),
        vision_config=transformers.CLIPVisionConfig(**tower, num_attention_heads=4),
    )
    torch.manual_seed(3)
    varied(transformers.LlavaForConditionalGeneration(config)).save_pretrained(folder)
    modules = hf.read(folder).model.modules
    models = {name: build(spec, dtype=torch.float64) for name, spec in modules.items()}
    for name, model in models.items():
        load_checkpoint(model, modules[name], folder)
    models["vision"].feeds_module = True
    outputs = models["vision"](synthetic_batch(modules["vision"], [(0, 17)], 0))[1:]
    batch = synthetic_batch(modules["llm"], [(0, 23)], 0)
    batch.targets[:16] = IGNORED
    loss = models["llm"](replace(batch, features=EncoderFeatures(torch.arange(16), outputs))).item() / 7
    return modules, loss


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("zero", [3, 1])
def test_a_tower_starts_from_them_too(tmp_path, monkeypatch, zero):
    modules, want = llava(tmp_path)
    monkeypatch.setattr(multi_module_plans, "SPECS", modules)
    layouts = {name: multi_module_plans.layout(name, (0, 1), dp=2, zero=zero) for name in modules}
    both = [{"vision": {(0, 1): (0,)}, "llm": {(0, 1): (0,)}}]
    items = {"vision": {0: 17}, "llm": {0: 23}}
    plan = multi_module_plans.joined(layouts, both, items=items, feeds={"vision": {0: 0}})
    result = run(plan, RunOptions(steps=1, verify=True, weights=tmp_path, dtype="float64"), print)
    assert result.steps[0].loss == pytest.approx(want, rel=1e-12)
    multi_module_plans.require_those_of_one_process(plan, result.verify)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_checkpoint_s_encoder_is_one_of_the_plan(tmp_path):
    modules, _ = llava(tmp_path)
    require_checkpoint([*modules.values()], tmp_path)
    shorter = with_fields(modules["vision"], layers=1)  # the layers behind it are left out
    require_checkpoint([shorter, modules["llm"]], tmp_path)
    with pytest.raises(InputError, match=r"such as `multi_modal_projector\.linear_1\.bias`"):
        require_checkpoint([modules["llm"]], tmp_path)
    with pytest.raises(InputError, match=r"position_embedding.weight` is \[17, 16\], the model has \[26, 16\]"):
        require_checkpoint([with_fields(modules["vision"], max_positions=26), modules["llm"]], tmp_path)
    with pytest.raises(InputError, match=r"fc1\.weight` is \[24, 16\], the model has \[25, 16\]"):
        require_checkpoint([with_fields(modules["vision"], ffn=25), modules["llm"]], tmp_path)
