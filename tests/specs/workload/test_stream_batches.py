"""Items of several modules, batch by batch: each is in the batch of who reads it, and what does not fit is named."""

from pathlib import Path

import pytest

from planner.errors import InputError
from planner.specs.inputs import JobOptions, load_job
from planner.specs.workload.items import ItemSize, item_tokens

MODEL = """\
format: planner.model/1
name: three
source: made up
modules:
  llm: {kind: decoder, layers: 2, hidden: 32, heads: 4, ffn: 64, vocab: 64}
  vit: {kind: vit, layers: 2, hidden: 16, heads: 4, ffn: 32, patch: 2, merge: 2, out: 32}
  ear: {kind: audio, layers: 2, hidden: 16, heads: 4, ffn: 32, mels: 4, pool: 2, out: 32}
edges: [{from: vit, to: llm}, {from: ear, to: llm}]
"""
JOB = """\
format: planner.job/1
name: three
model: ./model.yaml
cluster: cpu-4
profile: cpu
workload:
  lengths: {from: file, path: rows.txt}
  batch_rows: 4
  max_tokens: 100
  module: llm
  streams:
    vit: {from: file, path: images.csv, column: patches, reads: row}
    ear: {from: file, path: clips.csv, column: frames, reads: row}
"""
FILES = {
    "model.yaml": MODEL,
    "job.yaml": JOB,
    "rows.txt": "40\n30\n200\n20\n50\n60\n70\n80\n",
    "images.csv": "patches,row\n16,0\n16+8,3\n32,2\n8,4\n12,0+1\n4,2+3\n",
    "clips.csv": "row,frames\n0,8\n5,12+4\n",
}


TURNED = JOB.replace("module: llm", "module: ear").replace("    ear:", "    llm:")
CIRCLE = MODEL.replace("hidden: 16", "hidden: 32").replace(
    "edges: [", "edges: [{from: ear, to: vit}, {from: vit, to: ear}, "
)


def job(folder: Path, **other: str) -> str:
    """`other`: files that are not as usual, their dot as `_`."""
    for name, text in {**FILES, **{name.replace("_", "."): text for name, text in other.items()}}.items():
        (folder / name).write_text(text)
    return str(folder / "job.yaml")


def test_items_are_in_the_batch_of_their_readers(tmp_path):
    first, second = load_job(job(tmp_path), JobOptions(batches=2)).batches
    assert (first.items, first.dropped) == ({0: 40, 1: 30, 3: 20}, (2,))
    assert first.streams == {
        "vit": {0: 16, 1: ItemSize(patches=(16, 8)), 4: 12, 5: 4},
        "ear": {0: ItemSize(frames=8)},
    }
    assert first.feeds == {"vit": {"llm": {0: (0,), 1: (3,), 4: (0, 1), 5: (3,)}}, "ear": {"llm": {0: (0,)}}}
    assert first.left_out == {"vit": (2,)}  # its reader is too long
    assert second.streams == {"vit": {3: 8}, "ear": {1: ItemSize(frames=(12, 4))}}
    assert second.left_out == {}
    assert set(load_job(job(tmp_path), JobOptions()).sources) >= {"stream vit", "stream ear"}


def test_drawn_items_fit_their_readers_and_a_seed_draws_them_again(tmp_path):
    mix = "{from: mix, parts: [{weight: 1, median: 40, sigma: 1}], each: 3}"
    text = JOB.replace("{from: file, path: images.csv, column: patches, reads: row}", mix)
    path = job(tmp_path, job_yaml=text)
    batches = load_job(path, JobOptions(batches=2, seed=3)).batches
    assert batches == load_job(path, JobOptions(batches=2, seed=3)).batches
    for batch in batches:
        made = dict.fromkeys(batch.items, 0)
        for module, merged in (("vit", 4), ("ear", 2)):
            for item, readers in batch.feeds[module]["llm"].items():
                assert not item_tokens(batch.streams[module][item]) % merged
                for reader in readers:
                    made[reader] += item_tokens(batch.streams[module][item]) // merged
        assert all(made[row] <= tokens for row, tokens in batch.items.items())
        rows = range(min(batch.items) // 4 * 4, min(batch.items) // 4 * 4 + 4)
        there = {*batch.streams["vit"], *batch.left_out["vit"]}
        assert there == {3 * row + at for row in rows for at in range(3)}


def test_a_chain_is_followed_from_its_end(tmp_path):
    """Items of a module are read by items of the next, and these by samples."""
    chain = MODEL.replace(
        "edges: [{from: vit, to: llm}",
        "  mid: {kind: text_encoder, layers: 1, hidden: 32, heads: 2, ffn: 8, vocab: 9, positions: none}\n"
        "edges: [{from: vit, to: mid}, {from: mid, to: llm}",
    )
    text = JOB + "    mid: {from: file, path: mids.csv, reads: row}\n"
    mids = "tokens,row\n9,3\n10,2\n9,0\n9,6\n"
    images = "patches,row\n16,2\n32,0\n16,1\n8,3\n"
    (batch,) = load_job(
        job(tmp_path, job_yaml=text, model_yaml=chain, mids_csv=mids, images_csv=images), JobOptions()
    ).batches
    assert batch.streams["mid"] == {0: 9, 2: 9} and batch.streams["vit"] == {0: 16, 1: 32}
    assert batch.feeds["vit"] == {"mid": {0: (2,), 1: (0,)}}
    assert batch.left_out == {"mid": (1,), "vit": (2,)}


@pytest.mark.parametrize(
    ("other", "message", "where"),
    [
        ({"images_csv": "patches,row\n16,0\n8,9\n"}, "read by item 9 of `llm`, which has 8", "images.csv:3"),
        ({"images_csv": "patches,row\n16,0\n\n,1\n"}, "`` is no length", "images.csv:4"),
        ({"images_csv": "patches,row\n16,\n"}, "item 0 of `vit` has no reader", "images.csv:2"),
        ({"images_csv": "patches,row\n16,x\n"}, "`x` is no number of an item", "images.csv:2"),
        ({"images_csv": "patches,row\n16+6,0\n"}, "6 tokens are no whole outputs", "images.csv:2"),
        ({"images_csv": "patches,row\n80,0\n88,0\n"}, "item 0 of `llm` has 40 tokens, and 42 outputs", "images.csv:3"),
        ({"images_csv": "patches,rows\n16,0\n"}, "no column `row`", "images.csv:1"),
        ({"clips_csv": "row,frames\n0,9\n"}, "9 frames are no whole tokens", "clips.csv:2"),
        ({"clips_csv": "row,frames\n0,6\n"}, "3 tokens are no whole outputs", "clips.csv:2"),
        ({"job_yaml": JOB.replace("    ear:", "    eye:")}, "the model has no module `eye`", "streams.eye"),
        ({"job_yaml": JOB.replace("    ear:", "    llm:")}, "the items of `llm` already", "streams.llm"),
        ({"job_yaml": JOB[: JOB.index("    ear:")]}, "`ear` has no items", "workload.streams"),
        ({"job_yaml": TURNED}, "`ear` feeds another", "module"),
        ({"job_yaml": JOB.replace("reads: row", "reads: {mid: row}", 1)}, "`reads` does not name each", "vit.reads"),
        ({"model_yaml": MODEL.replace("{from: vit, to: llm}, ", "")}, "no module reads the outputs", "model.yaml"),
        ({"model_yaml": CIRCLE}, "edges form a cycle: vit → ear → vit", "model.yaml"),
    ],
)  # fmt: skip
def test_every_way_to_say_it_wrong(tmp_path, other, message, where):
    with pytest.raises(InputError) as error:
        load_job(job(tmp_path, **other), JobOptions(batches=2))
    assert message in error.value.message and where in str(error.value.where) and error.value.fix, error.value
