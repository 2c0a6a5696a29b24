"""Encoders and LLM planned together beside plans as trainers have them: the workloads of MegaScale-Omni's evaluation.

Models, batches and lengths are those of its table 1 as far as a summary gives them. Assumed: 64 to 256 H100; texts of
log-normal lengths about a quarter of the longest sample; COCO's sizes of images by Qwen2.5-VL's rule, one for each
2,048 tokens of the longest. Mixes are of multimodal samples to text. All seconds are simulated with the rates of the
profile that a line names. Baselines (planner/strategies/modality/baselines.py) are simulated by the same engine, have
recomputation where they need it, and their samples are balanced as the plan's are; of each four layouts that fit are
tried, where the search tries one.

Ablations take one thing away at the worst mix of encoders on the first stage: encoders on all ranks, searched anew; the
assignment that knows of all modules; items split over replicas; forwards ahead of their readers, or of several
micro-batches in a pass; encoders' own tensor parallelism.

`python -m benchmarks.omni vit-10b-llama-70b` is one workload alone.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from benchmarks.registry import Figures
from planner.plan.plan_file import Layout, Plan
from planner.scoring import step_seconds
from planner.scoring.work_at_peak import module_flops
from planner.solve_job import read_job
from planner.specs.base import with_fields
from planner.specs.inputs import Inputs, JobOptions
from planner.strategies.assignment.encoder_orders import EncoderOrder, Orders, orders_of
from planner.strategies.assignment.joint_assignment import JointItems
from planner.strategies.assignment.joint_streams import JointAssignment
from planner.strategies.modality.baselines import BASELINES, baseline_trials
from planner.strategies.modality.joint_candidates import JointSpace, joint_candidates
from planner.strategies.modality.joint_search import (
    JointSearch,
    JointTrials,
    improve,
    most_simulated,
    place_passes,
    simulate_quickest,
)
from planner.strategies.modality_layout import plan as plan_jointly
from planner.strategies.static.layouts_plan import draft_of_layouts

MIXES = ("1:9", "5:5", "9:1")
PUBLISHED = {
    "over_baselines": "1.27x to 7.57x over Megatron-LM, Megatron-Dist, AutoParallel, Optimus",
    "without": {"colocation": 0.53, "balance": 0.46, "splits": 0.19, "look-ahead": 0.16},
}  # of throughput lost at least
PFLOP = 1e15
BASELINE_EFFORT = 3
JOB = """
format: planner.job/1
name: {model}
model: {model}
cluster: {cluster}
strategy: modality_layout
workload:
  lengths:
    from: sample_mix
    text: {{from: mix, parts: [{{weight: 1, median: {median}, sigma: 0.8}}]}}
    images: {{name: coco, each: {images}}}
    multimodal: 5
    text_only: 5
  batch_rows: {batch}
  max_tokens: {longest}
  module: llm
"""


class Workload(NamedTuple):
    """What a job is made of, beside its model."""

    cluster: str
    batch: int
    longest: int  # tokens of a sample at most
    published_gain: float  # the best, over the best baseline of the paper, by a summary of it


WORKLOADS = {
    "vit-1b-llama-12b": Workload("h100x64", 32, 16384, 1.54),
    "vit-2.4b-llama-70b": Workload("h100x64", 64, 16384, 1.54),
    "vit-10b-llama-70b": Workload("h100x128", 128, 8192, 3.30),
    "vit-10b-gpt-175b": Workload("h100x256", 256, 8192, 7.57),
}


class AtMix(NamedTuple):
    """A workload at a mix: the plan, and seconds of each baseline that fits."""

    inputs: Inputs
    plan: Plan
    baselines: dict[str, float | None]

    def per_pflop(self, seconds: float) -> float:
        """Seconds of the step over what it computes."""
        flops = sum(module_flops(self.plan, range(len(self.plan.steps))).values())
        return seconds / (flops / PFLOP)


def run(data: Path | None) -> Iterator[Figures]:
    yield from figures(WORKLOADS)


def figures(names: Iterable[str]) -> Iterator[Figures]:
    """The figures of these workloads."""
    for name in names:
        with TemporaryDirectory() as folder:
            each = dict(at_mixes(Path(folder), name))
            for mix, found in each.items():
                yield {"workload": name, "mix": mix, **step_figures(found)}
            yield {"workload": name, "mix": "all", **over_mixes(each, WORKLOADS[name])}
            worst = worst_mix(each, "encoder_first_stage")
            yield {"workload": name, "mix": worst, **ablations(each[worst])}


def at_mixes(folder: Path, name: str) -> Iterator[tuple[str, AtMix]]:
    """A workload at each mix."""
    given = WORKLOADS[name]
    text, images = given.longest // 4, given.longest // 2048
    said = JOB.format(model=name, median=text, images=images, **given._asdict())
    (folder / "job.yaml").write_text(said)
    for mix in MIXES:
        inputs = read_job(str(folder / "job.yaml"), JobOptions(mix=mix))
        plan = plan_jointly(inputs, None)
        thorough = replace(inputs, effort=BASELINE_EFFORT)
        tried = baseline_trials(JointTrials(thorough), JointSpace(thorough))
        yield mix, AtMix(inputs, plan, {each.kind: each.seconds if each.plan else None for each in tried})


def step_figures(found: AtMix) -> Figures:
    """Seconds of a step, of the plan and of each baseline, and how much quicker the plan is."""
    seconds = found.plan.outcome.value
    able = {name: each for name, each in found.baselines.items() if each is not None}
    return {
        "step_seconds": round(seconds, 4),
        "ms_per_pflop": round(1e3 * found.per_pflop(seconds), 4),
        "gap": round(found.plan.outcome.gap, 4),
        "baseline_seconds": {name: each and round(each, 4) for name, each in found.baselines.items()},
        "gain": {name: round(each / seconds, 3) for name, each in able.items()},
        "never_slower": all(seconds <= each for each in able.values()),
        "times": f"simulated, rates of {found.plan.uses.prices.profile}",
    }


def worst_mix(each: Mapping[str, AtMix], baseline: str) -> str:
    """The mix at which a baseline takes longest for what it computes; where it does not fit, the first."""
    seconds = {mix: found.baselines[baseline] for mix, found in each.items()}
    return max(each, key=lambda mix: float("inf") if (own := seconds[mix]) is None else each[mix].per_pflop(own))


def over_mixes(each: Mapping[str, AtMix], workload: Workload) -> Figures:
    """The worst mix of stages that are kept, the gain there, and how much a step per FLOP differs between mixes."""
    worst = worst_mix(each, "kept_stages")
    kept, seconds = each[worst].baselines["kept_stages"], each[worst].plan.outcome.value
    spreads = {
        name: spread([found.per_pflop(own) for found in each.values() if (own := found.baselines[name]) is not None])
        for name in BASELINES
    }
    return {
        "worst_mix_of_kept_stages": worst,
        "gain_there": None if kept is None else round(kept / seconds, 3),
        "spread": spread([found.per_pflop(found.plan.outcome.value) for found in each.values()]),
        "spread_of_baselines": spreads,
        "published_best_gain": workload.published_gain,
        "published": PUBLISHED["over_baselines"],
    }


def spread(values: list[float]) -> float | None:
    """Most over least."""
    return round(max(values) / min(values), 3) if values else None


def ablations(found: AtMix) -> Figures:
    """The share of throughput that is lost without one thing, beside the paper's."""
    plan, inputs = found.plan, found.inputs
    encoders = [name for name in plan.layouts if name != inputs.module]
    tp = plan.layouts[inputs.module].tp
    following = dict.fromkeys(encoders, EncoderOrder(at_once=True))
    seconds = {
        "colocation": without_colocation(inputs),
        "balance": step_seconds(draft_of_layouts(inputs, plan.layouts, JointItems.by_samples)),
        "splits": step_seconds(draft_of_layouts(inputs, plan.layouts, unsplit)),
        "look-ahead": simulated(inputs, plan.layouts, following),
        "own tensor parallelism": with_tensors_of(inputs, plan, encoders, tp),
    }
    lost = {name: None if own is None else round(1.0 - plan.outcome.value / own, 4) for name, own in seconds.items()}
    return {"lost_without": lost, "published_lost_without": PUBLISHED["without"], "layouts": layout_words(plan)}


def without_colocation(inputs: Inputs) -> float | None:
    """Seconds of the best plan of the same search whose encoders are on the first stage, or apart; None: none fits."""
    most = most_simulated(inputs)
    apart = [each for each in joint_candidates(JointSpace(inputs)) if not {*each.places.values()} & {"all", "beside"}]
    done = JointSearch(trials=JointTrials(inputs), most=most, priced=len(apart))
    simulate_quickest(done, apart)
    improve(done)
    place_passes(done)
    return done.best.seconds if done.best else None


def unsplit(items: JointItems) -> JointAssignment:
    """The best assignment that splits no item over replicas."""
    items.degrees = []
    return items.best()


def with_tensors_of(inputs: Inputs, plan: Plan, encoders: list[str], tp: int) -> float | None:
    """Seconds where all encoders have the LLM's tp; None where that does not fit."""
    other = dict(plan.layouts)
    for name in encoders:
        own = other[name]
        if own.tp * own.dp % tp:
            return None
        other[name] = with_fields(own, tp=tp, dp=own.tp * own.dp // tp)
    return simulated(inputs, other, orders_of(plan))


def simulated(inputs: Inputs, layouts: dict[str, Layout], orders: Orders) -> float | None:
    """Seconds of layouts, with passes of encoders in these orders; None where that does not fit."""
    tried = JointTrials(inputs).simulate(layouts, orders, "changed")
    return tried.seconds if tried.plan else None


def layout_words(plan: Plan) -> Figures:
    """The chosen layouts, short."""
    return {
        name: f"{len(each.ranks)} ranks, tp {each.tp} cp {each.cp} pp {each.pp} dp {each.dp} zero {each.zero}"
        for name, each in plan.layouts.items()
    }


if __name__ == "__main__":
    for line in figures(sys.argv[1:] or WORKLOADS):
        print(json.dumps({"case": "omni", **line}), flush=True)
