"""Jobs of a decoder and two encoders whose layouts say the ranks of each module."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.examples import soaked

MODEL = """\
format: planner.model/1
name: senses
source: made up
modules:
  llm: {kind: decoder, layers: 4, hidden: 32, heads: 4, ffn: 48, vocab: 64}
  vit: {kind: vit, layers: 2, hidden: 16, heads: 4, ffn: 32, patch: 2, merge: 2, out: 32}
  ear: {kind: audio, layers: 2, hidden: 16, heads: 4, ffn: 32, mels: 4, pool: 2, out: 32}
edges: [{from: vit, to: llm}, {from: ear, to: llm}]
"""
ROWS = (40, 30, 25, 20, 50, 60, 35, 28, 44, 32, 26, 38)
# Some samples have several images, some none; the fourth image is read by two samples.
IMAGES = "patches,row\n16,0\n16+8,3\n32,2\n8,4\n12,0+1\n4,2+3\n64,5\n16,6\n24,8\n16,9\n8,10\n"
CLIPS = "row,frames\n0,8\n5,12+4\n7,8\n11,4\n"
NO_CLIPS, NO_IMAGES = "row,frames\n", "patches,row\n"
PLACEMENTS = {
    "first stage": {"llm": "pp: 2", "vit": "ranks: first_stage", "ear": "ranks: first_stage"},
    "first stage of tensors": {"llm": "pp: 2, tp: 2", "vit": "ranks: first_stage", "ear": "ranks: 0-1, tp: 1"},
    "first stage, ranks turned": {
        "llm": "pp: 2, rank_order: tp-pp-dp", "vit": "ranks: first_stage", "ear": "ranks: first_stage, zero: 3",
    },
    "all ranks": {"llm": "tp: 2", "vit": "dp: 4", "ear": "tp: 2, zero: 3"},
    "1 + 3": {"llm": "ranks: 1-3", "vit": "ranks: 0", "ear": "ranks: 0"},
    "2 + 2": {"llm": "ranks: 2-3, tp: 2", "vit": "ranks: 0-1", "ear": "ranks: 0-1, tp: 2"},
    "overlapping": {"llm": "cp: 2, dp: 2", "vit": "ranks: 0-2", "ear": "ranks: 1-3, zero: 0"},
    "disjoint": {"llm": "ranks: 1-2, pp: 2", "vit": "ranks: 0", "ear": "ranks: 3"},
    "pipelines of encoders": {"llm": "pp: 2", "vit": "pp: 2, ranks: 2-3", "ear": "pp: 2"},
    "three of four": {"llm": "pp: 2", "vit": "dp: 4", "ear": "zero: 3, ranks: 1-3"},
}  # fmt: skip
EVERY = pytest.mark.parametrize("name", PLACEMENTS)
OFTEN = ("first stage", "all ranks", "1 + 3", "three of four")
SOME = pytest.mark.parametrize("name", soaked(PLACEMENTS, OFTEN))
FEW = pytest.mark.parametrize("name", soaked(PLACEMENTS, OFTEN[2:]))  # of what takes seconds

LONG_IMAGE = {  # of 2400 patches; and three that are short
    "images": "patches,row\n2400,0\n8,1\n16,2\n12,3\n", "clips": "row,frames\n0,8\n", "rows": (620, 30, 25, 20),
    "max_tokens": 700,
}  # fmt: skip
LONG_VIDEO = LONG_IMAGE | {"images": "patches,row\n1200+1200,0\n8,1\n16,2\n12,3\n"}  # of two frames
EVERY_RANK = {"llm": "dp: 4", "vit": "dp: 4", "ear": "dp: 4"}
USUAL = {
    "images": IMAGES, "clips": CLIPS, "rows": ROWS, "model": MODEL, "layout": "{dtype: float64, zero: 1}",
    "max_tokens": 100,
}  # fmt: skip


def placed_job(folder: Path, fixed: Mapping[str, str], **other) -> str:
    """The path of a job that fixes these fields of each module's layout. `other`: what is not as usual."""
    said = USUAL | other
    rows = said["rows"]
    layouts = ", ".join(f"{name}: {{{fields}}}" for name, fields in fixed.items())
    job = f"""\
format: planner.job/1
name: placed
model: ./model.yaml
cluster: cpu-4
profile: cpu
layout: {said["layout"]}
fix: {{layouts: {{{layouts}}}}}
workload:
  lengths: {{from: file, path: rows.txt}}
  batch_rows: {len(rows)}
  max_tokens: {said["max_tokens"]}
  module: llm
  streams:
    vit: {{from: file, path: images.csv, column: patches, reads: row}}
    ear: {{from: file, path: clips.csv, column: frames, reads: row}}
"""
    files = {"model.yaml": said["model"], "images.csv": said["images"], "clips.csv": said["clips"], "job.yaml": job}
    files["rows.txt"] = "".join(f"{length}\n" for length in rows)
    for name, text in files.items():
        (folder / name).write_text(text)
    return str(folder / "job.yaml")
