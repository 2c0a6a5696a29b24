"""The best that hand-fixed layouts do against what a search picks, of one module and of several, and against its bound.

Rivals of a job are one- and two-field changes of its pick, the pick with its layers divided otherwise, and layouts
drawn at random: those that the job's software can launch and that fit are simulated. `below_bound` counts those that no
plan may be.

`python -m benchmarks.rivals qwen2.5-vl-7b-h200x8` is one job of several modules alone.
"""

import json
import random
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import accumulate, pairwise
from math import gcd
from pathlib import Path
from typing import Any

from benchmarks.registry import Figures
from planner.errors import PlannerError
from planner.plan.plan_file import Layout
from planner.solve_job import read_job
from planner.specs.base import Layers, with_fields
from planner.specs.inputs import Inputs, JobOptions, load_job
from planner.specs.parallelism import Parallelism
from planner.strategies import modality_layout, parallel_search
from planner.strategies.static import predict_job

# model, GPUs, tokens of a sequence, sequences of a step, software
JOBS = (
    ("llama-3-8b", "8xh100", 8192, 64, "nemo"),
    ("llama-3-8b", "24xh100", 8192, 512, "megatron"),
    ("qwen3-8b", "24xh100", 8192, 512, "megatron"),
    ("llama-2-13b", "16xa100-80gb", 4096, 128, "deepspeed"),
    ("llama-2-13b", "32xa100-40gb", 4096, 256, "any"),
    ("yi-34b", "64xh100", 4096, 512, "primus"),
    ("llama-3-70b", "64xh100", 8192, 1024, "megatron"),
    ("llama-3-70b", "64xh100", 131072, 16, "megatron"),
    ("llama-3-70b", "128xh100", 8192, 256, "torchtitan"),
    ("qwen3-30b-a3b", "16xh100", 4096, 128, "any"),
    ("qwen3-30b-a3b", "64xh100", 4096, 512, "megatron"),
    ("mixtral-8x7b", "64xh100", 8192, 256, "nemo"),
    ("deepseek-v2-lite", "32xh100", 4096, 256, "megatron"),
    ("nemotron-h-8b", "16xh100", 8192, 128, "nemo"),
    ("llama-3.1-405b", "1024xh100", 8192, 512, "megatron"),
    ("gpt3-175b", "1536xh100", 2048, 1536, "megatron"),
    ("llama-2-7b", "8xa100-80gb", 4096, 64, "fsdp"),
    ("llama-3-8b", "8xh100", 131072, 8, "torchtitan"),
    ("mixtral-8x22b", "128xh100", 8192, 256, "megatron"),
    ("qwen3-235b-a22b", "256xh100", 4096, 1024, "megatron"),
    ("gpt-1t", "3072xa100-80gb", 2048, 3072, "megatron"),
    ("deepseek-v3", "2048xh800", 4096, 7680, "megatron"),
    ("llama-3.1-405b", "16384xh100", 8192, 2048, "megatron"),
    ("nemotron-4-340b", "768xh100", 4096, 2304, "internevo"),
)
SEVERAL = (  # shipped jobs of several modules
    "qwen2.5-vl-7b-h200x8", "qwen2.5-omni-7b-h100x16", "qwen3.5-27b-h100x17", "qwen2.5-vl-7b-a100x32",
    "qwen2.5-vl-72b-h100x128", "omni-vit10b-llama70b-h100x128",
)  # fmt: skip
CHANGES, DIVISIONS, DRAWN = 60, 30, 300  # rivals of a job that are tried
OF_MANY = 256, 30  # beyond so many ranks as many are drawn
OF_SEVERAL = 120, 60  # changes and drawn ones of a job of several modules, up to 64 ranks; beyond, a third
SMALL = (1, 1, 2, 4, 8)
VALUES: dict[str, tuple[Any, ...]] = {
    "tp": SMALL, "cp": SMALL, "ulysses": (1, 2, 4, 8), "pp": (1, 2, 3, 4, 6, 8, 16), "vpp": (1, 2, 3, 4, 5, 8, 10, 20),
    "ep": SMALL, "etp": (1, 2), "zero": (0, 1, 2, 3), "replica": (1, 2, 4), "micro_batch": (1, 2, 3, 4, 6, 8),
    "recompute": ("none", "selective", "full", ("norm",), ("mlp",), ("attention",), ("moe",)),
    "offload": (0.0, 0.0, 0.1, 0.5, 1.0, ("norm",), ("attention",), ("attention", "norm"), ("norm", "moe"), ("moe",)),
    "optimizer_offload": (0.0, 0.25, 0.5), "overlap": ((), ("tp",), ("tp", "ep")),
    "rank_order": ("tp-cp-dp-replica-pp", "tp-cp-pp-dp-replica"),
}  # fmt: skip
OF_LLM = {
    **{name: VALUES[name] for name in ("tp", "cp", "ulysses", "pp", "vpp", "zero", "recompute", "offload")},
    "micro_batch": (1, 2, 3, 4, 6, 8, 12, 16, 24, 32),
}
OF_ENCODER = {
    **{name: VALUES[name] for name in ("tp", "cp", "ulysses", "zero", "recompute", "offload")},
}
Fields = dict[str, dict[str, Any]]  # module → fields of its layout
JOB = """\
format: planner.job/1
name: rivals
model: {model}
cluster: ./cluster.yaml
software: {software}
strategy: parallel_search
workload: {{lengths: {tokens}, batch_rows: {count}}}
within: 0
"""
CLUSTER = "format: planner.cluster/1\nname: rivals\nnodes: {nodes}\ngpus: {per_node}x{gpu}\nnics: 8x400Gb\n"


def run(data: Path | None) -> Iterator[Figures]:
    for number, job in enumerate(JOBS):
        with tempfile.TemporaryDirectory() as folder:
            named = dict(zip(("model", "gpus", "tokens", "count", "software"), job, strict=True))
            yield named | figures(inputs_of(Path(folder), **named), random.Random(number))
    yield from figures_of_several(SEVERAL)


def figures_of_several(names: Iterable[str]) -> Iterator[Figures]:
    """The figures of shipped jobs of several modules."""
    for name in names:
        yield {"job": name} | figures(read_job(name, JobOptions()), random.Random(name))


def figures(inputs: Inputs, draw: random.Random) -> Figures:
    """What the best rival of a job does."""
    if len(inputs.model.modules) > 1:
        plan = modality_layout.plan(inputs, None)
        drawn = rivals_of_several(draw, inputs, plan.layouts)
    else:
        plan = parallel_search.plan(inputs, None)
        drawn = ({inputs.module: fields} for fields in rivals(draw, inputs, plan.layouts[inputs.module]))
    value, bound = plan.outcome.value, plan.outcome.bound
    found = [each for layouts in drawn if (each := simulated(inputs, layouts))]
    best, layouts = min(found, default=(value, {}), key=lambda each: each[0])
    return {
        "pick": value,
        "bound": bound,
        "rivals": len(found),
        "best_rival": best,
        "quicker": round(1.0 - best / value, 5),
        "below_bound": sum(seconds < bound * (1.0 - 1e-9) for seconds, _ in found),
        "rival": {module: {name: str(each) for name, each in own.items()} for module, own in layouts.items()},
    }


def inputs_of(folder: Path, model: str, gpus: str, tokens: int, count: int, software: str) -> Inputs:
    """The job of a model on a cluster of these, written into a folder."""
    ranks, gpu = gpus.split("x", 1)
    size = {"nodes": max(1, int(ranks) // 8), "per_node": min(8, int(ranks)), "gpu": gpu}
    (folder / "cluster.yaml").write_text(CLUSTER.format(**size))
    path = folder / "job.yaml"
    path.write_text(JOB.format(model=model, tokens=tokens, count=count, software=software))
    return load_job(str(path), JobOptions())


def rivals(draw: random.Random, inputs: Inputs, pick: Layout) -> Iterator[dict[str, Any]]:
    """Fields of layouts, most of which can be launched."""
    own = {name: getattr(pick, name) for name in VALUES}
    for _ in range(CHANGES):
        changed = draw.sample([*VALUES], draw.choice((1, 2)))
        yield {**own, **{name: draw.choice(VALUES[name]) for name in changed}}
    for _ in range(DIVISIONS if pick.pp > 1 else 0):
        yield {**own, "stages": divided(draw, inputs.spec.layers, pick.pp * pick.vpp)}
    for _ in range(DRAWN if inputs.cluster.size <= OF_MANY[0] else OF_MANY[1]):
        fields = {name: draw.choice(values) for name, values in VALUES.items()}
        some = draw.sample([*VALUES], 9)
        fields = {name: fields[name] if name in some else own[name] for name in VALUES}
        parts = fields["pp"] * fields["vpp"]
        if 1 < parts <= inputs.spec.layers and draw.random() < 0.5:
            fields["stages"] = divided(draw, inputs.spec.layers, parts)
        yield fields


def rivals_of_several(draw: random.Random, inputs: Inputs, pick: dict[str, Layout]) -> Iterator[Fields]:
    """Fields of the layouts of several modules, by module: one, two or three of them changed, or every third."""
    values = {name: OF_LLM if name == inputs.module else OF_ENCODER for name in pick}
    places = [(name, field) for name, of_module in values.items() for field in of_module]
    own = {name: {field: getattr(pick[name], field) for field in (*values[name], "ranks")} for name in pick}
    changes, drawn = (each // (1 if inputs.cluster.size <= 64 else 3) for each in OF_SEVERAL)
    for number in range(changes + drawn):
        count = draw.choice((1, 2, 3)) if number < changes else len(places) // 3
        fields = {name: {**of_module} for name, of_module in own.items()}
        for name, field in draw.sample(places, count):
            fields[name][field] = draw.choice(values[name][field])
        for of_module in fields.values():
            of_module["ulysses"] = gcd(of_module["cp"], of_module["ulysses"])
        yield fields


def divided(draw: random.Random, layers: int, parts: int) -> tuple[Layers, ...]:
    """Layers in as many stages that are nearly even, the last of which has fewer."""
    counts = [layers // parts + (number < layers % parts) for number in range(parts)]
    draw.shuffle(counts)
    for _ in range(draw.randrange(4)):
        giver = draw.choice((parts - 1, draw.randrange(parts)))
        if counts[giver] > 1:
            counts[giver] -= 1
            counts[draw.randrange(parts)] += 1
    return tuple(Layers(range(*ends)) for ends in pairwise(accumulate(counts, initial=0)))


def simulated(inputs: Inputs, layouts: Fields) -> tuple[float, Fields] | None:
    """The step of layouts that can be launched and fit, and their fields."""
    try:
        said = with_fields(inputs.job.fix, layouts={name: Parallelism(**fields) for name, fields in layouts.items()})
        found = predict_job(replace(inputs, job=with_fields(inputs.job, fix=said)))
    except (PlannerError, ValueError):
        return None
    return (found.plan.outcome.value, layouts) if found.fits else None


if __name__ == "__main__":
    for line in figures_of_several(sys.argv[1:] or SEVERAL):
        print(json.dumps(line), flush=True)
