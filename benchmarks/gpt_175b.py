"""GPT of 175 B parameters as MegaScale trains it (arXiv 2402.15627): tp 8, pp 8, six chunks of layers a rank.

Its GPUs are Ampere's, taken to be A100 of 80 GB; wires are what the device's data sheet and usual machines have.
"""

from pathlib import Path

SEQ, TP, PP, VPP = 2048, 8, 8, 6
NODE = 8

MODEL = """\
format: planner.model/1
name: gpt-175b
source: MegaScale (arXiv 2402.15627), with its vocabulary of 64,000
modules:
  llm:
    {{kind: decoder, layers: 96, hidden: 12288, heads: 128, ffn: 49152, vocab: 64000, gated: false, norm: layer,
     bias: all, positions: learned, max_positions: 2048, tied: true{window}}}
"""
CLUSTER = """\
format: planner.cluster/1
name: a100x{ranks}
source: nodes of 8 A100-80GB; NVLink 3 and a 200 Gb/s adapter a rank (NVIDIA A100 and DGX A100 data sheets)
ranks: [{{kind: a100-80gb, count: {ranks}, per_node: 8}}]
levels:
  - {{name: node, ranks: 8, gb_per_s: 300, latency_us: 10}}
  - {{name: cluster, ranks: {ranks}, gb_per_s: 25, latency_us: 20}}
"""
JOB = """\
format: planner.job/1
name: gpt-175b-a100x{ranks}
model: model.yaml
cluster: cluster.yaml
strategy: parallel_search
software: megatron
workload: {{lengths: {{from: file, path: lengths.txt}}, batch_rows: {batch}, max_tokens: 2048}}
layout: {{zero: 1, recompute: none}}
fix:
  layouts:
    llm: {{tp: 8, cp: 1, pp: 8, vpp: 6, micro_batch: 1, zero: 1, recompute: none}}
"""


def job(folder: Path, ranks: int, batch: int, window: int | None = None) -> str:
    """Path of a job of so many sequences in a step; `window`: of sliding attention."""
    said = f", window: {window}" if window else ""
    (folder / "model.yaml").write_text(MODEL.format(window=said))
    (folder / "cluster.yaml").write_text(CLUSTER.format(ranks=ranks))
    (folder / "lengths.txt").write_text(f"{SEQ}\n" * batch)
    path = folder / "job.yaml"
    path.write_text(JOB.format(ranks=ranks, batch=batch))
    return str(path)
