"""A folder of samples plans what a file with the same sizes plans; what is wrong in it is said with its place."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import pipeline
from planner.errors import InputError
from planner.specs.inputs import JobOptions, load_job
from planner.specs.workload.sample_folder import has_media, open_sample_folder
from tests.examples import examples
from tests.runtime.multi_module_plans import LLM, PHOTO, TALK
from tests.sample_folders import SAMPLES, planned, write_folder

JOB = """format: planner.job/1
name: from-a-folder
model: {model}
cluster: h200x8
workload: {{lengths: {{from: {source}, path: {path}}}, batch_rows: {rows}, max_tokens: 4096, module: llm}}
fix: {{layouts: {{llm: {{zero: 3}}, vision: {{zero: 1}}, audio: {{zero: 1}}}}}}
"""
OMNI = {"samples": SAMPLES, "mels": 128}
SPECS = {"llm": LLM, "photo": PHOTO, "talk": TALK}


def job(folder: Path, path, source="samples", model="qwen2.5-omni-7b", rows=4) -> str:
    (folder / "job.yaml").write_text(JOB.format(path=path, source=source, model=model, rows=rows))
    return str(folder / "job.yaml")


def file_of(path: Path, samples=SAMPLES) -> str:
    lines = (
        {"text": text, "images": [[width, height] for height, width in images], "audio": [each / 100 for each in clips]}
        for text, images, clips in samples
    )
    path.write_text("\n".join(map(json.dumps, lines)))
    return path.name


@pytest.mark.parametrize("first", [0, 2])
def test_batches_are_those_of_a_file_with_the_same_sizes(tmp_path, first):
    write_folder(tmp_path / "data", **OMNI)
    options = JobOptions(first_row=first)
    ours = load_job(job(tmp_path, "data"), options)
    theirs = load_job(job(tmp_path, file_of(tmp_path / "samples.jsonl")), options)
    assert ours.batches == theirs.batches
    assert {"lengths", "lengths of images", "lengths of clips"} <= set(ours.sources)
    with pytest.raises(InputError, match="end at sample 8, the data has 6"):
        load_job(job(tmp_path, "data"), JobOptions(batches=2))


def test_a_prediction_is_that_of_the_file(tmp_path):
    write_folder(tmp_path / "data", **OMNI)
    ours, theirs = (pipeline.predict(job(tmp_path, path)) for path in ("data", file_of(tmp_path / "samples.jsonl")))
    assert ours.scores[0].step_seconds == theirs.scores[0].step_seconds > 0
    assert ours.plan.uses.items == theirs.plan.uses.items and ours.plan.uses.feeds == theirs.plan.uses.feeds


def test_a_folder_is_what_is_in_it(tmp_path):
    """The option that replaces lengths takes a folder of samples, and `from: tokens` none with images."""
    write_folder(tmp_path / "data", **OMNI)
    write_folder(tmp_path / "text", [(3, [], []), (4, [], [])])
    assert has_media(tmp_path / "data") and not has_media(tmp_path / "text")
    path = job(tmp_path, file_of(tmp_path / "samples.jsonl", [(9, [], [])] * 4))
    replaced = load_job(path, JobOptions(lengths=str(tmp_path / "data"))).batches[0]
    assert replaced == load_job(job(tmp_path, "data"), JobOptions()).batches[0]
    with pytest.raises(InputError, match="the folder has images or sound beside its tokens") as refused:
        load_job(job(tmp_path, "data", "tokens", "llama-3-8b").replace("vision", "llm"), JobOptions())
    assert "from: samples" in refused.value.fix
    text = load_job(job(tmp_path, "text", rows=2), JobOptions()).batches[0]
    assert text.items == {0: 3, 1: 4} and text.streams == {"vision": {}, "audio": {}}


@examples(40)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 9),
            st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), max_size=3),
            st.lists(st.integers(1, 50), max_size=2),
        ).filter(lambda sample: any(sample)),
        min_size=1,
        max_size=6,
    )
)
def test_samples_come_back_as_they_were_written(tmp_path_factory, samples):
    folder = write_folder(tmp_path_factory.mktemp("samples") / "data", samples)
    opened = open_sample_folder(folder)
    found = [opened.sample(number) for number in range(len(opened))]
    written = [
        (each.text, [size[::-1] for size in each.images], [round(100 * s) for s in each.audio]) for each in found
    ]
    assert written == [(text, [*images], [*clips]) for text, images, clips in samples]


def test_items_are_numbered_by_the_rows_of_their_index(tmp_path):
    batch = planned(write_folder(tmp_path / "data"), SPECS)
    assert batch.feeds["photo"]["llm"] == {0: (0,), 1: (0,), 2: (1,), 3: (3,), 4: (5,)}
    assert batch.feeds["talk"]["llm"] == {0: (3,), 1: (4,), 2: (4,)}
    assert batch.items[1] == batch.streams["photo"][2] // 4, "a sample of an image alone"


# ----------------------------------------------------------------------------------------------------- what is wrong


def with_index(folder: Path, name: str, at: int, row) -> None:
    index = np.load(folder / name)
    index[at] = row
    np.save(folder / name, index)


def refused(folder: Path) -> InputError:
    with pytest.raises(InputError) as error:
        planned(folder, SPECS)
    assert error.value.fix and "\n" not in error.value.message
    return error.value


@pytest.mark.parametrize(
    ("name", "row", "says"),
    [
        ("images.npy", [3, 0, 11, 1], "image 3 has 0 x 11 pixels"),
        ("images.npy", [3, 7, -1, 1], "image 3 has 7 x -1 pixels"),
        ("images.npy", [3, 7, 2**40, 1], f"image 3 has 7 x {2**40} pixels"),
        ("images.npy", [3, 7, 11, 10**6], "image 3 is 77 pixels from 1000000 on, and there are 931"),
        ("images.npy", [3, 7, 11, 931 - 76], "image 3 is 77 pixels from 855 on, and there are 931"),
        ("images.npy", [3, 7, 11, -1], "image 3 is 77 pixels from -1 on"),
        ("images.npy", [3, 7, 11, 2**63 - 1], "image 3 is 77 pixels from"),
        ("images.npy", [6, 7, 11, 1], "image 3 is of sample 6, and samples are 0 to 5"),
        ("images.npy", [-1, 7, 11, 1], "image 3 is of sample -1"),
        ("images.npy", [0, 7, 11, 1], "image 3 is of sample 0, behind one of sample 1"),
        ("clips.npy", [4, 0, 1], "clip 1 has 0 frames"),
        ("clips.npy", [4, 63, 1], "clip 1 is 63 frames from 1 on, and there are 63"),
        ("clips.npy", [9, 1, 1], "clip 1 is of sample 9"),
    ],
)
def test_an_index_that_points_outside_is_named(tmp_path, name, row, says):
    folder = write_folder(tmp_path / "data")
    with_index(folder, name, 3 if name == "images.npy" else 1, row)
    error = refused(folder)
    assert says in error.message and error.where == str(folder / name)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("pixels.npy", None, "cannot read the pixels"),
        ("images.npy", None, "cannot read the index of images"),
        ("frames.npy", None, "cannot read the frames"),
        ("clips.npy", None, "cannot read the index of clips"),
        ("offsets.npy", None, "cannot read the tokens"),
        ("pixels.npy", b"", "no array of numpy"),
        ("pixels.npy", b"\x89PNG", "no array of numpy"),
        ("pixels.npy", np.array([[None]]), "no array of numpy"),
        ("pixels.npy", np.zeros((9, 3), "int64"), "int64[9, 3] is not two-dimensional of uint8 or float16"),
        ("pixels.npy", np.zeros((9, 3, 3), "uint8"), "uint8[9, 3, 3] is not two-dimensional"),
        ("frames.npy", np.zeros((9, 4), "uint8"), "uint8[9, 4] is not two-dimensional of float16"),
        ("images.npy", np.zeros((2, 5), "int64"), "the index has 5 columns, not sample, height, width, first"),
        ("clips.npy", np.zeros((2, 4), "int64"), "the index has 4 columns, not sample, frames, first"),
        ("images.npy", np.zeros((2, 4), "int32"), "int32[2, 4] is not two-dimensional of int64"),
        ("pixels.npy", np.zeros((931, 4), "uint8"), "pixels have 4 channels, `photo` reads 3"),
        ("frames.npy", np.zeros((63, 80), "float32"), "frames have 80 mel bins, `talk` reads 4"),
    ],
)
def test_damaged_folders_are_refused_with_their_file(tmp_path, name, value, says):
    path = write_folder(tmp_path / "data") / name
    if value is None:
        path.unlink()
    elif isinstance(value, bytes):
        path.write_bytes(value)
    else:
        np.save(path, value, allow_pickle=True)
    error = refused(path.parent)
    assert says in error.message and error.where == str(path)


def test_a_file_that_is_cut_off_or_an_archive_is_refused(tmp_path):
    path = write_folder(tmp_path / "data") / "pixels.npy"
    path.write_bytes(path.read_bytes()[:-7])
    assert "no array of numpy" in refused(path.parent).message
    with path.open("wb") as out:
        np.savez(out, np.zeros((931, 3), "uint8"))
    assert "an archive is not two-dimensional" in refused(path.parent).message


@pytest.mark.parametrize("source", ["samples", "tokens"])
def test_a_folder_that_cannot_be_there_is_refused(tmp_path, source):
    for path in ("nowhere", "x" * 300):
        with pytest.raises(InputError, match="cannot read") as error:
            load_job(job(tmp_path, path, source), JobOptions())
        assert path in error.value.where


def test_a_sample_of_nothing_is_named(tmp_path):
    folder = write_folder(tmp_path / "data")
    offsets = np.load(folder / "offsets.npy")
    np.save(folder / "offsets.npy", np.insert(offsets, 2, offsets[2]))
    error = refused(folder)
    assert "sample 2 is from token 5 to 5" in error.message and error.where == str(folder / "offsets.npy")


def test_an_image_that_no_rule_resizes_is_named(tmp_path):
    samples = [(5, [], []), (5, [(1, 300)], []), *SAMPLES[2:]]
    error = refused(write_folder(tmp_path / "data", samples))
    assert "over 200 times" in error.message and error.where.endswith("(sample 1)")


def test_images_for_a_text_model_are_refused(tmp_path):
    with pytest.raises(InputError, match="no module of made up reads one") as error:
        planned(write_folder(tmp_path / "data"), {"llm": LLM})
    assert error.value.where.endswith("data (sample 0)") and "leave images out" in error.value.fix


def test_the_folder_in_the_documents(tmp_path, monkeypatch):
    root = next(folder for folder in Path(__file__).parents if (folder / "pyproject.toml").is_file())
    _, program = re.findall(r"```python\n(.*?)```", (root / "docs/running.md").read_text(encoding="utf-8"), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(program, {})
    batch = load_job(job(tmp_path, "data", rows=3), JobOptions()).batches[0]
    assert batch.items == {0: 3 + 391, 1: 2, 2: 4 + 77 + 180}
    assert batch.feeds["vision"]["llm"] == {0: (0,), 1: (2,)} and batch.feeds["audio"]["llm"] == {0: (2,)}
