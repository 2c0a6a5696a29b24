"""How even the work of encoders is over ranks, before and after samples and items are moved, and what a step gains.

Loads: 64 H100s with eight multimodal samples each, or one. Samples change places within groups of eight data ranks; or
items do, long ones split over 2, 4 or 8 of these ranks. Fullest over mean, in the worst group and in the mean over
groups, beside what no division of the group's items, by that degree, can be below. Steps: a 10B vision tower on all
ranks of a pipelined 70B LLM, assigned by the LLM's seconds alone, and by all modules together.
"""

import json
import random
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

import numpy as np

from benchmarks.baselines.loader_groups import reorder_within_groups
from benchmarks.registry import Figures
from planner.costs import Floats
from planner.packing import LongShort, SplitProblem, split_long
from planner.scoring import step_seconds
from planner.specs.inputs import Inputs, JobOptions, load_job
from planner.strategies.assignment.encoder_orders import few_orders
from planner.strategies.assignment.joint_assignment import JointItems
from planner.strategies.assignment.split_items import SplitItems
from planner.strategies.static.layouts_plan import draft_of_layouts, plan_of_layouts, pricing_for
from planner.strategies.static.placement import placed_layouts

RANKS, SAMPLES, GROUP, SEEDS, DEGREES = 64, (8, 1), 8, range(3), (2, 4, 8)
WORKLOADS = {
    "coco, 4 images": "{from: sample_mix, text: 256, images: {name: coco, each: 4}}",
    "librispeech, 2 clips": "{from: sample_mix, text: 256, audio: {name: librispeech, each: 2}}",
    "voxconverse": "{from: sample_mix, text: 256, audio: {name: voxconverse}}",
    "videos of 2 to 60 s": "{from: samples, path: videos.jsonl}",
}
JOB = """\
format: planner.job/1
name: encoder-balance
model: {model}
cluster: {cluster}
workload: {{lengths: {lengths}, batch_rows: {rows}, max_tokens: {most}, module: llm}}
fix: {{layouts: {{{layouts}}}}}
"""
COLOCATED = {
    "model": "qwen2.5-omni-7b", "cluster": "h100x64", "most": "1000000",
    "layouts": "llm: {zero: 1}, vision: {zero: 1}, audio: {zero: 1}",
}  # fmt: skip
MIXED = "70B pipeline, half of its samples with 4 images"
PIPELINE = {
    "model": "vit-10b-llama-70b", "cluster": "h100x256", "most": "8192",
    "layouts": "llm: {tp: 8, pp: 4, zero: 1}, vision: {zero: 2, recompute: full}",
    "lengths": """{from: sample_mix, text: {from: mix, parts: [{weight: 1, median: 2048, sigma: 0.8}]},
      images: {name: coco, each: 4}, multimodal: 5, text_only: 5}""",
}  # fmt: skip


def run(data: Path | None) -> Iterator[Figures]:
    with TemporaryDirectory() as folder:
        for (name, lengths), each, seed in product(WORKLOADS.items(), SAMPLES, SEEDS):
            inputs = read_job(Path(folder), seed, RANKS * each, **COLOCATED, lengths=lengths)
            yield {"workload": name, "samples_a_rank": each, "seed": seed, **balance(inputs)}
        for seed in SEEDS:
            yield {"workload": MIXED, "seed": seed, **steps(read_job(Path(folder), seed, 256, **PIPELINE))}


def balance(inputs: Inputs) -> Figures:
    """Loads of one batch."""
    layouts = placed_layouts(inputs, False)
    joint = JointItems(pricing_for(inputs, layouts), inputs, layouts, few_orders(inputs, layouts)[0])
    encoder = max(joint.streams, key=lambda each: len(joint.streams[each].loads))
    loads, reads = joint.streams[encoder].loads, joint.batch.feeds[encoder]["llm"]
    samples = [*joint.batch.items]
    count = len(samples) // RANKS
    of_sample = dict.fromkeys(samples, 0.0)
    for item, (sample, *_) in reads.items():
        of_sample[sample] += loads[item]
    seconds = np.array([of_sample[sample] for sample in samples])
    began = process_time()
    order = reorder_within_groups(seconds, RANKS, GROUP)
    ended = process_time()
    rank_of = {samples[sample]: place // count for place, sample in enumerate(order.tolist())}
    items = [[item for item, (sample, *_) in reads.items() if rank_of[sample] // GROUP == group]
             for group in range(RANKS // GROUP)]  # fmt: skip
    return {
        "items": len(loads),
        "drawn": fullest_over_mean(seconds),
        "samples_moved": fullest_over_mean(seconds[order]),
        **items_moved(joint, encoder, items),
        "reorder_cpu_seconds": round(ended - began, 3),
    }


def fullest_over_mean(seconds: Floats) -> list[float]:
    """Of groups of ranks, the fullest rank over the mean: in the worst group, and in the mean over groups."""
    groups = seconds.reshape(RANKS // GROUP, GROUP, -1).sum(axis=2)
    over = groups.max(axis=1) / groups.mean(axis=1)
    return [round(float(over.max()), 4), round(float(over.mean()), 4)]


def items_moved(joint: JointItems, encoder: str, items: list[list[int]]) -> Figures:
    """The same where items are on any rank of their group, or split over some, by the best degree for each group."""
    streams = [
        SplitItems(joint.pricing, encoder, joint.layouts[encoder], joint.batch.streams[encoder], degree)
        for degree in DEGREES
        if joint.inputs.model.modules[encoder].heads % degree == 0
    ]
    over: dict[str, list[float]] = {"whole": [], "split": [], "over_bound": []}
    count, began = 0, process_time()
    for own in items:
        problems = [problem_of(stream, own) for stream in streams]
        found = [split_long(problem) for problem in problems]
        best = min(found, key=lambda each: each.seconds)
        mean = problems[0].whole.sum() / GROUP
        over["split"].append(best.seconds / mean)
        over["over_bound"].append(best.seconds / best.bound - 1.0)
        over["whole"].append(whole_alone(problems[0]).seconds / mean)
        count += int(best.is_split.sum())
    figures: Figures = {
        f"items_{name}": [round(max(each), 4), round(float(np.mean(each)), 4)] for name, each in over.items()
    }
    return {**figures, "split_items": count, "split_cpu_seconds": round(process_time() - began, 3)}


def problem_of(stream: SplitItems, own: list[int]) -> SplitProblem:
    whole, split = (np.array([loads[item] for item in own]) for loads in (stream.loads, stream.split_loads))
    return SplitProblem(whole, split, stream.degree, np.zeros(GROUP))


def whole_alone(problem: SplitProblem) -> LongShort:
    """The division where splitting is out of the question."""
    never = np.full_like(problem.split, problem.whole.sum())
    return split_long(SplitProblem(problem.whole, never, problem.degree, problem.start))


def steps(inputs: Inputs) -> Figures:
    """Simulated seconds of a step on 256 ranks."""
    layouts = placed_layouts(inputs, False)
    alone = draft_of_layouts(inputs, layouts, JointItems.by_samples)
    began = process_time()
    together = plan_of_layouts(inputs, layouts)
    used = process_time() - began
    seconds = step_seconds(alone), step_seconds(together)
    return {
        "items": len(together.uses.items["vision"]),
        "by_the_llm_alone": round(seconds[0], 4),
        "together": round(seconds[1], 4),
        "less": round(1 - seconds[1] / seconds[0], 4),
        "plan_cpu_seconds": round(used, 3),
    }


def read_job(folder: Path, seed: int, rows: int, **fields: str) -> Inputs:
    """A job of so many samples, with its files."""
    (folder / "job.yaml").write_text(JOB.format(rows=rows, **fields))
    (folder / "videos.jsonl").write_text(videos(rows, seed))
    return load_job(str(folder / "job.yaml"), JobOptions(seed=seed))


def videos(count: int, seed: int) -> str:
    """Samples of a video each, of 720p; their durations are an assumption."""
    chance = random.Random(seed)
    seconds = (min(60.0, max(2.0, chance.lognormvariate(2.3, 0.8))) for _ in range(count))
    return "".join(json.dumps({"text": 256, "videos": [[1280, 720, each]]}) + "\n" for each in seconds)
