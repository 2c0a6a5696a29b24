"""Modules on the ranks that a job says: the plan is legal, computes and reads everything once, and says its layouts so
that they go back into the job.
"""

import tempfile
from collections import Counter
from functools import cache
from math import isclose
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import pipeline
from planner.cli.views.prediction_tables import change_text
from planner.costs.pricing import pricing_of
from planner.errors import InputError, Unsupported
from planner.plan.descriptions import module_layout_text
from planner.plan.legal.plan_laws import violations
from planner.plan.plan_file import Edge, Group, Layout, Plan, assignments
from planner.plan.tokens.encoder_outputs import fed_spans
from planner.plan.tokens.resharding import encoder_transfers, is_between_modules
from planner.scoring.score import score
from planner.specs.base import Layers, Ranks, with_fields
from planner.specs.inputs import JobOptions, load_job
from planner.strategies.assignment.encoder_orders import EncoderOrder, orders_of
from planner.strategies.static.layouts_plan import plan_together, priced_together
from planner.strategies.static.memory_fit import memory_fit_of_job
from tests.examples import examples
from tests.placed_jobs import MODEL, NO_CLIPS, NO_IMAGES, OFTEN, PLACEMENTS, placed_job
from tests.plans import timed


def planned(folder, fixed, **other) -> Plan:
    return plan_together(load_job(placed_job(Path(folder), fixed, **other), JobOptions()))


def refusal(folder, fixed, **other) -> InputError:
    with pytest.raises(InputError) as caught:
        planned(folder, fixed, **other)
    assert caught.value.where and caught.value.fix
    return caught.value


def rows_read(plan: Plan, tasks) -> Counter:
    """By item of an encoder: rows of its outputs that are sent to whoever reads them."""
    found: Counter = Counter()
    for send, routes in encoder_transfers(plan, tasks):
        for _, route in routes:
            found[send.module, route.item] += route.rows
    return found


@pytest.fixture(scope="module")
def plan_of(tmp_path_factory):
    """The plan of a placement, by name."""
    return cache(lambda name: planned(tmp_path_factory.mktemp("placed"), PLACEMENTS[name]))


@pytest.mark.parametrize("name", PLACEMENTS)
@pytest.mark.every(5)
def test_every_item_is_computed_and_every_output_read(plan_of, name):
    plan = plan_of(name)
    assert not violations(plan)
    placed = [
        (a.module, item) for row in plan.steps[0].micro_batches for a in assignments(plan, row) for item in a.items
    ]
    assert sorted(placed) == sorted((module, item) for module, items in plan.uses.items.items() for item in items)
    assert rows_read(plan, score(plan).tasks) == {
        key: sum(span.outputs for span in read) for key, read in fed_spans(plan).items()
    }


@pytest.mark.parametrize("name", PLACEMENTS)
@pytest.mark.every(3)
def test_sends_go_from_those_who_compute_to_those_who_read(plan_of, name):
    found = score(plan_of(name))
    readers = {t.micro_batch: set() for t in found.tasks if t.module == "llm"}
    for task in found.tasks:
        if task.module == "llm" and task.phase == "F" and task.layers[0] == 0:
            readers[task.micro_batch] |= {*task.ranks}
    llm = {rank for ranks in readers.values() for rank in ranks}
    for send in (t for t in found.tasks if t.phase == "send" and is_between_modules(t)):
        outer = send.peers if send.of == "F" else send.ranks
        assert {*outer} <= llm and send.items


@pytest.mark.parametrize("name", PLACEMENTS)
@pytest.mark.every(5)
def test_layouts_that_are_printed_go_back_into_the_job(plan_of, tmp_path, name):
    plan = plan_of(name)
    texts = {module: module_layout_text(plan, module) for module in plan.layouts}
    printed = {module: text[text.index("{") + 1 : text.rindex("}")] for module, text in texts.items()}
    again, found_again = priced_together(load_job(placed_job(tmp_path, printed, layout="{}"), JobOptions()))
    assert again.layouts == plan.layouts and again.steps == plan.steps and again.groups == plan.groups
    assert found_again.step_seconds == score(plan).step_seconds


def test_a_plan_written_by_hand_is_the_same(tmp_path):
    """Equal samples, of which the second and the fourth have an image: one for each replica, and each image on the rank
    of the first stage that reads it, in one pass in front.
    """
    fixed = {"llm": "pp: 2, dtype: float32", "vit": "ranks: first_stage, dtype: float32", "ear": "ranks: 3"}
    images = "patches,row\n16,1\n16,3\n"
    plan = planned(tmp_path, fixed, images=images, clips=NO_CLIPS, rows=(40, 40, 40, 40), layout="{zero: 1}")
    common = {"zero": 1, "recompute": "none", "dtype": "float32"}
    assert plan.layouts == {
        "llm": Layout(
            ranks=Ranks(range(4)), pp=2, dp=2, stages=(Layers((0, 1)), Layers((2, 3))), schedule="1f1b", **common
        ),
        "vit": Layout(ranks=Ranks((0, 1)), dp=2, **common),
        "ear": Layout(ranks=Ranks((3,)), dp=1, zero=1),
    }
    assert plan.groups == {
        "llm.dp0": Group(ranks=Ranks((0, 2))),
        "llm.dp1": Group(ranks=Ranks((1, 3))),
        "vit.dp0": Group(ranks=Ranks((0,))),
        "vit.dp1": Group(ranks=Ranks((1,))),
        "ear.dp0": Group(ranks=Ranks((3,))),
    }
    assert plan.edges == (Edge(source="vit", target="llm"), Edge(source="ear", target="llm"))
    assert plan.steps[0].micro_batches == (
        {"llm": {"llm.dp0": (0,), "llm.dp1": (2,)}, "vit": {"vit.dp0": (0,), "vit.dp1": (1,)}},
        {"llm": {"llm.dp0": (1,), "llm.dp1": (3,)}},
    )


def test_the_first_stage_is_that_of_the_readers_order_of_ranks(tmp_path):
    plan = planned(tmp_path, PLACEMENTS["first stage, ranks turned"])
    assert plan.layouts["vit"].ranks == plan.layouts["ear"].ranks == Ranks((0, 2))
    with_tp = planned(tmp_path, PLACEMENTS["first stage of tensors"])
    assert (with_tp.layouts["vit"].tp, with_tp.layouts["ear"].tp) == (2, 1)
    apart = planned(tmp_path, {"llm": "pp: 2, ranks: 0-1", "vit": "ranks: first_stage", "ear": "ranks: 2-3"})
    assert apart.layouts["vit"].ranks == Ranks((0,))


@pytest.mark.parametrize("name", PLACEMENTS)
@pytest.mark.every(3)
def test_states_of_a_rank_are_those_of_its_modules_together(plan_of, name):
    plan = plan_of(name)
    together = score(plan).plan_memory
    for rank in range(plan.size):
        held = [
            together.stage_footprint(module, stages[rank], "cpu")
            for module, stages in together.stage_of.items()
            if rank in stages
        ]
        assert {module for module, stages in together.stage_of.items() if rank in stages} == {
            module for module, layout in plan.layouts.items() if rank in layout.ranks
        }
        assert isclose(together.static_footprint(rank).states, sum(each.states for each in held))
    peaks = score(plan).memory.peaks
    assert all(peak >= together.static_footprint(rank).states for rank, peak in enumerate(peaks))


def test_a_batch_without_any_image_or_clip(tmp_path):
    for name in OFTEN:
        plan, found = priced_together(
            load_job(placed_job(tmp_path, PLACEMENTS[name], images=NO_IMAGES, clips=NO_CLIPS), JobOptions())
        )
        assert not plan.uses.items["vit"] and not violations(plan) and found.step_seconds > 0, name


@pytest.mark.parametrize(
    ("fixed", "message", "where"),
    [
        ({"llm": "", "vit": "ranks: 3-4", "ear": ""}, "there is no rank 4 in cpu-4", "fix.layouts.vit.ranks"),
        ({"llm": "", "vit": "ranks: 0-2, tp: 2", "ear": ""}, "tp · cp · pp = 2 does not divide 3", "fix.layouts.vit"),
        ({"llm": "", "vit": "ranks: 0-1, dp: 4", "ear": ""}, "makes 4 ranks, and there are 2", "fix.layouts.vit"),
        ({"llm": "ranks: first_stage", "vit": "", "ear": ""}, "the module that reads `llm`, and none", "llm.ranks"),
        ({"llm": "", "vit": "", "ear": "", "eye": "ranks: 0"}, "the model has no module `eye`", "fix.layouts"),
        ({"llm": "", "vit": "ranks: last_stage", "ear": ""}, "`last_stage` is no set of", "fix.layouts.vit.ranks"),
        ({"llm": "", "vit": "ranks: 1-0", "ear": ""}, "do not rise", "fix.layouts.vit.ranks"),
    ],
)
def test_placements_that_cannot_be(tmp_path, fixed, message, where):
    error = refusal(tmp_path, fixed)
    assert message in error.message and where in error.where


def test_a_plan_that_moved_a_module_from_where_its_job_has_it(tmp_path):
    plan = planned(tmp_path, {"llm": "pp: 2", "vit": "ranks: first_stage", "ear": "ranks: 3"})
    moved = with_fields(plan, layouts={**plan.layouts, "vit": with_fields(plan.layouts["vit"], ranks=Ranks((0, 2)))})
    assert any("ranks is fixed to 0-1, and the layout has 0,2" in each.message for each in violations(moved))


def test_a_framework_that_cannot_be_told_when_encoders_run_runs_them_with_their_readers(tmp_path):
    path = Path(placed_job(tmp_path, {"llm": "", "vit": "", "ear": ""}, layout="{dtype: float32}"))
    path.write_text(path.read_text() + "software: megatron\n")
    plan = plan_together(load_job(str(path), JobOptions()))
    assert orders_of(plan) == dict.fromkeys(("vit", "ear"), EncoderOrder(at_once=True))
    (found,) = [each for each in violations(timed(plan, "vit", ahead=2)) if "2 ahead" in each.message]
    assert "rule: encoders ahead" in found.message and found.fix.startswith("before: llm.F-0")


def test_memory_grows_with_what_is_ahead_and_shrinks_with_what_is_at_once(tmp_path):
    """An encoder apart: peaks of its rank over the simulated step."""
    images = "patches,row\n" + "".join(f"512,{row}\n" for row in range(12))
    said, fixed = (140,) * 12, {"llm": "ranks: 2-3, pp: 2", "vit": "ranks: 0", "ear": "ranks: 1"}
    plan = planned(tmp_path, fixed, images=images, clips=NO_CLIPS, rows=said, max_tokens=200)

    def peak(ahead: int | None, at_once: bool) -> float:
        return score(timed(plan, "vit", ahead=ahead, at_once=at_once)).memory.peaks[0]

    at_once, last = ([peak(ahead, how) for ahead in (0, 1, 2, None)] for how in (True, False))
    assert at_once[0] < at_once[1] < at_once[2] < at_once[3] <= min(last)


@pytest.mark.slow
def test_an_encoder_larger_than_a_rank_fits_only_sharded_or_apart(tmp_path):
    """75 M parameters of 16 bytes, with gradients and moments, do not fit on every rank; a quarter of them does."""
    large = MODEL.replace("vit: {kind: vit, layers: 2, hidden: 16, heads: 4, ffn: 32", LARGE)
    for fields, fits in (("dp: 4, zero: 0", False), ("tp: 4, zero: 0", True), ("dp: 4, zero: 3", True)):
        fixed = {"llm": "", "vit": fields, "ear": ""}
        path = placed_job(tmp_path, fixed, model=large, layout="{dtype: float32}")
        found = memory_fit_of_job(load_job(path, JobOptions()))
        assert found.fits == fits, fields
        if not fits:
            assert found.largest_module == "vit" and found.change and found.change.differences
            (change,) = found.change.differences
            module, _, field = change.partition(".")
            assert module == "vit" and field.startswith("zero=") and change in change_text(found)
            again = {**fixed, "vit": field.replace("=", ": ")}
            path = placed_job(tmp_path, again, model=large, layout="{dtype: float32}")
            possible = memory_fit_of_job(load_job(path, JobOptions()))
            assert possible.fits and possible.plan.layouts == found.change.layouts
            assert possible.scores[0].step_seconds == found.change.seconds
            assert possible.scores[0].peak_bytes == found.change.bytes_needed


def test_items_that_a_job_does_not_define_are_asked_for(tmp_path):
    """Lengths alone do not say which tokens are outputs of encoders: that none is has to be said."""
    job = Path(placed_job(tmp_path, PLACEMENTS["all ranks"]))
    job.write_text(job.read_text().partition("  streams:")[0])
    with pytest.raises(Unsupported, match="does not define the items of `vit` and `ear`") as caught:
        pipeline.solve(str(job), JobOptions())
    assert "(workload)" in caught.value.where and "text_only: 1" in caught.value.fix
    none = "lengths: {from: sample_mix, text: 40, multimodal: 0, text_only: 1}"
    job.write_text(job.read_text().replace("lengths: {from: file, path: rows.txt}", none))
    plan = pipeline.solve(str(job), JobOptions()).plan
    assert {*plan.uses.items["llm"].values()} == {40} and not plan.uses.items["vit"] and not plan.uses.items["ear"]


LARGE = "vit: {kind: vit, layers: 6, hidden: 1024, heads: 16, ffn: 4096"
RANKS = st.sampled_from(
    ["", "", "", "ranks: first_stage", "ranks: 0", "ranks: 0-1", "ranks: 2-3", "ranks: 1-3", "ranks: '1,3'"]
)
DEGREES = st.sampled_from(
    ["", "", "tp: 2", "pp: 2", "cp: 2", "dp: 2", "tp: 2, pp: 2", "zero: 3", "pp: 2, rank_order: pp-dp"]
)


@st.composite
def fixed_layouts(draw):
    said = {name: [draw(RANKS), draw(DEGREES)] for name in ("llm", "vit", "ear")}
    said["llm"][0] = draw(st.sampled_from(["", "", "ranks: 0-1", "ranks: 2-3", "ranks: 1-3"]))
    return {name: ", ".join(filter(None, fields)) for name, fields in said.items()}


@pytest.mark.slow
@examples(60)
@given(fixed_layouts())
def test_any_layouts_are_refused_with_a_place_or_give_a_legal_plan_no_quicker_than_can_be(fixed):
    with tempfile.TemporaryDirectory() as folder:
        try:
            plan = planned(folder, fixed)
        except InputError as error:
            assert error.where and error.fix and "illegal plan" not in error.message
            return
    assert not violations(plan)
    found, price = score(plan), pricing_of(plan).price
    busy = Counter()
    for task in found.tasks:
        for rank in task.ranks if task.phase in ("F", "B") else ():
            busy[rank] += price(task).value
    assert found.step_seconds >= max(busy.values()) * (1 - 1e-9)
    assert found.step_seconds >= found.bound.seconds * (1 - 1e-9)
