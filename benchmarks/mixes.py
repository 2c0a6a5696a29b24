"""One set of layouts for three mixes of images and text: a ViT of 10 billion parameters beside Llama-70B on 128 H100.

Each mix's own best, as planned for it alone, is what a set for all is compared with; so is the worst of these at the
other mixes. Batches have 128 samples of 8,192 tokens at most, with four images each where they have any.
"""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from benchmarks.registry import Figures
from planner import pipeline
from planner.plan.descriptions import layout_text
from planner.specs.workload.mix_schedule import parse_mixes
from planner.why import MixChoice, MixComparison

SCHEDULE = "1:9=2000,5:5=2000,9:1=2000"
CLUSTER = """
format: planner.cluster/1
name: h100x128
nodes: 16
gpus: 8xh100
nics: 8x400Gb
"""
JOB = """
format: planner.job/1
name: vit-10b-llama-70b-128xh100
model: vit-10b-llama-70b
cluster: ./cluster.yaml
strategy: modality_layout
workload:
  lengths: {from: sample_mix, multimodal: 1, text_only: 9, images: {name: coco, each: 4},
            text: {from: mix, parts: [{weight: 1, median: 2048, sigma: 0.8}]}}
  batch_rows: 128
  max_tokens: 8192
  module: llm
"""


def run(data: Path | None) -> Iterator[Figures]:
    with TemporaryDirectory() as folder:
        (Path(folder) / "cluster.yaml").write_text(CLUSTER)
        job = Path(folder) / "job.yaml"
        job.write_text(JOB)
        begun = perf_counter()
        found = pipeline.mixes(str(job), MixChoice(parse_mixes(SCHEDULE))).comparison
        seconds = perf_counter() - begun
    yield from figures(found)
    yield {
        "of": "all mixes",
        "worst_regret": round(found.candidates[0].worst or 0.0, 4),
        "expected_regret": round(found.candidates[0].expected or 0.0, 4),
        "candidates": len(found.candidates),
        "fit_at_all_mixes": sum(not each.because for each in found.candidates),
        "layouts": {name: layout_text(layout) for name, layout in found.candidates[0].layouts.items()},
        "solve_seconds": round(seconds, 1),
        "times": "simulated",
    }
    for switch in found.switches:
        yield {
            "of": f"from {switch.before} to {switch.after}",
            "saved_seconds_a_step": round(switch.saved_seconds, 4),
            "restart_seconds": found.restart_seconds,
            "repaid_after_steps": switch.repaid_after,
            "from_mix_in_2000_steps": switch.from_mix,
        }


def figures(found: MixComparison) -> Iterator[Figures]:
    """What the chosen layouts and each mix's own best take at each mix."""
    for at, mix in enumerate(found.mixes):
        others = [found.candidates[number] for number in found.own_best]
        yield {
            "of": mix.mix,
            "step_seconds": found.candidates[0].seconds[at],
            "best_seconds": others[at].seconds[at],
            "regret": round(found.candidates[0].regrets[at] or 0.0, 4),
            "regret_of_the_best_elsewhere": {
                other.mix: None if each.regrets[at] is None else round(each.regrets[at] or 0.0, 4)
                for other, each in zip(found.mixes, others, strict=True)
                if other is not mix
            },
        }
