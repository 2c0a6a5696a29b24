"""Multimodal models have the logits of transformers', image or sound in the sample, by weights that it wrote."""

import importlib
import warnings
from types import SimpleNamespace

import pytest
import torch

from planner import hf
from planner.models.batch import Batch, EncoderFeatures
from planner.models.build import build
from planner.models.checkpoints.hugging_face import load_checkpoint, require_checkpoint
from planner.models.inputs.media_contents import flattened_patches
from planner.specs.parameters import model_parameters
from tests.models.checkpoints.test_hugging_face import varied

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

WORDS, MARK = 50, 49
TEXT = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": WORDS,
}
TOWER = {"hidden_size": 16, "intermediate_size": 20, "num_hidden_layers": 3, "num_attention_heads": 2, "patch_size": 4}
IMAGE = 20  # pixels on a side: 25 patches


@pytest.fixture(scope="module")
def transformers():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers
    return transformers


def saved(model, folder):
    """Their model with weights of which none is zero or one, in a folder, and ours by what is there."""
    theirs = varied(model.float().eval())
    theirs.save_pretrained(folder)
    imported = hf.read(folder)
    modules = imported.model.modules
    require_checkpoint([*modules.values()], folder)
    ours = {name: build(module) for name, module in modules.items()}
    for name, network in ours.items():
        network.feeds_module = name != "llm"
        load_checkpoint(network, network.spec, folder)
    return theirs, SimpleNamespace(imported=imported, **ours)


def packed(inputs, lengths):
    """Documents of these lengths in one batch."""
    ends = torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)
    return Batch(inputs, inputs, torch.cat([torch.arange(length) for length in lengths]), ends)


def logits(llm, ids, features):
    """Logits of documents `ids` `(documents, tokens)` whose first tokens are features `(documents, outputs, width)`."""
    count, length = ids.shape
    rows = torch.cat([length * document + torch.arange(features.shape[1]) for document in range(count)])
    batch = packed(ids.flatten(), [length] * count)
    x = EncoderFeatures(rows, features.flatten(0, 1)).merge_into(llm.embed(batch))
    encoding = llm.position_encoding(x, batch)
    for layer in llm.layers.values():
        x = layer(x, encoding, batch)
    return llm.logits(llm.norm(x)).view(count, length, -1)


def seen(vision, images):
    """Outputs `(images, outputs, width)` of one packed batch of images, without the rows that nobody reads."""
    patches = [flattened_patches(vision.spec, image) for image in images]
    batch = packed(torch.cat(patches), [len(each) for each in patches])
    return vision(batch)[batch.positions >= vision.spec.class_tokens].view(len(images), -1, vision.spec.out)


def marked(documents, outputs, words, seed=0):
    """Token ids of documents that begin with marks for `outputs` outputs of an encoder."""
    text = torch.randint(0, MARK, (documents, words), generator=torch.Generator().manual_seed(seed))
    return torch.cat([torch.full((documents, outputs), MARK), text], 1)


@torch.no_grad()
@pytest.mark.every(4)
@pytest.mark.parametrize("layer", [-2, -1, 1])
@pytest.mark.parametrize("tower", ["clip", "siglip"])
@pytest.mark.parametrize("text", ["llama", "qwen2"])
def test_llava(transformers, tmp_path, tower, text, layer):
    parts = {
        "vision_config": transformers.CONFIG_MAPPING[f"{tower}_vision_model"](**TOWER, image_size=IMAGE),
        "text_config": transformers.CONFIG_MAPPING[text](**TEXT, num_key_value_heads=2),
    }
    config = transformers.LlavaConfig(
        **parts, image_token_index=MARK, vision_feature_layer=layer,
        vision_feature_select_strategy="default" if tower == "clip" else "full",
    )  # fmt: skip
    torch.manual_seed(1)
    theirs, ours = saved(transformers.LlavaForConditionalGeneration(config), tmp_path)
    images = torch.randn(2, 3, IMAGE, IMAGE)
    ids = marked(2, 25, 7)
    features = seen(ours.vision, images)
    want = theirs.model.get_image_features(pixel_values=images).pooler_output
    torch.testing.assert_close(features, torch.stack([*want]), rtol=0, atol=1e-5)
    want = theirs(input_ids=ids, pixel_values=images).logits
    torch.testing.assert_close(logits(ours.llm, ids, features), want, rtol=0, atol=1e-5)
    assert want.std() > 0.01
    assert ours.imported.source_parameters == sum(each.numel() for each in theirs.parameters())
    assert {note.kind for note in ours.imported.notes} <= {"left out", "assumed"}
    unread = sum(note.parameters for note in ours.imported.notes)
    assert model_parameters(ours.imported.model) == sum(each.numel() for each in theirs.parameters()) - unread


@torch.no_grad()
def test_qwen2_audio(transformers, tmp_path):
    config = transformers.Qwen2AudioConfig(
        audio_config=transformers.Qwen2AudioEncoderConfig(
            d_model=16, encoder_layers=3, encoder_attention_heads=2, encoder_ffn_dim=20, num_mel_bins=5,
            max_source_positions=24,
        ),
        text_config=transformers.Qwen2Config(**TEXT, num_key_value_heads=2),
        audio_token_index=MARK,
    )  # fmt: skip
    torch.manual_seed(2)
    theirs, ours = saved(transformers.Qwen2AudioForConditionalGeneration(config), tmp_path)
    table = theirs.model.audio_tower.embed_positions.weight
    table.copy_(importlib.import_module("transformers.models.whisper.modeling_whisper").sinusoids(*table.shape))
    frames = torch.randn(2, 5, 48)
    ids = marked(2, 12, 7)
    want = theirs(input_ids=ids, input_features=frames, feature_attention_mask=torch.ones(2, 48).long()).logits
    padded = torch.nn.functional.pad(frames, (2, 1))
    windows = torch.cat([each.unfold(1, 5, 2).permute(1, 2, 0) for each in padded])  # (tokens, 5, mels)
    outputs = ours.audio(packed(windows, [24, 24])).view(2, 12, -1)
    torch.testing.assert_close(logits(ours.llm, ids, outputs), want, rtol=0, atol=1e-5)
    assert want.std() > 0.01
    assert ours.imported.source_parameters == sum(each.numel() for each in theirs.parameters())
