"""One GPU more for an encoder: a 27-billion VLM whose LLM has tp 4, pp 2, dp 2 on 16 H100, beside the best on those 16.

Megatron-Bridge validated that layout with the encoder on a seventeenth GPU. Here nobody says where the encoder is: its
ranks and its layout are searched on 17 GPUs, and on 16; `first_stage` is Megatron-LM's way on 16. Samples are of as
many tokens as a line says, two images of COCO's sizes in each. Seconds are simulated.
"""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.registry import Figures
from planner.plan.plan_file import Plan
from planner.solve_job import read_job
from planner.specs.inputs import JobOptions
from planner.strategies.modality_layout import plan as plan_jointly

ENCODER, LLM = "vision", "llm"
TEXTS = {2048: 1248, 4096: 3296}  # tokens of a sample at most → of its text
BATCHES = (32, 64)
JOB = """
format: planner.job/1
name: vlm-17
model: qwen3.5-27b
cluster: {cluster}
strategy: modality_layout
workload:
  lengths: {{from: sample_mix, multimodal: 1, text_only: 0, text: {{from: fixed, tokens: {text}}},
            images: {{name: coco, each: 2}}}}
  batch_rows: {batch}
  max_tokens: {longest}
  module: llm
fix: {{layouts: {{llm: {{tp: 4, pp: 2, dp: 2, ranks: 0-15}}}}}}
"""


def run(data: Path | None) -> Iterator[Figures]:
    for longest, batch in product(TEXTS, BATCHES):
        plans = [solved(cluster, longest, batch) for cluster in ("h100x17", "h100x16")]
        first_stage = baseline_seconds(plans[1], "encoder_first_stage")
        more, fewer = (tokens_per_second(plan) for plan in plans)
        yield {
            "tokens": longest,
            "batch": batch,
            "step_seconds_17": round(plans[0].outcome.value, 4),
            "step_seconds_16": round(plans[1].outcome.value, 4),
            "encoder_ranks_17": str(plans[0].layouts[ENCODER].ranks),
            "encoder_ranks_16": str(plans[1].layouts[ENCODER].ranks),
            "first_stage_seconds_16": first_stage and round(first_stage, 4),
            "gain": round(more / fewer - 1.0, 4),
            "gain_per_gpu": round(more / plans[0].size / (fewer / plans[1].size) - 1.0, 4),
            "tokens_per_second_per_gpu": [round(more / plans[0].size, 1), round(fewer / plans[1].size, 1)],
            "published_gain_per_gpu": "up to 0.447 (Megatron-Bridge, over its own baseline)",
            "times": f"simulated, rates of {plans[0].uses.prices.profile}",
        }


def solved(cluster: str, longest: int, batch: int) -> Plan:
    """The strategy's plan on these GPUs."""
    with TemporaryDirectory() as folder:
        job = Path(folder) / "job.yaml"
        job.write_text(JOB.format(cluster=cluster, longest=longest, batch=batch, text=TEXTS[longest]))
        return plan_jointly(read_job(str(job), JobOptions()), None)


def baseline_seconds(plan: Plan, name: str) -> float | None:
    """Seconds of a baseline; None where it does not fit."""
    told = {each.strategy: each.value for each in plan.alternatives}
    return told.get(name, plan.outcome.value)


def tokens_per_second(plan: Plan) -> float:
    """Tokens of the LLM, images among them."""
    return sum(plan.uses.tokens(LLM, item) for item in plan.uses.items[LLM]) / plan.outcome.value
