"""Simulated against measured: plans of one small model with images and sound on two ranks of this machine.

There are as many ranks as the smallest machine has cores: more of them would take turns on a core, and the system's
scheduler would be measured. Each plan is made from a job that fixes the layouts of all modules, as `planner predict`
takes them: encoders in the LLM's first stage, on all ranks, or apart; parts of the model frozen; mixes from text alone
to images in nine samples of ten. Costs are those that `planner profile` measures here, module by module, and of
collectives: no step is fitted. Plans are trained in turns, two steps at a time, so that what else the machine does
meanwhile is spread over all; a step is the median.
"""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from benchmarks.moe_layouts import body
from benchmarks.registry import Figures
from benchmarks.simulated_measured import simulated_beside
from benchmarks.small_plans import CLUSTER, RANKS
from planner import pipeline
from planner.launch.processes import launch
from planner.plan.plan_file import Plan
from planner.specs.inputs import JobOptions
from planner.workflows import evidence

MODEL = """
format: planner.model/1
name: small-senses
source: made for this benchmark, an LLM that sees and hears
modules:
  vision: {kind: vit, layers: 4, hidden: 96, heads: 4, ffn: 384, patch: 8, merge: 2, out: 128, window: 64,
           full_layers: [1, 3], resize: {rule: smart, min_pixels: 4096, max_pixels: 40000}}
  ear: {kind: audio, layers: 2, hidden: 96, heads: 4, ffn: 384, mels: 40, pool: 2, out: 128, chunk: 2}
  llm: {kind: decoder, layers: 4, hidden: 128, heads: 8, kv_heads: 4, ffn: 384, vocab: 2048}
edges: [{from: vision, to: llm}, {from: ear, to: llm}]
"""
JOB = """
format: planner.job/1
name: small-senses
model: ./model.yaml
cluster: ./cluster.yaml
profile: ./profile.yaml
layout: {{dtype: float32}}
trained: {{{trained}}}
fix: {{layouts: {{{layouts}}}}}
workload:
  lengths: {{from: sample_mix, text: {{from: distribution, name: github}}, images: {{name: coco, each: 2}},
            audio: {{name: librispeech}}, multimodal: {multimodal}, text_only: {text_only}}}
  batch_rows: {rows}
  max_tokens: 1024
  module: llm
"""
DATA, STAGES, TENSORS = "llm: {dp: 2, zero: 1}", "llm: {pp: 2, zero: 0}", "llm: {tp: 2, zero: 0}"
BOTH_DATA = "vision: {dp: 2, zero: 1}, ear: {dp: 2, zero: 1}"


class Case(NamedTuple):
    """What differs between plans."""

    layouts: str
    trained: str = ""
    mix: tuple[int, int] = (1, 1)  # samples with images and sound, and text alone
    rows: int = 24


CASES = {
    "all on both": Case(f"{DATA}, {BOTH_DATA}"),
    "all on both, text alone": Case(f"{DATA}, {BOTH_DATA}", mix=(0, 1)),
    "all on both, mix 9:1": Case(f"{DATA}, {BOTH_DATA}", mix=(9, 1)),
    "all on both, 48 samples": Case(f"{DATA}, {BOTH_DATA}", rows=48),
    "all by zero 3": Case("llm: {dp: 2, zero: 3}, vision: {dp: 2, zero: 3}, ear: {dp: 2, zero: 3}"),
    "encoders frozen": Case(f"{DATA}, {BOTH_DATA}", "vision: none, ear: none"),
    "projectors alone": Case(f"{DATA}, {BOTH_DATA}", "vision: projector, ear: projector, llm: none"),
    "llm tp 2": Case(f"{TENSORS}, {BOTH_DATA}"),
    "llm tp 2, mix 9:1": Case(f"{TENSORS}, {BOTH_DATA}", mix=(9, 1)),
    "vision tp 2": Case(f"{DATA}, vision: {{tp: 2, zero: 0}}, ear: {{dp: 2, zero: 1}}"),
    "vision cp 2": Case(f"{DATA}, vision: {{cp: 2, ulysses: 2, zero: 1}}, ear: {{dp: 2, zero: 1}}"),
    "first stage": Case(f"{STAGES}, vision: {{ranks: first_stage}}, ear: {{ranks: first_stage}}"),
    "first stage, mix 9:1": Case(f"{STAGES}, vision: {{ranks: first_stage}}, ear: {{ranks: first_stage}}", mix=(9, 1)),
    "first stage, vision frozen": Case(
        f"{STAGES}, vision: {{ranks: first_stage}}, ear: {{ranks: first_stage}}", "vision: none"
    ),
    "stages, encoders on both": Case(f"{STAGES}, {BOTH_DATA}"),
    "apart 1 + 1": Case("llm: {ranks: 1}, vision: {ranks: 0}, ear: {ranks: 0}"),
    "apart 1 + 1, mix 9:1": Case("llm: {ranks: 1}, vision: {ranks: 0}, ear: {ranks: 0}", mix=(9, 1)),
    "ear beside the llm": Case("llm: {ranks: 1}, vision: {ranks: 0}, ear: {ranks: 1}"),
    "recompute": Case("llm: {dp: 2, recompute: full}, vision: {dp: 2, recompute: full}, ear: {dp: 2, zero: 1}"),
}


def run(data: Path | None) -> Iterator[Figures]:
    with TemporaryDirectory() as folder:
        made = plans(Path(folder))
    yield from simulated_beside(made, launch(body, RANKS, made, threads=1)[0])


def plans(folder: Path) -> dict[str, Plan]:
    """By name, each as its job fixes it."""
    (folder / "model.yaml").write_text(MODEL)
    (folder / "cluster.yaml").write_text(CLUSTER.format(ranks=RANKS))
    settings = evidence.ProfileSettings(RANKS, "float32")
    evidence.measure_profile(str(folder / "model.yaml"), settings, folder / "profile.yaml")
    made = {}
    for name, case in CASES.items():
        multimodal, text_only = case.mix
        job = folder / "job.yaml"
        job.write_text(
            JOB.format(
                trained=case.trained,
                layouts=case.layouts,
                multimodal=multimodal,
                text_only=text_only,
                rows=case.rows,
            )
        )
        made[name] = pipeline.predict(str(job), JobOptions()).plan
    return made
