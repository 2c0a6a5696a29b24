"""The tightest rank is the one whose share of its own device is largest, whatever other devices hold."""

from pathlib import Path

import pytest

from planner import files, pipeline
from planner.cli.tables import memory_text
from planner.costs.memory.allowed import allowed_bytes
from planner.plan.model import Plan
from planner.specs.base import changed
from planner.specs.cluster import kind_of
from planner.specs.inputs import Options
from planner.units import GIB
from planner.verify.fullest import fullest
from planner.verify.score import score

GOLDEN = Path(__file__).parents[1] / "golden/sequence_groups/two-kinds/plan.yaml"


@pytest.fixture(scope="module")
def plan():
    return files.read(GOLDEN, Plan)


def test_no_rank_has_less_left_of_what_it_may_use(plan):
    found = fullest(plan)
    peaks = score(plan).memory.peaks
    devices, (limits, kept) = plan.uses.devices, (plan.uses.limits, plan.uses.prices.accounting)
    caps = [allowed_bytes(devices[kind_of(plan.uses.cluster, rank)], limits, kept) for rank in range(plan.size)]
    assert found.peak / found.cap == max(peak / cap for peak, cap in zip(peaks, caps, strict=True))
    assert (found.peak, found.cap) == (peaks[found.rank], caps[found.rank])
    assert found.kind == kind_of(plan.uses.cluster, found.rank)


def test_what_shrinks_becomes_the_tightest(plan):
    for kind in plan.uses.devices:
        tight = changed(plan.uses.devices[kind], memory_gib=20.0)
        devices = {**plan.uses.devices, kind: tight}
        assert fullest(changed(plan, uses=changed(plan.uses, devices=devices))).kind == kind


def test_of_several_steps_the_fullest_counts():
    both = pipeline.solve("demo-cpu-4", Options(batches=2)).plan
    assert fullest(both).peak == max(max(score(both, number).memory.peaks) for number in (0, 1))


def test_people_are_told_of_the_tightest_kind(plan):
    found = fullest(plan)
    assert f"{found.peak / GIB:.2f} GiB on rank {found.rank}" in memory_text(plan)
    assert f"({found.kind}), {found.cap / GIB:.2f} GiB allowed" in memory_text(plan)
