"""Small jobs of an encoder of images, one of sound, and a decoder, whose batches are planned one by one.

Of the batches from files the third has neither images nor sound; samples that are too long are dropped with what they
have.
"""

import json
from pathlib import Path

from planner import pipeline
from planner.plan.plan_file import Plan
from planner.specs.inputs import JobOptions
from tests.sample_folders import SAMPLES, write_folder

MODEL = """\
format: planner.model/1
name: senses
source: made up
modules:
  llm: {kind: decoder, layers: 4, hidden: 32, heads: 4, ffn: 48, vocab: 64}
  vit:
    {kind: vit, layers: 2, hidden: 16, heads: 4, ffn: 32, patch: 2, merge: 2, out: 32,
     resize: {rule: smart, min_pixels: 16, max_pixels: 256}}
  ear: {kind: audio, layers: 2, hidden: 16, heads: 4, ffn: 32, mels: 4, pool: 2, out: 32}
edges: [{from: vit, to: llm}, {from: ear, to: llm}]
"""
JOB = """\
format: planner.job/1
name: senses
model: ./model.yaml
cluster: cpu-4
profile: cpu
planning: {planning}
layout: {{dtype: float64}}
fix: {{layouts: {{{layouts}}}}}
workload: {{lengths: {lengths}, batch_rows: {rows}, max_tokens: {most}, module: llm{streams}}}
"""
LAYOUTS = {
    "together": {"llm": "pp: 2, zero: 1", "vit": "dp: 4, zero: 2", "ear": "tp: 2"},
    "sharded": {"llm": "dp: 4, zero: 3", "vit": "dp: 4, zero: 3", "ear": "dp: 4, zero: 3"},
    "apart": {"llm": "ranks: 1-2, cp: 2, ulysses: 1", "vit": "ranks: 0", "ear": "ranks: '0,3'"},
    "overlapping": {"llm": "ranks: 0-2, dp: 3", "vit": "ranks: 2-3, tp: 2", "ear": "ranks: 1-2, zero: 3"},
}
ROWS = 6  # samples of a batch
BATCHES = 4  # of files
STREAM_FILES, DRAWN_STREAMS, SAMPLES_FILE, FOLDER, MIXED = "stream files", "streams", "samples", "folder", "mix"
STREAMS = {
    STREAM_FILES: """,
  streams: {vit: {from: file, path: images.csv, column: patches, reads: row},
            ear: {from: file, path: clips.csv, column: frames, reads: row}}""",
    DRAWN_STREAMS: """,
  streams: {vit: {from: mix, parts: [{weight: 1, median: 12, sigma: 0.8}], each: 2},
            ear: {from: mix, parts: [{weight: 1, median: 24, sigma: 0.5}]}}""",
}
LENGTHS = {
    STREAM_FILES: "{from: file, path: rows.txt}",
    DRAWN_STREAMS: "{from: mix, parts: [{weight: 1, median: 50, sigma: 0.5}]}",
    SAMPLES_FILE: "{from: samples, path: samples.jsonl}",
    FOLDER: "{from: samples, path: data}",
    MIXED: """{from: sample_mix, multimodal: 1, text_only: 1, images: {name: coco, each: 2},
    audio: {name: librispeech}, text: {from: mix, parts: [{weight: 1, median: 30, sigma: 0.5}]}}""",
}


def write_several_job(folder: Path, data: str = STREAM_FILES, layouts: str = "together", **said) -> str:
    """The path of a job on this data."""
    sizes = [30 + 7 * row % 45 if row % 9 != 5 else 300 for row in range((BATCHES + 1) * ROWS)]
    seen = [row for row in range(len(sizes)) if row % 3 != 1 and row // ROWS != 2]
    heard = [row for row in range(len(sizes)) if row % 4 == 1 and row // ROWS != 2]
    (folder / "rows.txt").write_text("".join(f"{size}\n" for size in sizes))
    images = [f"{4 * (1 + row % 5)}{'+8' if row % 7 == 2 else ''},{row}\n" for row in seen]
    (folder / "images.csv").write_text("patches,row\n" + "".join(images) + f"12,{seen[0]}+{seen[1]}\n")
    (folder / "clips.csv").write_text("frames,row\n" + "".join(f"{8 + 4 * (row % 3)},{row}\n" for row in heard))
    samples = [
        {"text": size, "images": [[12 + row, 20]] * (row in seen), "audio": [0.2 + row / 100] * (row in heard)}
        for row, size in enumerate(sizes)
    ]
    (folder / "samples.jsonl").write_text("".join(json.dumps(sample) + "\n" for sample in samples))
    words = [(5 + row, [], []) for row in range(ROWS)]
    write_folder(folder / "data", (*SAMPLES, *words, *reversed(SAMPLES)))
    (folder / "model.yaml").write_text(MODEL)
    usual = {"planning": "per_batch", "rows": ROWS, "most": 600 if data == MIXED else 200} | said
    fixed = ", ".join(f"{name}: {{{fields}}}" for name, fields in LAYOUTS[layouts].items())
    job = JOB.format(lengths=LENGTHS[data], streams=STREAMS.get(data, ""), layouts=fixed, **usual)
    (folder / "job.yaml").write_text(job)
    return str(folder / "job.yaml")


def several_head(folder: Path, data: str = STREAM_FILES, layouts: str = "together", **said) -> Plan:
    return pipeline.solve(write_several_job(folder, data, layouts, **said), JobOptions()).plan
