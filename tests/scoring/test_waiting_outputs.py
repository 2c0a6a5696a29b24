"""Outputs of a frozen encoder are held from its forward to who reads them, and so counted in the memory of ranks."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from planner.errors import Infeasible
from planner.layouts import with_joint_fields
from planner.scoring import require_memory, score
from planner.simulate import OutputBytes
from planner.specs.base import with_fields
from planner.specs.shapes import DTYPE_BYTES
from planner.strategies.assignment.encoder_orders import EncoderOrder
from planner.strategies.static.layouts_plan import draft_of_layouts
from planner.strategies.static.placement import placed_layouts
from tests.modality_jobs import seeing_job

ROWS, IMAGES = (300,) * 6, "patches,row\n" + "".join(f"{160 + 40 * n},{n}\n" for n in range(6))
APART = "llm: {{ranks: '1', micro_batch: 1}}, vit: {{ranks: '0'}}"
FROZEN = "trained: {vit: none}\n"


def scored(folder, ahead: int, more: str = FROZEN, fixed: str = APART):
    inputs = with_joint_fields(seeing_job(folder, 2, fixed.format(), ROWS, IMAGES, more))
    layouts = placed_layouts(inputs, True)
    plan = draft_of_layouts(inputs, layouts, orders=[{"vit": EncoderOrder(ahead=ahead)}])
    return plan, score(plan)


def without_outputs(plan, found):
    """The peaks without outputs that wait."""

    class Blind(type(found.plan_memory)):
        def output_bytes(self, send):
            return OutputBytes(0.0, 0.0)

    return Blind(plan, found.plan_memory.pricing).over_step(found.spans, found.tasks).curves


def at(curve, seconds: float) -> float:
    return [held for when, held in curve if when <= seconds][-1]


@pytest.mark.parametrize("ahead", [0, 1, 2, 6])
def test_an_output_is_held_from_its_forward_to_the_one_that_reads_it(tmp_path, ahead):
    plan, found = scored(tmp_path, ahead)
    bare = without_outputs(plan, found)
    events = {event.id: event for event in found.timeline.events if event.phase == "F"}
    vit = plan.uses.models["vit"]
    wide = vit.feature_width * DTYPE_BYTES["float32"] * (1 + found.plan_memory.accounting(0).fragmentation)
    spans = []  # of each image: bytes, end of its forward, begin and end of the one that reads it
    for task in found.tasks:
        if task.module == "vit" and task.phase == "F":
            (item,) = task.items
            (reader,) = [
                each for each in found.tasks if each.module == "llm" and each.phase == "F" and item in each.items
            ]
            size = task.tokens / vit.tokens_per_output * wide
            spans.append((size, events[task.id].end, events[reader.id].start, events[reader.id].end))
    assert len(spans) == 6
    moments = sorted({when for span in spans for when in span[1:]})
    for begin, end in pairwise(moments):
        middle = (begin + end) / 2
        computed = sum(size for size, done, read, _ in spans if done <= middle < read)
        reading = sum(size for size, _, read, over in spans if read <= middle < over)
        held = [at(mine, middle) - at(none, middle) for mine, none in zip(found.memory.curves, bare, strict=True)]
        assert held == pytest.approx([computed, reading], abs=1.0)


def test_the_further_ahead_the_more_waits_and_the_step_ends_with_nothing(tmp_path):
    """On the LLM's own ranks, which compute no more of it than the layout says; apart nothing holds an encoder back."""
    peaks = []
    for ahead in (0, 1, 6):
        plan, found = scored(tmp_path, ahead, fixed="llm: {{micro_batch: 1}}, vit: {{}}")
        bare = without_outputs(plan, found)
        peaks.append(max(held - at(bare[0], when) for when, held in found.memory.curves[0]))
        assert found.memory.curves[0][-1][1] == pytest.approx(bare[0][-1][1], abs=1.0)
    assert peaks[0] < peaks[1] < peaks[2]


def test_outputs_of_a_trained_encoder_are_not_counted_a_second_time(tmp_path):
    plan, found = scored(tmp_path, 2, more="")
    assert found.memory.curves == without_outputs(plan, found)


def test_a_plan_whose_waiting_outputs_do_not_fit_is_refused(tmp_path):
    plan, found = scored(tmp_path, 6)
    bare = max(held for _, held in without_outputs(plan, found)[0])
    assert found.memory.peaks[0] > bare
    memory = replace(found.memory, points=(found.memory.points[0], np.zeros((1, 2))))
    room = (found.memory.peaks[0] + bare) / 2 / 2**30
    device = with_fields(plan.uses.devices["cpu"], memory_gib=room)
    limits = with_fields(plan.uses.limits, memory_margin=0.0, oom_chance=1.0)
    tight = with_fields(plan, uses=with_fields(plan.uses, devices={"cpu": device}, limits=limits))
    holding = type(found.plan_memory)(tight, found.plan_memory.pricing)
    with pytest.raises(Infeasible, match="rank 0 of `vit`"):
        require_memory(tight, replace(found, plan_memory=holding, memory=memory))
