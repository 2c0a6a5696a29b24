"""Towers of many tasks on one cluster, shaped as ImageBind's: what the placer makes of them, beside the malleable
optimum, every module on all devices in turn, and devices given one by one to the task that gains most.

Seconds are of a formula: each layer of each pass costs some microseconds, and the FLOPs of its samples at one rate.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from time import process_time

from benchmarks.registry import Figures
from planner.placer import Allocation, Lanes, Work, allocate, place

TOWERS = {  # layers, width, tokens of ImageBind-huge
    "vision": (32, 1280, 257),
    "text": (24, 1024, 77),
    "audio": (12, 768, 229),
    "depth": (12, 384, 257),
    "thermal": (12, 768, 257),
    "imu": (6, 512, 251),
}
TASKS = tuple(
    tuple(pair.split("-"))
    for pair in [
        "vision-text",
        "audio-text",
        "vision-audio",
        "depth-text",
        "thermal-text",
        "imu-text",
        "vision-depth",
        "vision-thermal",
        "audio-thermal",
        "vision-imu",
    ]
)
SAMPLES, RATE, PASSES = 64, 150e12, 3  # of a task; FLOP/s; backward is twice the forward


def tower(name: str, samples: int, devices: int, overhead: float, whole: bool = True) -> Work:
    """A module with all its samples; `overhead`: seconds of a layer of a pass; `whole`: samples are not divided."""
    layers, width, tokens = TOWERS[name]
    flops = layers * (24 * tokens * width**2 + 4 * tokens**2 * width)

    @cache
    def seconds(ranks: int, items: int) -> float:
        each = -(-items // ranks) if whole else items / ranks
        return PASSES * (layers * overhead + flops * each / RATE)

    return Work(name, samples, seconds, tuple(range(1, devices + 1)))


def towers(tasks: int, devices: int, overhead: float, whole: bool = True) -> list[Work]:
    read = [name for pair in TASKS[:tasks] for name in pair]
    return [tower(each, SAMPLES * read.count(each), devices, overhead, whole) for each in dict.fromkeys(read)]


def sequential(works: list[Work], devices: int) -> float:
    """Every module after the other, at its best width."""
    return sum(min(work.seconds(width, work.items) for width in work.widths) for work in works)


def marginal_gain(tasks: int, devices: int, overhead: float, whole: bool) -> float:
    """Devices go one by one to the task that gains most; more tasks than devices go longest first to single ones."""
    pairs = [[tower(name, SAMPLES, devices, overhead, whole) for name in pair] for pair in TASKS[:tasks]]

    @cache
    def seconds(task: int, ranks: int) -> float:
        return sum(work.seconds(ranks, SAMPLES) for work in pairs[task])

    if tasks > devices:
        ends = [0.0] * devices
        for each in sorted((seconds(task, 1) for task in range(tasks)), reverse=True):
            ends[ends.index(min(ends))] += each
        return max(ends)
    given = [1] * tasks
    for _ in range(devices - tasks):
        gains = [seconds(task, ranks) - seconds(task, ranks + 1) for task, ranks in enumerate(given)]
        given[gains.index(max(gains))] += 1
    return max(seconds(task, ranks) for task, ranks in enumerate(given))


def run(data: Path | None) -> Iterator[Figures]:
    for whole in (True, False):
        for overhead in (20e-6, 50e-6, 100e-6):
            for tasks in (4, 7, 10):
                for devices in (8, 16, 32):
                    began, works, lanes = (
                        process_time(),
                        towers(tasks, devices, overhead, whole),
                        Lanes(devices, per_node=8),
                    )
                    allocation = Allocation.of(works, devices)
                    found = place(allocate(works, lanes), lanes)
                    assert found is not None
                    yield {
                        "whole_samples": whole,
                        "overhead_us": overhead * 1e6,
                        "tasks": tasks,
                        "devices": devices,
                        "ms": round(found.seconds * 1e3, 2),
                        "over_malleable": round(found.seconds / allocation.seconds_of_levels, 4),
                        "over_bound": round(found.seconds / allocation.bound, 4),
                        "sequential": round(sequential(works, devices) / found.seconds, 3),
                        "marginal_gain": round(marginal_gain(tasks, devices, overhead, whole) / found.seconds, 3),
                        "pieces": {e.piece.name: f"{e.piece.items} on {e.mode.width}" for e in found.placed},
                        "processor_seconds": round(process_time() - began, 2),
                    }
