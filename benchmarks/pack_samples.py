"""Seconds to read 100,000 samples with images from a file, size them by a model's rules, and pack them to two budgets.

A rank packs as a trainer of InternVL does: tokens of the LLM, and tiles of the encoder (here patches of Qwen2.5-VL).
"""

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.registry import Figures
from planner.packing import pack_samples
from planner.plan.pack_fill import fewest_packs
from planner.specs import library
from planner.specs.model import Model
from planner.specs.workload.items import input_count
from planner.specs.workload.length_sources import SamplesFile, Workload
from planner.specs.workload.sample_batches import SampleBlock, open_samples

SAMPLES, SEED, BUDGETS = 100_000, 0, (16_384, 49_200)  # tokens, patches
SHARES = (0.1, 0.5, 0.9)  # of samples with one to four images


def run(data: Path | None) -> Iterator[Figures]:
    model = library.read_named("qwen2.5-vl-7b", Model)[0]
    with TemporaryDirectory() as folder:
        for share in SHARES:
            path = Path(folder) / f"samples-{share}.jsonl"
            write_samples(path, share)
            yield {"samples": SAMPLES, "multimodal": share, **packed(path, model)}


def packed(path: Path, model: Model) -> Figures:
    """Seconds of reading and of packing one file, and how few packs there are."""
    workload = Workload(lengths=SamplesFile(path=path.name), batch_rows=SAMPLES)
    began, busy = time.perf_counter(), time.process_time()
    samples = open_samples(workload, model, "llm", SEED, path.parent, SampleBlock(0, SAMPLES))
    sized = [*map(samples.sized, range(SAMPLES))]
    vision = model.modules["vision"]
    patches = [sum(input_count(vision, size) for size in each.items.get("vision", ())) for each in sized]
    loads = np.stack([[each.tokens for each in sized], patches], axis=1)
    read = time.perf_counter()
    packs, budgets = pack_samples(loads, np.array(BUDGETS)), np.array(BUDGETS)
    ended, used = time.perf_counter(), time.process_time() - busy
    count, fewest = int(packs.max()) + 1, fewest_packs(loads, budgets)
    return {
        "packs": count,
        "over_bound": round(count / fewest - 1, 5),
        "read_seconds": round(read - began, 3),
        "pack_seconds": round(ended - read, 3),
        "seconds": round(ended - began, 3),
        "cpu_seconds": round(used, 3),
    }


def write_samples(path: Path, share: float) -> None:
    """A file of samples, of which a share has images of the usual sizes of photographs."""
    chance = random.Random(SEED)
    with path.open("w") as file:
        for _ in range(SAMPLES):
            count = chance.randint(1, 4) if chance.random() < share else 0
            images = [[chance.randint(320, 1280), chance.randint(240, 960)] for _ in range(count)]
            text = min(8000, max(8, int(chance.lognormvariate(6, 1))))
            file.write(json.dumps({"text": text, "images": images}) + "\n")
