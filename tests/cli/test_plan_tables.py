"""Lines that several verbs share: a plan's outcome over its steps, sizes of memory, no answer without its reason."""

import io
import re

import pytest
from rich.console import Console

from planner import pipeline
from planner.cli.views.beside_plan import alternatives_table
from planner.cli.views.plan_tables import headline
from planner.plan.plan_file import Alternative
from planner.scoring import plan_answer
from planner.specs.base import with_fields
from planner.units import duration, percent
from tests.test_golden import GOLDEN


def lines_of(renderables, width=120):
    out = Console(width=width, color_system=None, file=io.StringIO(), highlight=False)
    for each in renderables:
        out.print(each)
    return [line.rstrip() for line in out.file.getvalue().splitlines()]


@pytest.mark.parametrize(
    "folder", ["parallel_search/llama-3-8b-h100x64", "sequence_groups/demo", "by_hand/zero-bubble"]
)
def test_what_people_ask_is_said_first_and_as_json_says_it(folder):
    plan, scores = pipeline.read_scored(GOLDEN / folder / "plan.yaml")
    said, (step, gains, proof) = plan_answer(plan, scores), lines_of(headline(plan), 500)
    low, high = map(duration, said["interval_seconds"])
    assert step == f"step {duration(said['step_seconds'])} simulated, {low} to {high} (80 % interval)"
    assert gains.startswith(f"{said['tokens_per_second']:,.0f} tokens/s, MFU {percent(said['mfu'])}")
    chance = f"{percent(said['memory']['chance'])} chance of running out of memory"
    assert gains.endswith(chance) == (plan.uses.limits.tokens_per_rank is None)
    by = "" if said["bound_by"] == "space" else f", by {said['bound_by']}"
    assert proof.endswith(f"(bound {duration(said['bound'])}{by})")
    assert ("best possible" in proof or "optimal" in proof) <= (not said["bound_over"])


@pytest.mark.parametrize("width", [80, 120])
def test_alternatives_are_ranked_and_the_impossible_ones_last_and_merged(width):
    plan = pipeline.read_plan(GOLDEN / "parallel_search/llama-3-8b-h100x64/plan.yaml")
    *_, slowest = plan.alternatives
    failed = [
        Alternative(
            strategy="data_ranks", zero=zero, sync="step", recompute=how, because=f"states take {428 + zero} GiB"
        )
        for zero in (2, 1, 0)
        for how in ("none", "full")
    ]
    because = "the software cannot launch it"
    quicker = with_fields(slowest, value=plan.outcome.value * 0.9, because=because, launchable=False)
    much = with_fields(slowest, value=plan.outcome.value * 2)
    mixed = with_fields(plan, alternatives=(*failed, much, *reversed(plan.alternatives), quicker))
    lines = lines_of(alternatives_table(mixed), width)
    changes = [match[1] for line in lines if (match := re.match(r"\d+ +\S+ s +(\S+ %(?: tie)?)", line))]
    slower = [f"+{percent(each.value / plan.outcome.value - 1)} tie" for each in plan.alternatives]
    assert changes == ["−10.0 %", *slower, "+100.0 %"]
    (impossible,) = [line for line in lines if "impossible" in line]
    assert impossible.split()[:3] == ["impossible", "data_ranks;", "states"] and "430 GiB" in impossible
    listed = [line for line in lines if line.endswith(impossible) or re.match(r"\d+ ", line)]
    assert len(listed) == len(changes) + 1 == len(lines) - lines.index(listed[0]) and all(
        len(line) <= width for line in lines
    )
