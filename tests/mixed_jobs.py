"""Jobs of a small decoder and an image encoder on four GPUs, whose samples are drawn with a mix."""

from pathlib import Path

MODEL = """\
format: planner.model/1
name: small-eye
source: made up
modules:
  llm: {kind: decoder, layers: 8, hidden: 1024, heads: 16, ffn: 4096, vocab: 2048}
  vit: {kind: vit, layers: 8, hidden: 1024, heads: 8, ffn: 4096, patch: 16, merge: 2, out: 1024,
        resize: {rule: smart, min_pixels: 4096, max_pixels: 90000}}
edges: [{from: vit, to: llm}]
"""
CLUSTER = """\
format: planner.cluster/1
name: h100x4
source: made up
ranks: [{kind: h100-80gb, count: 4, per_node: 4}]
levels: [{name: node, ranks: 4, gb_per_s: 450, latency_us: 6.5}]
"""
JOB = """\
format: planner.job/1
name: mixed
model: ./model.yaml
cluster: ./cluster.yaml
strategy: modality_layout
within: 0
workload: {lengths: LENGTHS, batch_rows: 16, max_tokens: 2048, module: llm}
"""
DRAWN = """{from: sample_mix, multimodal: 5, text_only: 5, images: {name: coco, each: 3},
    text: {from: mix, parts: [{weight: 1, median: 200, sigma: 0.6}]}}"""
TIGHT = "limits: {memory_margin: 0.95}\n"  # what is quickest for few images has no room for many


def mixed_job(folder: Path, more: str = "", lengths: str = DRAWN, name: str = "job.yaml") -> str:
    """The path of a job; `more`: further lines of it, in place of those with the same keys."""
    keys = {line.partition(":")[0] for line in more.splitlines()}
    kept = [line for line in JOB.splitlines() if line.partition(":")[0] not in keys]
    (folder / "model.yaml").write_text(MODEL)
    (folder / "cluster.yaml").write_text(CLUSTER)
    (folder / name).write_text("\n".join([*kept, more]).replace("LENGTHS", lengths))
    return str(folder / name)
