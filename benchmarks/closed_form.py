"""Microseconds of the closed form for one configuration, and configurations a second for many at once."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from statistics import median
from time import perf_counter

from benchmarks.registry import Figures
from planner.costs.compute.assumed_rates import complete_rates
from planner.costs.layout_columns import LayoutColumns, stack_columns
from planner.costs.machine_model import MachineModel
from planner.costs.network_model import NetworkLevel, NetworkModel
from planner.costs.step.static_step import static_step_seconds
from planner.specs.framework.software import Software
from planner.specs.hardware.profile import Profile
from planner.specs.layers import Module
from planner.specs.library import read_named
from planner.specs.model import Model

REPEATS, MANY = 9, 1 << 18
NETWORK = NetworkModel((NetworkLevel(8, 315.0, 3.0), NetworkLevel(1024, 42.0, 8.0)))
MODELS = ("llama-3-70b", "qwen3-235b-a22b")


def run(data: Path | None) -> Iterator[Figures]:
    profile, software = read_named("h100-80gb", Profile)[0], read_named("megatron", Software)[0]
    machine = MachineModel(profile.device, complete_rates(profile.rates), NETWORK, software.timing)
    for name in MODELS:
        module = next(iter(read_named(name, Model)[0].modules.values()))
        some = layouts()
        together = stack_columns(some * (MANY // len(some)))
        alone, at_once = ([timed(module, each, machine) for _ in range(REPEATS)] for each in (some[0], together))
        yield {
            "model": name,
            "one_ms": round(1e3 * median(alone), 3),
            "configurations_per_second": round(len(together.seq) / median(at_once)),
        }


def layouts() -> list[LayoutColumns]:
    return [
        LayoutColumns(ranks=1024, seq=8192, batch=1024, tp=tp, pp=pp, cp=cp, micro_batch=mb, ep=ep, zero=1)
        for tp, pp, cp, mb, ep in product((1, 2, 4, 8), (1, 2, 4, 8), (1, 2), (1, 2), (1, 8))
    ]


def timed(module: Module, at: LayoutColumns, machine: MachineModel) -> float:
    start = perf_counter()
    static_step_seconds(module, at, machine)
    return perf_counter() - start
