"""Records of several modules: what their samples have, where their encoders are, and what is refused for which fact."""

import pytest

from planner.published.fed_model import of_own_ranks
from planner.published.predict_cases import predict_cases
from planner.published.read_published import read_case
from planner.published.record_files import UnusableRecord
from planner.published.sample_items import StatedSamples, stated_samples
from planner.specs.layers.resize import ImageSize
from tests.published.made_records import record

VLM = {"family": "", "model": "Qwen2.5-VL-7B", "task": "SFT (VLM)", "tp": "2", "pp": "2", "dp": "4", "seq_len": "4096"}


def vlm(settings: str = "", **cells: str):
    return record({**VLM, "other_settings": settings, **cells})


def seconds(settings: str, **cells: str) -> float:
    return predict_cases([read_case(vlm(settings, **cells))])[0].seconds


@pytest.mark.parametrize(
    ("settings", "stated"),
    [
        ("2 images per sample, 1280x960", StatedSamples(2.0, ImageSize(1280, 960))),
        ("images_per_sample=4; image size 448", StatedSamples(4.0, ImageSize(448, 448))),
        ("one image of 336 px", StatedSamples(1.0, ImageSize(336, 336))),
        ("img-h=224; img-w=448", StatedSamples(None, ImageSize(448, 224))),
        ("1024 image tokens per sample", StatedSamples(1.0, None, 1024)),
        ("576 vision tokens per image", StatedSamples(None, None, 576)),
        ("image tokens: 256", StatedSamples(None, None, 256)),
        ("30 s of audio", StatedSamples(sound=30.0)),
        ("4x8 H100, 2 x 400 Gb/s; 64 x 8 GPUs", StatedSamples()),
        ("1,024x8 ranks", StatedSamples()),
    ],
)
def test_samples_are_read_from_settings(settings, stated):
    assert stated_samples(vlm(settings)) == stated


def test_images_are_items_of_the_encoder_as_in_jobs():
    """1288 x 952 pixels in patches of 14: 6,256 of them, 1,564 tokens of the LLM (arXiv 2502.13923's resizing)."""
    (encoder,) = read_case(vlm("2 images per sample, 1280x960")).encoders
    assert (encoder.seq, encoder.per_token, encoder.place) == (6256, 2 / 4096, "first_stage")
    (by_tokens,) = read_case(vlm("1564 image tokens per image; 2 images per sample")).encoders
    assert by_tokens == encoder


def test_tiles_are_sequences_of_their_own():
    (encoder,) = read_case(vlm("1 image per sample, 1280x960", model="InternVL2.5-8B")).encoders
    assert encoder.seq == 1024 and encoder.per_token * 4096 == pytest.approx(13)


def test_a_tower_with_one_size_needs_no_pixels():
    (encoder,) = read_case(vlm("one image per sample", model="LLaVA-1.5-7B")).encoders
    assert encoder.seq == 577


def test_an_image_of_which_only_the_size_is_stated_is_assumed_to_be_one():
    case = read_case(vlm("images of 1280x960"))
    assert "images of a sample" in case.assumed and case.encoders[0].per_token == 1 / 4096


@pytest.mark.parametrize(
    ("cells", "reason", "detail"),
    [
        ({}, "images of a sample not stated", "how many, and of how many pixels or tokens"),
        ({"other_settings": "2 images per sample"}, "images of a sample not stated", "pixels or tokens they are"),
        ({"other_settings": "4 images per sample, 1280x960"}, "impossible figures", "6256 tokens of images"),
        ({"model": "Qwen4-VL-8B"}, "no spec of the model", "several modules"),
        (
            {"other_settings": "1 image per sample, 448x448; encoder on 16 GPUs"},
            "layout does not multiply up",
            "16 of 16",
        ),
        (
            {"model": "ViT-3B + GPT-11B", "task": "Pre-Training (multimodal)"},
            "images of a sample not stated",
            "how many",
        ),
    ],
)
def test_what_is_missing_is_said(cells, reason, detail):
    with pytest.raises(UnusableRecord) as why:
        read_case(vlm(**{"settings": "", **cells}) if "other_settings" not in cells else record({**VLM, **cells}))
    assert why.value.reason == reason and detail in why.value.detail


def test_text_alone_trains_the_llm_alone():
    case = read_case(record(family="", model="Qwen3.5-27B", task="Pre-Training", seq_len="4096"))
    assert not case.encoders and case.module.layers == 64 and case.module.linear_attention_shape


def test_more_and_larger_images_take_longer_and_a_frozen_tower_less():
    one, two = (seconds(f"{count} images per sample, 640x480") for count in (1, 2))
    larger, frozen = seconds("1 images per sample, 1280x960"), seconds("1 images per sample, 640x480; freeze_vit=true")
    assert frozen < one < two and one < larger


@pytest.mark.parametrize(
    ("words", "trained"),
    [
        ("", ("all", "all")),
        ("freeze_vit=true", ("projector", "all")),
        ("freeze_vision_model = false", ("all", "all")),
        ("frozen vision tower", ("projector", "all")),
        ("freeze_vit=true; freeze_aligner=true", ("none", "all")),
        ("freeze_language_model=true", ("all", "none")),
        ("projector only", ("projector", "none")),
    ],
)
def test_what_is_frozen_has_no_gradients(words, trained):
    case = read_case(vlm(f"1 image per sample, 640x480; {words}"))
    assert (case.encoders[0].module.trained, case.module.trained) == trained


def test_encoders_on_ranks_of_their_own_leave_the_llm_the_others():
    cells = {"model": "Qwen3.5-VL-27B", "tp": "4", "pp": "2", "dp": "2", "n_gpus": "17", "gbs": "32"}
    case = read_case(vlm("2 images per sample, 640x480; encoder on 1 GPU", **cells))
    assert (case.setup.ranks, case.ranks, case.encoders[0].place) == (16, 17, "apart")
    by_rate = of_own_ranks(vlm("", n_gpus="17", tokens_per_s_per_gpu="100"), case.encoders)
    assert by_rate.positive("tokens_per_s_total") == 1700 and not by_rate.stated("tokens_per_s_per_gpu")


def test_cross_attention_reads_what_does_not_stand_among_the_tokens():
    case = read_case(vlm("1 image per sample, 1120x1120", model="Llama-3.2-11B-Vision", tp="4", pp="1", dp="4"))
    assert case.setup.cross_reads == pytest.approx(6404 / 4096)
