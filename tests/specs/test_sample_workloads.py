"""Samples with images, videos and sound: what the model's rules make of them, checked against published figures."""

import gzip
import json
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import pipeline
from planner.errors import InputError
from planner.specs import library
from planner.specs.base import with_fields
from planner.specs.inputs import JobOptions, load_job
from planner.specs.layers import Audio, Vit
from planner.specs.layers.resize import (
    CanvasResize,
    FixedResize,
    ImageSize,
    SmartResize,
    TiledResize,
    VideoSampling,
    canvas_tiles,
    image_parts,
    part_grid,
)
from planner.specs.model import Model
from planner.specs.workload.items import item_tokens
from planner.specs.workload.length_sources import DrawnImages
from planner.specs.workload.sample_mix import draw_images
from planner.specs.workload.sample_records import Sample, Video, read_sample_file
from planner.specs.workload.sample_sizes import sample_readers, sized_sample

QWEN = SmartResize(min_pixels=3136, max_pixels=12_845_056)


def tiles(most: int) -> TiledResize:
    return TiledResize(pixels=448, most=most)


def canvas(padded: bool = False) -> CanvasResize:
    return CanvasResize(pixels=560, most=4, padded=padded)


@pytest.mark.parametrize(
    ("rule", "merge", "size", "tokens"),
    [  # as the models' own processors in transformers 4.57.1 give them
        (QWEN, 2, (1280, 960), 1564),
        (QWEN, 2, (640, 480), 391),
        (QWEN, 2, (1920, 1080), 2691),
        (QWEN, 2, (224, 224), 64),
        (QWEN, 2, (3000, 4000), 15301),
        (tiles(12), 2, (1280, 960), 3328),
        (tiles(6), 2, (1280, 960), 1792),
        (tiles(12), 2, (1920, 1080), 2304),
        (tiles(6), 2, (1920, 1080), 768),
        (tiles(12), 2, (224, 224), 256),
        (FixedResize(pixels=336), 1, (1280, 960), 576),
        (canvas(), 1, (1280, 960), 4 * 1601),
        (canvas(), 1, (640, 480), 2 * 1601),
        (canvas(), 1, (1920, 1080), 4 * 1601),
        (canvas(), 1, (224, 224), 1601),
        (canvas(), 1, (3000, 4000), 4 * 1601),
        (canvas(padded=True), 1, (224, 224), 4 * 1601),
    ],
)
def test_tokens_of_images_are_those_of_the_models_processors(rule, merge, size, tokens):
    assert sum(image_parts(rule, ImageSize(*size), 14, merge)) == tokens * merge**2


@given(st.integers(1, 5000), st.integers(1, 5000), st.sampled_from([QWEN, tiles(6), FixedResize(pixels=336)]))
def test_every_part_is_whole_outputs_within_its_limits(width, height, rule):
    try:
        parts = image_parts(rule, ImageSize(width, height), 14, 2)
    except ValueError:
        assert isinstance(rule, SmartResize) and max(width, height) > 200 * min(width, height)
        return
    assert all(part % 4 == 0 and part > 0 for part in parts)
    if isinstance(rule, SmartResize):
        assert 3136 <= parts[0] * 196 <= max(rule.max_pixels, 28 * max(width, height))
    elif isinstance(rule, TiledResize):
        assert len(parts) <= rule.most + 1


@given(st.integers(1, 5000), st.integers(1, 5000), st.integers(1, 6))
def test_a_canvas_enlarges_an_image_least_or_shrinks_it_least(width, height, most):
    """By search over all grids, in fractions: no other does better, and none of fewer tiles as well."""
    grids = [(i, j) for i in range(1, most + 1) for j in range(1, most + 1) if i * j <= most]
    scale = {grid: min(Fraction(560 * grid[0], width), Fraction(560 * grid[1], height)) for grid in grids}
    large_enough = [grid for grid in grids if scale[grid] >= 1]
    found = canvas_tiles(CanvasResize(pixels=560, most=most), ImageSize(width, height))
    best = min(scale[grid] for grid in large_enough) if large_enough else max(scale.values())
    assert found == min(i * j for i, j in grids if scale[i, j] == best)


@given(st.integers(1, 5000), st.integers(1, 5000), st.sampled_from([QWEN, tiles(6), FixedResize(pixels=336)]))
def test_a_part_has_the_rows_and_columns_of_its_patches(width, height, rule):
    try:
        rows, columns = part_grid(rule, ImageSize(width, height), 14, 2)
    except ValueError:
        return
    assert {*image_parts(rule, ImageSize(width, height), 14, 2)} == {rows * columns}
    if isinstance(rule, SmartResize) and min(width, height) > 300:
        assert rows / columns == pytest.approx(height / width, rel=0.25)


def test_an_image_that_is_attended_to_is_marked_by_one_token_of_text():
    model = library.read_named("llama-3.2-vision-11b", Model)[0]
    readers = sample_readers(model, "llm", "here")
    sized = sized_sample(readers, Sample(100, (ImageSize(640, 480), ImageSize(224, 224))), "here")
    assert (sized.tokens, sized.items["vision"]) == (102, (6404, 6404))
    assert sized_sample(readers, Sample(100), "here").tokens == 100


def test_a_minute_of_video_is_split_at_pairs_of_frames():
    model = library.read_named("qwen2.5-vl-7b", Model)[0]
    readers = sample_readers(model, "llm", "here")
    sized = sized_sample(readers, Sample(100, (), (Video(1280, 720, 60.0),)), "here")
    (video,) = sized.items["vision"]
    assert item_tokens(video) == 172_800 and len(video.counts) == 60  # of 120 frames, two in a patch
    assert video.grids == 60 * ((40, 72),)
    assert sized.tokens == 100 + 43_200


@pytest.mark.parametrize(("seconds", "tokens"), [(7.2, 180), (10.0, 250), (30.0, 750)])
def test_sound_is_25_tokens_a_second(seconds, tokens):
    readers = sample_readers(library.read_named("qwen2-audio-7b", Model)[0], "llm", "here")
    assert sized_sample(readers, Sample(1, (), (), (seconds,)), "here").tokens == 1 + tokens


def test_drawn_images_have_the_published_sizes():
    """The quantiles of Qwen2.5-VL's tokens over COCO's 117,263 images: 234, 345, 391 and 529, mean 351."""
    drawn = [image for each in draw_images(DrawnImages(name="coco"), (0, 20_000), 1) for image in each]
    tokens = sorted(image_parts(QWEN, image, 14, 2)[0] // 4 for image in drawn)
    for share, published in ((0.1, 234), (0.25, 345), (0.9, 391), (0.99, 529)):
        assert tokens[int(share * len(tokens))] == pytest.approx(published, rel=0.07)
    assert sum(tokens) / len(tokens) == pytest.approx(351, rel=0.02)


JOB = """format: planner.job/1
name: vl
model: qwen2.5-vl-7b
cluster: h200x8
workload: {{lengths: {lengths}, batch_rows: {rows}, max_tokens: 4096, module: llm}}
fix: {{layouts: {{llm: {{zero: 3}}, vision: {{zero: 1}}}}}}
"""
MIX = "{from: sample_mix, multimodal: 1, text_only: 1, text: 512, images: {name: coco, each: 2}}"


def job(folder: Path, lengths: str, rows: int = 4) -> str:
    path = folder / "job.yaml"
    path.write_text(JOB.format(lengths=lengths, rows=rows))
    return str(path)


def sample_file(folder: Path, *lines: str, name: str = "samples.jsonl") -> str:
    (folder / name).write_text("\n".join(lines) + "\n")
    return f"{{from: samples, path: {name}}}"


GOOD = ('{"text": 512, "images": [[640, 480]]}', '{"text": 100}', '{"text": 9, "images": [[224, 224], [640, 480]]}')


def test_json_csv_and_gzip_say_the_same(tmp_path):
    whole = [*GOOD, '{"text": 5000}']
    csv = ["text,images", "512,640x480", "100,", "9,224x224+640x480", "5000,"]
    (tmp_path / "packed.jsonl.gz").write_bytes(gzip.compress("\n".join(whole).encode()))
    found = [
        load_job(job(tmp_path, lengths), JobOptions()).batches[0]
        for lengths in (
            sample_file(tmp_path, *whole),
            sample_file(tmp_path, *csv, name="samples.csv"),
            "{from: samples, path: packed.jsonl.gz}",
            sample_file(tmp_path, f"[{', '.join(whole)}]", name="list.json"),
        )
    ]
    assert all(each == found[0] for each in found)
    assert found[0].items == {0: 512 + 391, 1: 100, 2: 9 + 64 + 391}
    assert found[0].dropped == (3,)
    grids = {0: ((34, 46),), 1: ((16, 16),), 2: ((34, 46),)}
    assert {item: size.grids for item, size in found[0].streams["vision"].items()} == grids
    assert {item: size.patches for item, size in found[0].streams["vision"].items()} == {0: 1564, 1: 256, 2: 1564}
    assert found[0].feeds["vision"]["llm"] == {0: (0,), 1: (2,), 2: (2,)}


@pytest.mark.parametrize(
    ("line", "message", "fix"),
    [
        ('{"text": 5, "images": [[1, 100000]]}', "200 times as long", "cut it"),
        ('{"text": 5, "images": [[0, 7]]}', "no size of an image", "at least 1"),
        ('{"text": 5, "audio": [3]}', "no module of qwen2.5-vl-7b reads one", "leave sound out"),
        ('{"text": 5, "audio": [-1]}', "`int` >= 0|this is no sample", "write it like"),
        ('{"text": -5}', "-5 tokens", "write it like"),
        ('{"text": 0}', "the sample is empty", "write it like"),
        ('{"txt": 5}', "txt", "write it like"),
        ("{", "this is no sample", "write it like"),
    ],
)
def test_a_sample_that_cannot_be_is_refused_with_its_line(tmp_path, line, message, fix):
    with pytest.raises(InputError, match=message) as refused:
        load_job(job(tmp_path, sample_file(tmp_path, GOOD[0], line)), JobOptions())
    assert refused.value.where.endswith("samples.jsonl:2") and fix in refused.value.fix


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ("5.5,,,", "`5.5` is no number of tokens"),
        ("5,640,,", "`640` is no width x height"),
        ("5,,640x480,", "`640x480` is no width x height x seconds"),
        ("5,,,-1", "-1 seconds are no length"),
        ("5,,,long", "`long` is no number of seconds"),
        (",,,", "the sample is empty"),
    ],
)
def test_a_record_that_cannot_be_is_refused_with_its_line(tmp_path, record, message):
    lengths = sample_file(tmp_path, "text,images,videos,audio", "9,,,", record, name="samples.csv")
    with pytest.raises(InputError, match=message) as refused:
        load_job(job(tmp_path, lengths), JobOptions())
    assert refused.value.where.endswith("samples.csv:3")


@given(st.text(max_size=60), st.sampled_from(["a.csv", "a.jsonl"]))
def test_any_text_is_samples_or_one_located_error(tmp_path_factory, text, name):
    path = tmp_path_factory.mktemp("text") / name
    path.write_text(text, encoding="utf-8")
    try:
        assert all(sample.text >= 0 for sample, _ in read_sample_file(path))
    except InputError as error:
        assert error.where.startswith(str(path)) and error.fix and "\n" not in error.message


def test_an_image_in_a_text_models_workload_is_refused(tmp_path):
    path = tmp_path / "job.yaml"
    lengths = sample_file(tmp_path, *GOOD)
    head = "format: planner.job/1\nname: t\nmodel: llama-3-8b\ncluster: h200x8\n"
    path.write_text(f"{head}workload: {{lengths: {lengths}, batch_rows: 3}}\n")
    with pytest.raises(InputError, match="no module of llama-3-8b reads one") as refused:
        load_job(str(path), JobOptions())
    assert refused.value.where.endswith("samples.jsonl:1")


def test_samples_of_a_text_model_without_images_are_its_lengths(tmp_path):
    path = tmp_path / "job.yaml"
    lengths = sample_file(tmp_path, '{"text": 7}', '{"text": 8}')
    head = "format: planner.job/1\nname: t\nmodel: llama-3-8b\ncluster: h200x8\n"
    path.write_text(f"{head}workload: {{lengths: {lengths}, batch_rows: 2}}\n")
    assert load_job(str(path), JobOptions()).batches[0].items == {0: 7, 1: 8}


@pytest.mark.slow
def test_the_mix_is_a_knob(tmp_path):
    path = job(tmp_path, MIX, rows=400)

    def multimodal(mix: str | None) -> set[int]:
        batch = load_job(path, JobOptions(mix=mix)).batches[0]
        assert all(batch.items[sample] >= 512 for sample in batch.items)
        return {sample for (sample,) in batch.feeds["vision"]["llm"].values()}

    assert not multimodal("0:1") and len(multimodal("1:0")) == 400
    assert len(multimodal(None)) == pytest.approx(200, abs=40)
    assert multimodal("1:9") < multimodal(None) < multimodal("9:1"), "a higher share keeps the samples that it had"
    for mix, message in (("0:0", "both shares"), ("9-1", "is no mix")):
        with pytest.raises(InputError, match=message):
            load_job(path, JobOptions(mix=mix))


def test_more_samples_than_can_be_drawn_are_refused(tmp_path):
    with pytest.raises(InputError, match="beyond sample"):
        load_job(job(tmp_path, MIX, rows=1_000_000), JobOptions(batches=100))


def test_more_drawn_samples_continue_fewer(tmp_path):
    few, many = (load_job(job(tmp_path, MIX, rows=8), JobOptions(batches=count)).batches[0] for count in (1, 3))
    assert few == many


@pytest.mark.slow
def test_thousands_of_images_and_none_are_planned(tmp_path):
    crowded = json.dumps({"text": 4, "images": [[28, 28]] * 3000})
    lengths = sample_file(tmp_path, crowded, *GOOD)
    text = JOB.format(lengths=lengths, rows=4).replace("max_tokens: 4096", "max_tokens: 65536")
    (tmp_path / "job.yaml").write_text(text)
    found = pipeline.predict(str(tmp_path / "job.yaml"))
    assert len(found.plan.uses.items["vision"]) == 3003
    lengths = sample_file(tmp_path, *['{"text": 64}'] * 8)
    found = pipeline.predict(job(tmp_path, lengths, rows=8))
    assert found.plan.uses.items["vision"] == {} and found.scores[0].step_seconds > 0


def test_parts_and_limits_of_the_shipped_models_are_whole():
    for name in ("qwen2.5-vl-7b", "qwen2-audio-7b"):
        for module in library.read_named(name, Model)[0].modules.values():
            assert isinstance(module, Audio | Vit) is (module.feature_width > 0)
    with pytest.raises(ValueError, match="no whole outputs"):
        vision = library.read_named("qwen2.5-vl-7b", Model)[0].modules["vision"]
        assert isinstance(vision, Vit) and isinstance(vision.video, VideoSampling)
        Vit(**{**{f: getattr(vision, f) for f in vision.__struct_fields__}, "resize": FixedResize(pixels=100)})


def test_an_encoder_that_nobody_reads_and_a_loss_of_an_encoder_are_said_so():
    shipped = library.read_named("qwen2.5-vl-7b", Model)[0]
    unread = with_fields(shipped, edges=())
    with pytest.raises(InputError, match="reads `vision`") as error:
        sample_readers(unread, "llm", "job.yaml")
    assert "from: vision, to: llm" in error.value.fix
    with pytest.raises(InputError, match="is an encoder") as error:
        sample_readers(shipped, "vision", "job.yaml")
    assert (error.value.where, error.value.fix) == ("workload.module", "module: llm")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("images: {}", "images are drawn from a name, or have sizes"),
        ("images: {name: coco, sizes: [[64, 64]]}", "images are drawn from a name, or have sizes"),
        ("audio: {each: 2}", "clips are drawn from a name, or have seconds"),
        ("images: {sizes: [[64]]}", "sizes"),
        ("images: {sizes: [[0, 64]]}", "sizes"),
    ],
)
def test_images_and_clips_are_drawn_or_given(tmp_path, given, message):
    with pytest.raises(InputError) as caught:
        load_job(job(tmp_path, f"{{from: sample_mix, text: 100, {given}}}"), JobOptions())
    assert message in f"{caught.value.message} {caught.value.where}" and "job.yaml:5" in caught.value.where


def test_given_sizes_keep_the_mix(tmp_path):
    """Half of the samples have all the images that the job gives, twice; the others have none."""
    mix = "{from: sample_mix, text: 100, text_only: 1, images: {sizes: [[1280, 960], [640, 480]], each: 2}}"
    (batch,) = load_job(job(tmp_path, mix, 40), JobOptions()).batches
    assert {*batch.items.values()} == {100, 100 + 2 * (1564 + 391)}
    assert len(batch.streams["vision"]) == 4 * sum(tokens > 100 for tokens in batch.items.values())
