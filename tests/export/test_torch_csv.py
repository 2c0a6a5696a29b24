"""Pipeline orders to torch's schedules and back: torch loads what is exported, and what it cannot express is
refused.
"""

from itertools import permutations
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from planner import pipeline
from planner.errors import Infeasible, InputError
from planner.export import export_plan, import_order_into, with_order
from planner.export.torch_csv import read_csv, renumber_micro_batches, stage_forwards, to_csv
from planner.plan.plan_file import Plan
from planner.plan.schedules import schedule_slots
from planner.plan.schedules.explicit import parse_slots, slot_lines
from planner.specs.base import with_fields
from tests.examples import examples
from tests.plan.schedules.made import ordered_plan, some_order
from tests.plans import encoder_plan
from tests.scoring.priced import priced

SHAPES = [(name, 3, 5, 1) for name in ("gpipe", "1f1b", "zb_h1", "zb_h2")] + [("interleaved", 3, 6, 2)]


def loaded(path, pp: int, chunks: int, micro_batches: int):
    """What torch makes of a file: its own loader, validation and lowering, without processes."""
    from torch.distributed.pipelining import schedules

    runtime = object.__new__(schedules._PipelineScheduleRuntime)
    runtime.pipeline_order, runtime._stages, runtime._defer_pp_recv = {}, [], False
    runtime.pp_group_size, runtime._num_stages, runtime._n_microbatches = pp, pp * chunks, micro_batches
    runtime._load_csv(str(path))
    return runtime


@pytest.mark.parametrize(("name", "pp", "micro_batches", "chunks"), SHAPES)
def test_torch_loads_and_lowers_what_is_written(tmp_path, name, pp, micro_batches, chunks):
    text, rows = to_csv(ordered_plan(pp, micro_batches, name, chunks))
    path = tmp_path / "schedule.csv"
    path.write_text(text)
    runtime = loaded(path, pp, chunks, micro_batches)
    assert rows == tuple(range(micro_batches))
    found = [
        [(str(a.computation_type.value), a.microbatch_index, a.stage_index // pp) for a in runtime.pipeline_order[rank]]
        for rank in range(pp)
    ]
    assert found == schedule_slots(name, pp, micro_batches, chunks)
    assert runtime.stage_index_to_group_rank == {stage: stage % pp for stage in range(pp * chunks)}
    assert all(runtime.pipeline_order_with_comms.values())  # sends and receives meet: torch raises where they cannot
    assert read_csv(text, ordered_plan(pp, micro_batches, "1f1b" if chunks == 1 else name, chunks), "f") == found


@examples(30)
@given(st.integers(0, 2**32).map(Random), st.integers(2, 4), st.integers(1, 4), st.integers(1, 2))
def test_any_order_with_equal_forwards_comes_back(tmp_path_factory, chance, pp, micro_batches, chunks):
    slots = some_order(chance, pp, micro_batches, chunks)
    assume(len({tuple(rows) for rows in stage_forwards(slots)}) == 1)
    text, rows = to_csv(ordered_plan(pp, micro_batches, slot_lines(slots, chunks), chunks))
    assert [*rows] == stage_forwards(slots)[-1]
    path = tmp_path_factory.mktemp("csv") / "schedule.csv"
    path.write_text(text)
    loaded(path, pp, chunks, micro_batches)
    back = read_csv(text, ordered_plan(pp, micro_batches, slot_lines(slots, chunks), chunks), "f")
    assert [[(phase, rows[row], chunk) for phase, row, chunk in of_rank] for of_rank in back] == slots


def test_the_last_stage_gives_the_numbers():
    lines = ("F2 F0 F1 I2 B0 B1 W2", "F2 B2 F0 I0 F1 W0 B1")
    text, rows = to_csv(ordered_plan(2, 3, lines))
    assert rows == (2, 0, 1)
    assert text == "0F0,0F1,0F2,0I0,0B1,0B2,0W0\n1F0,1B0,1F1,1I1,1F2,1W1,1B2\n"


@pytest.mark.parametrize("wrong", [order for order in permutations(range(3)) if order != (0, 1, 2)])
def test_forwards_out_of_order_are_refused(wrong):
    """Torch would load this, and take each loss for another micro-batch's."""
    text = "".join(",".join([*(f"{s}F{i}" for i in wrong), *(f"{s}B{i}" for i in range(3))]) + "\n" for s in range(2))
    with pytest.raises(InputError, match="before one of a lower number"):
        read_csv(text, ordered_plan(2, 3, "gpipe"), "schedule.csv")


def test_stages_that_differ_in_their_forwards_are_refused():
    plan = ordered_plan(2, 2, ("F0 F1 B0 B1", "F1 F0 B0 B1"))
    with pytest.raises(InputError, match="stage 0 runs its forwards in another order"):
        to_csv(plan)
    same = parse_slots(("F1 F0 B0 B1", "F1 F0 B0 B1"), 2, 1)
    assert renumber_micro_batches(same, "")[1] == (1, 0)


def with_rows(plan: Plan, *rows: dict) -> Plan:
    return with_fields(plan, steps=(with_fields(plan.steps[0], micro_batches=rows),))


def unequal(plan: Plan) -> Plan:
    return with_fields(plan, uses=with_fields(plan.uses, items={"llm": {**plan.uses.items["llm"], 1: 9}}))


TWO = ordered_plan(2, 2, "1f1b", dp=2)


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        (encoder_plan(), "of one module, the plan has llm and vit"),
        (ordered_plan(1, 2, "1f1b"), "on one pipeline stage"),
        (ordered_plan(2, 2, "forward_only"), "nothing comes back"),
        (unequal(ordered_plan(2, 2, "1f1b")), "has 9 tokens in micro-batch 1, 8 in 0"),
        (with_rows(TWO, {"dp0": (0,), "dp1": (1,)}, {"dp0": (2, 3)}), "has other groups than micro-batch 0"),
        (with_fields(TWO, steps=(*TWO.steps, with_fields(TWO.steps[0], order={"llm": "gpipe"}))), "steps differ"),
    ],
)
def test_what_a_schedule_cannot_say_is_refused(plan, says):
    with pytest.raises(InputError, match=says):
        to_csv(plan)


@pytest.mark.parametrize(
    ("text", "where", "says"),
    [
        ("0F0,0B0\n", "f", "of 1 ranks, the plan's pipeline of 2"),
        ("\n\n", "f", "of 0 ranks"),
        (",\n,\n", "f", "empty"),
        ("0F0,0B0\n1F0,1SEND_B0,1B0\n", "f:2", "`1SEND_B0` is no pass of one stage"),
        ("0F0,(1F1;0B0)OVERLAP_F_B\n1F0,1B0\n", "f:1", "is no pass of one stage"),
        ("0F0,3F0\n1F0,2F0\n", "f:1", "`3F0` is of stage 3, and the plan has 2"),
        ("1F0,1B0\n0F0,0B0\n", "f:1", "puts stage 1 on rank 0, the plan has it on rank 1"),
        ("0F0,0B0\n1F0\n", "f", "the plan cannot run this order: micro-batch 0 on stage 1: there is no B"),
        ("0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n", "f", "there are 1 micro-batches"),
    ],
)
def test_what_is_no_schedule_of_the_plan_is_refused(tmp_path, monkeypatch, text, where, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f").write_text(text)
    with pytest.raises(InputError, match=says.replace("(", r"\(")) as error:
        import_order_into("torch-csv", tmp_path.joinpath("f").relative_to(tmp_path), priced(ordered_plan(2, 1, "1f1b")))
    assert error.value.where == where and error.value.fix


def test_an_imported_plan_is_worth_what_it_says(tmp_path):
    """ZB-H1 written for torch and taken into a plan with 1F1B: as if it had been planned so, and no slower."""
    (tmp_path / "zb.csv").write_text(to_csv(ordered_plan(3, 6, "zb_h1"))[0])
    before = priced(ordered_plan(3, 6, "1f1b"))
    plan = import_order_into("torch-csv", tmp_path / "zb.csv", before)
    (score,) = pipeline.verify(plan)
    assert plan.made.strategy == "torch-csv"
    assert plan.outcome.value == pytest.approx(score.step_seconds, rel=1e-8)
    assert plan.outcome.value < pipeline.verify(before)[0].step_seconds
    assert plan.prediction.step_seconds == plan.outcome.value >= plan.outcome.bound > 0


def test_blanks_stand_for_idle_slots():
    """As torch dumps them."""
    orders = read_csv("0F0,,,0B0\n,1F0,1B0,\n", ordered_plan(2, 1, "1f1b"), "f")
    assert slot_lines(orders) == ("F0 B0", "F0 B0")


def test_names_of_forms_are_checked():
    with pytest.raises(InputError, match="no format is called `x`"):
        export_plan(TWO, "x")


def test_steps_keep_their_own_worth():
    """Two steps of other lengths, in one plan: each is worth what it is, and the head their sum."""
    one = ordered_plan(2, 2, "1f1b")
    items = {i: 8 if i < 2 else 16 for i in range(4)}
    rows = [with_fields(one.steps[0], micro_batches=({"dp0": (2 * n,)}, {"dp0": (2 * n + 1,)})) for n in (0, 1)]
    plan = priced(with_fields(one, steps=tuple(rows), uses=with_fields(one.uses, items={"llm": items})))
    done = with_order(plan, schedule_slots("zb_h1", 2, 2), "torch-csv", "f")
    values = [step.outcome.value for step in done.steps]
    assert values == pytest.approx([score.step_seconds for score in pipeline.verify(done)], rel=1e-8)
    assert values[0] < values[1] and done.outcome.value == pytest.approx(sum(values), rel=1e-8)


def test_an_order_that_memory_does_not_hold_is_refused():
    plan = priced(ordered_plan(2, 4, "1f1b"))
    layer = with_fields(plan.uses.prices.modules["llm"].layer, activation_kib_per_token=2.0**20 / 16)  # 0.5 GiB an item
    costs = with_fields(plan.uses.prices.modules["llm"], layer=layer)
    tight = with_fields(plan, uses=with_fields(plan.uses, prices=with_fields(plan.uses.prices, modules={"llm": costs})))
    device = with_fields(tight.uses.devices["toy"], memory_gib=1.6)
    tight = with_fields(tight, uses=with_fields(tight.uses, devices={"toy": device}))
    pipeline.verify(tight)  # 1F1B holds two
    with pytest.raises(Infeasible, match="would hold"):
        with_order(tight, schedule_slots("gpipe", 2, 4), "torch-csv", "f")
