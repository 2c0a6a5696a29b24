"""Instances that change their stage beside every split that does not, for requests that are drawn.

**Servers.** Qwen2.5-VL-7B on 8 H200, tensor-parallel degree 1, first come first served; 2 s to the first token and
35 ms for each further one, for 90 % of requests. All 21 splits of three stages, all 7 of two (`prefill`: instances
encode and prefill, or decode), `coupled` and `chunked`.

**Requests.** `steady`: 150 s, half of them with 8 to 16 images of 1,369 patches, in bursts of 4 s of each 20 s that are
four times as dense. `changing`: 150 s, of which 90 % have images and short answers, then 150 s, of which 3 % have,
twice as many, with long prompts and answers. Lengths are log-normal.

**Figures.** Goodput: how many times as dense requests may be, by halving; at each density other requests are drawn.
`switched`: the best split of each phase, with changes that cost nothing, at the change. `elastic` begins with the best
split of its family, `even` with 3, 3 and 2 instances; moves take 0.1 and 5 s. `groups`: the share in time where
requests with images have 5 instances of their own, as 2, 2 and 1, and others 3.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

from benchmarks.registry import Figures
from planner.costs import machine_of
from planner.costs.serving import StagePrices, rated_prices
from planner.policies import ElasticServing
from planner.serving import greatest
from planner.simulate.serving import InstanceSpec, ServingAction, ServingClock, ServingDecide, ServingSetup, Stages
from planner.specs import library
from planner.specs.framework.timing_coefficients import TimingCoefficients
from planner.specs.hardware.cluster import Cluster
from planner.specs.hardware.profile import Profile
from planner.specs.model import Model
from planner.specs.service import Service
from planner.specs.workload.requests.request import Request

GPUS, HALF, MOST = 8, 150.0, 16.0
SERVICE = Service(ttft_s=2.0, tpot_s=0.035, percentile=90)
SETUP = ServingSetup(answers=512)
STAGES: dict[str, tuple[Stages, ...]] = {"split": ("e", "p", "d"), "prefill": ("ep", "d")}
SPLITS: dict[str, list[tuple[int, ...]]] = {
    "split": [(e, p, GPUS - e - p) for e in range(1, GPUS - 1) for p in range(1, GPUS - e)],
    "prefill": [(own, GPUS - own) for own in range(1, GPUS)],
}
EVEN = (3, 3, 2)
Drawn = Callable[[float], list[Request]]  # requests so many times as dense


def run(data: Path | None) -> Iterator[Figures]:
    prices = prices_of()
    for name, requests in (("steady", steady), ("changing", changing)):
        together = {"coupled": alike(requests, prices, chunked=False), "chunked": alike(requests, prices, chunked=True)}
        yield {"requests": name, **together}
        for family in STAGES:
            best, split = best_split(requests, prices, family)
            told = {"requests": name, "family": family, "best_split": best, "split": split}
            if name == "changing" and family == "split":
                phases = [best_split(phase, prices, family)[1] for phase in (before_change, after_change)]
                free = replace(SETUP, switch_s=0.0)
                told["switched"] = goodput(changing, fleet(phases[0], prices), free, partial(at_change, *phases))
            for seconds in (0.1, 5.0):
                setup = replace(SETUP, switch_s=seconds)
                elastic, moves = elastic_goodput(requests, fleet(split, prices), setup)
                yield {**told, "switch_s": seconds, "elastic": elastic, "moves": moves}
        elastic, moves = elastic_goodput(requests, fleet(EVEN, prices), SETUP)
        yield {"requests": name, "family": "even", "switch_s": 0.1, "elastic": elastic, "moves": moves}
    asked = steady(1.8)
    images, text = [each for each in asked if each.images], [each for each in asked if not each.images]
    apart = met(images, fleet((2, 2, 1), prices)) + met(text, fleet((1, 1, 1), prices))
    whole = met(asked, fleet(EVEN, prices))
    yield {"requests": "steady", "groups": apart / len(asked), "together": whole / len(asked)}


def prices_of() -> StagePrices:
    model, cluster = library.read_named("qwen2.5-vl-7b", Model)[0], library.read_named("h200x8", Cluster)[0]
    profile = library.read_named("h200", Profile)[0]
    assert profile.device and profile.rates
    machine = machine_of(cluster, "h200", profile.device, profile.rates, TimingCoefficients())
    return rated_prices(model.modules["llm"], model.modules["vision"], machine, 1, 0.1)


# ---------------------------------------------------------------------------------------------------------- requests


def drawn(
    draw: Random, start: float, rate: float, images: float, lengths: tuple[float, float], bursts: bool = False
) -> Iterator[Request]:
    """Requests of `HALF` seconds. `lengths`: logarithms of the median tokens of prompts and of answers."""
    at = start
    while True:
        dense = (2.5 if at % 20 < 4 else 0.625) if bursts else 1.0
        at += draw.expovariate(rate * dense)
        if at >= start + HALF:
            return
        count = draw.choice([8, 12, 16]) if draw.random() < images else 0
        prompt, answer = (draw.lognormvariate(of, spread) for of, spread in zip(lengths, (0.6, 0.5), strict=True))
        yield Request("", at, max(1, round(prompt)), max(2, round(answer)), (1369,) * count)


def numbered(requests: Iterator[Request]) -> list[Request]:
    return [each._replace(id=str(number)) for number, each in enumerate(requests)]


def steady(times: float) -> list[Request]:
    return numbered(drawn(Random(0), 0.0, 4 * times, 0.5, (7.5, 5.7), bursts=True))


def changing(times: float) -> list[Request]:
    draw = Random(0)
    return numbered(
        each
        for phase in (drawn(draw, 0.0, 3 * times, 0.9, (5.0, 3.7)), drawn(draw, HALF, 6 * times, 0.03, (8.6, 7.0)))
        for each in phase
    )


def before_change(times: float) -> list[Request]:
    return [each for each in changing(times) if each.arrival_s < HALF]


def after_change(times: float) -> list[Request]:
    return [each._replace(arrival_s=each.arrival_s - HALF) for each in changing(times) if each.arrival_s >= HALF]


# ---------------------------------------------------------------------------------------------------------- goodput


def fleet(split: tuple[int, ...], prices: StagePrices) -> list[InstanceSpec]:
    stages = STAGES["split" if len(split) == 3 else "prefill"]
    return [InstanceSpec(stage, prices) for stage, count in zip(stages, split, strict=True) for _ in range(count)]


def met(requests: list[Request], instances: list[InstanceSpec]) -> int:
    """Requests that are in time."""
    return ServingClock(requests, instances, SETUP).run().met(SERVICE)


def goodput(
    requests: Drawn,
    instances: list[InstanceSpec],
    setup: ServingSetup,
    decide: Callable[[], ServingDecide] | None = None,
    known: float = 0.0,
) -> float:
    """How many times as dense requests may be; 0: not 1 % more than what is known."""

    def in_time(times: float) -> bool:
        clock = ServingClock(requests(times), instances, setup)
        clock.measure(SERVICE)
        return not clock.run(decide() if decide else None).stopped

    if known and not in_time(1.01 * known):
        return 0.0
    return greatest(in_time, 1.01 * known, MOST)


def best_split(requests: Drawn, prices: StagePrices, family: str) -> tuple[float, tuple[int, ...]]:
    splits = sorted(SPLITS[family], key=lambda each: max(each) - min(each))
    best, split = 0.0, splits[0]
    for each in splits:
        found = goodput(requests, fleet(each, prices), SETUP, known=best)
        if found > best:
            best, split = found, each
    return best, split


def alike(requests: Drawn, prices: StagePrices, chunked: bool) -> float:
    """Every instance does everything: whole prompts, or the better of two lengths of parts."""
    parts = (2048, 8192) if chunked else (8192,)
    setups = [ServingSetup(answers=256, tokens=tokens, chunked=True) if chunked else ServingSetup() for tokens in parts]
    return max(goodput(requests, [InstanceSpec("epd", prices)] * GPUS, setup) for setup in setups)


def elastic_goodput(requests: Drawn, instances: list[InstanceSpec], setup: ServingSetup) -> tuple[float, int]:
    """Of the policy, and how often it then changes an instance's stage."""
    found = goodput(requests, instances, setup, lambda: ElasticServing(SERVICE))
    return found, ServingClock(requests(found), instances, setup).run(ElasticServing(SERVICE)).moves


def at_change(before: tuple[int, ...], after: tuple[int, ...]) -> ServingDecide:
    """Turns instances from one split to another when requests change."""
    stages = STAGES["split"]
    have, need = dict(zip(stages, before, strict=True)), dict(zip(stages, after, strict=True))
    turns = []
    for number, stage in enumerate(stage for stage, count in zip(stages, before, strict=True) for _ in range(count)):
        if have[stage] > need[stage]:
            other = next(each for each in stages if have[each] < need[each])
            have[stage] -= 1
            have[other] += 1
            turns.append(ServingAction((number,), other))
    left = iter(turns)
    return lambda state: left if state.now >= HALF else ()
