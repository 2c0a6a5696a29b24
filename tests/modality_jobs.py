"""Small jobs of a decoder that sees, whose layouts are open or partly fixed."""

from collections.abc import Sequence
from pathlib import Path

from planner.specs.inputs import Inputs, JobOptions, load_job

MODEL = """\
format: planner.model/1
name: seeing
source: made up
modules:
  llm: {kind: decoder, layers: 4, hidden: 64, heads: 4, ffn: 96, vocab: 64}
  vit: {kind: vit, layers: 2, hidden: 32, heads: 4, ffn: 64, patch: 2, merge: 2, out: 64}
edges: [{from: vit, to: llm}]
"""
CLUSTER = """\
format: planner.cluster/1
name: small
source: made up
ranks:
  - {kind: cpu, count: RANKS, per_node: RANKS}
levels:
  - {name: machine, ranks: RANKS, gb_per_s: 5, latency_us: 20}
"""
ROWS, IMAGES = (400, 300, 250, 200, 500), "patches,row\n160,0\n160+80,3\n320,2\n800,4\n"


def seeing_job(
    folder: Path, ranks: int = 4, fixed: str = "", rows: Sequence[int] = ROWS, images: str = IMAGES, more: str = ""
) -> Inputs:
    """The inputs of a job on so many ranks; `fixed`: entries of fix.layouts, as `llm: {tp: 2}`."""
    job = f"""\
format: planner.job/1
name: seeing
model: ./model.yaml
cluster: ./cluster.yaml
profile: cpu
strategy: modality_layout
layout: {{dtype: float32}}
fix: {{layouts: {{{fixed}}}}}
workload:
  lengths: {{from: file, path: rows.txt}}
  batch_rows: {len(rows)}
  module: llm
  streams:
    vit: {{from: file, path: images.csv, column: patches, reads: row}}
{more}"""
    files = {
        "model.yaml": MODEL, "cluster.yaml": CLUSTER.replace("RANKS", str(ranks)), "images.csv": images,
        "job.yaml": job, "rows.txt": "".join(f"{length}\n" for length in rows),
    }  # fmt: skip
    for name, text in files.items():
        (folder / name).write_text(text)
    return load_job(str(folder / "job.yaml"), JobOptions(effort=1))
