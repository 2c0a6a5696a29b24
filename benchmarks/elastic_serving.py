"""Instances that change their stage beside every split that does not, for requests that are drawn.

**Servers.** Qwen2.5-VL-7B on 8 H200, tensor-parallel degree 1, first come first served; 2 s to the first token and
35 ms for each further one, for 90 % of requests. All 21 splits of three stages, `coupled` and `chunked`.

**Requests.** `steady`: 150 s, half of them with 8 to 16 images of 1,369 patches, in bursts of 4 s of each 20 s that are
four times as dense. `changing`: 150 s, of which 90 % have images and short answers, then 150 s, of which 3 % have,
twice as many, with long prompts and answers. Lengths are log-normal.

**Figures.** Goodput: how many times as dense requests may be, by halving; at each density other requests are drawn.
`switched`: the best split of each phase, with changes that cost nothing, at the change. `elastic` begins with 3, 3 and
2 instances, with moves of 0.1 and 5 s.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

from benchmarks.registry import Figures
from planner.costs import machine_of
from planner.costs.serving import StagePrices, rated_prices
from planner.policies import ElasticChoice, ElasticServing
from planner.serving import greatest
from planner.simulate.serving import InstanceSpec, ServingAction, ServingClock, ServingDecide, ServingSetup
from planner.specs import library
from planner.specs.framework.timing_coefficients import TimingCoefficients
from planner.specs.hardware.cluster import Cluster
from planner.specs.hardware.profile import Profile
from planner.specs.model import Model
from planner.specs.service import Service
from planner.specs.workload.requests.request import Request

GPUS, START, HALF, MOST = 8, (3, 3, 2), 150.0, 16.0
STAGES = ("e", "p", "d")  # encode, prefill, decode
SERVICE = Service(ttft_s=2.0, tpot_s=0.035, percentile=90)
SETUP = ServingSetup(answers=512)
SPLITS = [(e, p, GPUS - e - p) for e in range(1, GPUS - 1) for p in range(1, GPUS - e)]
Drawn = Callable[[float], list[Request]]  # requests so many times as dense


def run(data: Path | None) -> Iterator[Figures]:
    prices = prices_of()
    best, split = best_split(steady, prices)
    elastic, moves = elastic_goodput(steady, prices, SETUP)
    together = {"coupled": alike(steady, prices, chunked=False), "chunked": alike(steady, prices, chunked=True)}
    yield {"requests": "steady", **together, "best_split": best, "split": split, "elastic": elastic, "moves": moves}
    best, split = best_split(changing, prices)
    of_phases = [best_split(phase, prices)[1] for phase in (before_change, after_change)]
    switched = goodput(
        changing, fleet(of_phases[0], prices), replace(SETUP, switch_s=0.0), lambda: at_change(*of_phases)
    )
    chunked = alike(changing, prices, chunked=True)
    told = {"requests": "changing", "chunked": chunked, "best_split": best, "split": split, "switched": switched}
    for seconds in (0.1, 5.0):
        elastic, moves = elastic_goodput(changing, prices, replace(SETUP, switch_s=seconds))
        way = (elastic - best) / (switched - best) if switched > best else None
        yield {**told, "switch_s": seconds, "elastic": elastic, "moves": moves, "of_the_way": way}


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
    return [InstanceSpec(stage, prices) for stage, count in zip(STAGES, split, strict=True) for _ in range(count)]


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


def best_split(requests: Drawn, prices: StagePrices) -> tuple[float, tuple[int, ...]]:
    best, split = 0.0, SPLITS[0]
    for each in sorted(SPLITS, key=lambda each: max(each) - min(each)):
        found = goodput(requests, fleet(each, prices), SETUP, known=best)
        if found > best:
            best, split = found, each
    return best, split


def alike(requests: Drawn, prices: StagePrices, chunked: bool) -> float:
    """Every instance does everything: whole prompts, or the better of two lengths of parts."""
    parts = (2048, 8192) if chunked else (8192,)
    setups = [ServingSetup(answers=256, tokens=tokens, chunked=True) if chunked else ServingSetup() for tokens in parts]
    return max(goodput(requests, [InstanceSpec("epd", prices)] * GPUS, setup) for setup in setups)


def elastic_goodput(requests: Drawn, prices: StagePrices, setup: ServingSetup) -> tuple[float, int]:
    """Of the policy, and how often it then changes an instance's stage."""
    found = goodput(requests, fleet(START, prices), setup, lambda: ElasticServing(SERVICE, ElasticChoice()))
    clock = ServingClock(requests(found), fleet(START, prices), setup)
    return found, clock.run(ElasticServing(SERVICE, ElasticChoice())).moves


def at_change(before: tuple[int, ...], after: tuple[int, ...]) -> ServingDecide:
    """Turns instances from one split to another when requests change."""
    have, need = dict(zip(STAGES, before, strict=True)), dict(zip(STAGES, after, strict=True))
    turns = []
    for number, stage in enumerate(stage for stage, count in zip(STAGES, before, strict=True) for _ in range(count)):
        if have[stage] > need[stage]:
            other = next(each for each in STAGES if have[each] < need[each])
            have[stage] -= 1
            have[other] += 1
            turns.append(ServingAction((number,), other))
    left = iter(turns)
    return lambda state: left if state.now >= HALF else ()
