"""Jobs that fix a layout of every module, drawn from what is shipped: models, devices, software, lengths, degrees.

The same seed draws the same job. Few of the degrees that it fixes exclude each other, and what it leaves out has a
default, so that most have an answer, some do not fit, and some are refused.
"""

import random
from itertools import pairwise
from pathlib import Path

from planner.specs.layers import Audio, Module, Vit
from planner.specs.library import read_named
from planner.specs.model import Model

MODELS = (
    "llama-3-8b", "llama-3-8b", "llama-2-13b", "gpt-7b", "qwen3-8b", "qwen3-30b-a3b", "mixtral-8x7b",
    "deepseek-v2-lite", "gpt-oss-20b", "nemotron-h-8b", "bamba-9b", "tiny-decoder", "yi-34b", "llama-3-70b",
)  # fmt: skip
SEVERAL = (
    "qwen2.5-vl-7b", "qwen2.5-vl-7b", "qwen2.5-omni-7b", "internvl3-8b", "llava-1.5-7b", "qwen2-audio-7b", "tiny-omni",
    "llama-3.2-vision-11b", "vit-1b-llama-12b", "vit-10b-audio-2b-llama-70b",
)  # fmt: skip
GPUS = (
    "h100",
    "h100",
    "h200",
    "a100-80gb",
    "a100-40gb",
    "b200",
    "gb200",
    "mi300x",
    "l40s",
    "v100-32gb",
    "h20",
    "rtx-4090",
)
NICS = ("8x400Gb", "8x400Gb", "8x200Gb", "2x100Gb", "1x25Gb")
SOFTWARE = (*("any",) * 16, "megatron", "torchtitan", "deepspeed", "nemo", "primus", "fsdp", "planner", "internevo")
FIELDS = {
    "zero": (0, 1, 1, 2, 3), "recompute": ("none", "selective", "full", "[attention]", "{0: full}"),
    "optimizer_offload": (0.5,), "sequence_parallel": ("false",), "dtype": ("bf16", "fp8", "float32"),
    "rank_order": ("tp-cp-dp-pp", "tp-pp-cp-dp", "pp-dp-tp"), "gradients": ("bf16",), "overlap": ("[tp]", "[tp, ep]"),
    "offload": (0.1, 0.3), "replica": (1, 2),
}  # fmt: skip
OF_SAMPLES = {"micro_batch": (1, 2, 4)}
OF_EXPERTS = {"dispatch": ("node_level", "all_gather"), "ep": (2, 4, 8), "etp": (1, 2)}
OF_STAGES = {"schedule": ("1f1b", "gpipe", "zb_h1", "zb_h2")}
OF_ENCODERS = {"features": ("host", "disk")}
TEXTS = (
    "{from: mix, parts: [{weight: 1, median: 512, sigma: 1}]}",
    "{from: mix, parts: [{weight: 0.9, median: 900, sigma: 0.6}, {weight: 0.1, median: 7000, sigma: 0.3}]}",
    *("64", "512", "1024", "2048", "4096"),
)
JOB = """\
format: planner.job/1
name: drawn
model: {model}
cluster: ./cluster.yaml
software: {software}
strategy: {strategy}
workload: {{lengths: {lengths}, batch_rows: {rows}, max_tokens: 8192, module: llm}}
{more}fix:
  layouts:
{layouts}
"""


def divisors(number: int, of: int = 2**20) -> list[int]:
    """The divisors of a number up to 8 that divide another too; all but every third odd one left out."""
    return [each for each in range(1, 9) if number % each == of % each == 0]


def drawn_stages(rng: random.Random, layers: int, parts: int) -> str:
    """A partition of the layers in as many parts, as a job writes it."""
    cuts = [0, *sorted(rng.sample(range(1, layers), parts - 1)), layers]
    spans = [f"{first}-{last - 1}" if last - first > 1 else str(first) for first, last in pairwise(cuts)]
    return "[" + ", ".join(spans) + "]"


def drawn_layout(rng: random.Random, module: Module, ranks: range, apart: bool, encoder: bool) -> str:
    """A layout of a module on these ranks, as a job writes it."""
    left, fields = len(ranks), dict[str, object]()
    for name in rng.sample(("tp", "pp", "cp"), 3):
        fields[name] = rng.choice([1, *divisors(left, module.heads if name == "tp" else 840)])
        left //= fields[name]
    heads = module.heads // fields["tp"]
    fields |= {"ulysses": rng.choice(divisors(fields["cp"], heads))} if fields["cp"] > 1 else {}
    staged, experts = fields["pp"] > 1, not encoder and module.routed_experts
    fields |= {"vpp": 2} if staged and fields["pp"] * 2 <= module.layers and rng.random() < 0.3 else {}
    parts, share = fields["pp"] * fields.get("vpp", 1), rng.choice((0.0, 0.05, 0.15, 0.3))
    uneven = staged and parts <= module.layers and rng.random() < 0.3
    fields |= {"stages": drawn_stages(rng, module.layers, parts)} if uneven else {}
    able = FIELDS | (OF_ENCODERS if encoder else OF_SAMPLES) | (OF_EXPERTS if experts else {})
    able |= OF_STAGES if staged and "vpp" not in fields else {}
    fields |= {name: rng.choice(values) for name, values in able.items() if rng.random() < share}
    fields |= {"ranks": f"{ranks[0]}-{ranks[-1]}"} if apart else {}
    return "{" + ", ".join(f"{name}: {value}" for name, value in fields.items()) + "}"


def drawn_cluster(rng: random.Random) -> tuple[str, int]:
    nodes, per_node = rng.choice((1, 1, 2, 3, 4, 8)), rng.choice((4, 8, 8, 8))
    text = f"format: planner.cluster/1\nname: drawn\nnodes: {nodes}\ngpus: {per_node}x{rng.choice(GPUS)}\n"
    return text + f"nics: {rng.choice(NICS)}\n", nodes * per_node


def drawn_job(seed: int, folder: Path) -> str:
    """The path of the job of a seed, written into a folder."""
    rng = random.Random(seed)
    several = rng.random() < 0.4
    name = rng.choice(SEVERAL if several else MODELS)
    model, _ = read_named(name, Model)
    cluster, size = drawn_cluster(rng)
    text = rng.choice(TEXTS)
    rows = rng.choice((1, 2, 3)) * size if rng.random() < 0.85 else rng.choice((1, 7, 100))
    lengths = text
    if several:
        kinds = {type(module) for module in model.modules.values()}
        media = "images: {name: coco, each: 1}, " * (Vit in kinds) + "audio: {name: librispeech, each: 1}, " * (
            Audio in kinds
        )
        text = text if text[0] == "{" else "512"
        lengths = f"{{from: sample_mix, multimodal: {rng.choice((1, 9))}, text_only: 1, {media}text: {text}}}"
    spots = {each: range(size) for each in model.modules}
    apart = several and rng.random() < 0.4
    if apart:
        first = (
            rng.choice(range(1, size))
            if rng.random() < 0.3
            else rng.choice([each for each in (1, 2, 4, 8) if each < size])
        )
        spots = {each: range(first, size) if each == "llm" else range(first) for each in model.modules}
    fixed = {
        each: drawn_layout(rng, module, spots[each], apart, each != "llm") for each, module in model.modules.items()
    }
    more = rng.choice(("", "", "", "", "limits: {tokens_per_rank: 16384}\n", "limits: {memory_margin: 0.5}\n"))
    (folder / "cluster.yaml").write_text(cluster)
    path = folder / "job.yaml"
    path.write_text(
        JOB.format(
            model=name,
            software=rng.choice(SOFTWARE),
            lengths=lengths,
            rows=rows,
            more=more,
            strategy="modality_layout" if several else "parallel_search",
            layouts="\n".join(f"    {each}: {layout}" for each, layout in fixed.items()),
        )
    )
    return str(path)
