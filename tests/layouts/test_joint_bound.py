"""The bound over plans of several modules: below every legal one, whatever its layouts, ranks, assignments and places;
and a plan says it, and it is found again.
"""

import tempfile
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.check.checked_plan import check_plan
from planner.errors import PlannerError
from planner.layouts.bounds.joint_bound import OtherWork, joint_bound
from planner.layouts.space.joint_problem import JointProblem, with_joint_fields
from planner.plan.join_plans import round_digits
from planner.plan.legal.plan_laws import violations
from planner.plan.plan_file import Layout, Plan, TaskPlacement
from planner.scoring import plan_space_seconds, require_memory, score, with_bound_digest
from planner.scoring.bounds.plan_space import joint_problem_of_plan
from planner.specs.base import with_fields
from planner.specs.inputs import Inputs, JobOptions, load_job
from planner.specs.parallelism import Parallelism
from planner.strategies.assignment.encoder_orders import EncoderOrder
from planner.strategies.static.layouts_plan import plan_of_layouts, plan_together, priced_together
from planner.strategies.static.placement import placed_layouts
from planner.units import GIB
from tests.examples import examples
from tests.placed_jobs import placed_job
from tests.static_jobs import small_cluster

MODEL = """\
format: planner.model/1
name: senses
source: made up
modules:
  llm: {{kind: decoder, layers: 4, hidden: {wide}, heads: 8, kv_heads: 4, ffn: {ffn}, vocab: 2048{llm}}}
  vit: {{kind: vit, layers: 4, hidden: {wide}, heads: 8, ffn: {ffn}, patch: 14, merge: 2, out: {wide}{vit}}}
  ear: {{kind: audio, layers: 2, hidden: {wide}, heads: 8, ffn: {ffn}, mels: 80, pool: 2, out: {wide}}}
edges: [{{from: vit, to: llm}}, {{from: ear, to: llm}}]
"""
LLM = (
    "tp: 2", "pp: 2", "cp: 2", "dp: 4", "pp: 4", "pp: 2, tp: 2", "pp: 2, vpp: 2", "zero: 3", "zero: 3, pp: 2",
    "pp: 2, schedule: gpipe", "pp: 2, schedule: zb_h1", "tp: 2, recompute: full", "micro_batch: 2",
    "recompute: {0-1: full}", "pp: 2, recompute: {0-2: full}",
    "ranks: 1-3", "ranks: 2-3, tp: 2", "ranks: 0-1, pp: 2", "ranks: 0-2, pp: 3", "ranks: 3", "zero: 2, micro_batch: 3",
    'pp: 2, stages: ["0", 1-3]', 'pp: 2, stages: [0-2, "3"], recompute: full',
    'pp: 3, ranks: 0-2, stages: ["0", 1-2, "3"]',
    "pp: 2, zero: 3, micro_batch: 2", "zero: 3, offload: 0.05", "pp: 4, schedule: zb_h2, micro_batch: 2",
    'pp: 2, vpp: 2, recompute: {"0-2": full}', 'pp: 4, recompute: {"0,2-3": full, "1": selective}',
    'pp: 2, zero: 3, recompute: {"0,3": full}', "pp: 2, vpp: 2, recompute: {0-3: full}",
)  # fmt: skip
OTHER = (
    "dp: 4", "tp: 2", "tp: 4, zero: 0", "zero: 3", "pp: 2", "cp: 2", "recompute: full", "ranks: 0", "ranks: 0-1",
    "recompute: {0: full}",
    "ranks: 1-3", "ranks: first_stage", "ranks: 0-2, zero: 3", "zero: 0",
)  # fmt: skip


def sized(random: Random) -> dict[str, object]:
    """Samples of some images and clips each; small ones are bound by constants, large ones by work."""
    large = random.choice([1, 8, 32])
    rows = [random.randrange(40, 120) * large for _ in range(random.randrange(2, 9))]
    images = [
        (random.randrange(1, 9) * 4 * large, random.sample(range(len(rows)), random.choice((1, 1, 2))))
        for _ in range(random.randrange(1, 7))
    ]
    clips = [(4 * large * random.randrange(1, 3), random.randrange(len(rows))) for _ in range(random.randrange(1, 3))]
    room = [size for size in rows]
    lines = {"images": ["patches,row"], "clips": ["frames,row"]}
    for name, found in (("images", images), ("clips", [(size, [row]) for size, row in clips])):
        for size, of in found:
            if all(room[row] > size for row in of):
                lines[name].append(f"{size},{'+'.join(map(str, sorted(of)))}")
                room = [left - size * (row in of) for row, left in enumerate(room)]
    texts = {name: "\n".join(each) + "\n" for name, each in lines.items()}
    return {"rows": rows, "max_tokens": max(rows), **texts}


def drawn_inputs(random: Random, folder: Path, fixed: dict[str, str]) -> Inputs:
    wide = random.choice([64, 512, 1024])
    vit = random.choice(["", "", ", trained: none", ", trained: projector"])
    llm = random.choice(["", "", ", trained: none"])
    model = MODEL.format(wide=wide, ffn=3 * wide, vit=vit, llm=llm)
    path = Path(placed_job(folder, fixed, **sized(random), model=model, layout="{}"))
    cluster = small_cluster(folder, "h100-80gb", 4, random.choice([2, 4, 8]))
    margin = random.choice([0.06, 0.95, 0.96, 0.965, 0.97, 0.975])  # of the memory, that is kept free
    packed = random.choice(["", "", "", ", inputs_per_rank: {llm: 4096, vit: 4096}"])
    said = f"cluster: {cluster}\nlimits: {{memory_margin: {margin}{packed}}}"
    path.write_text(path.read_text().replace("cluster: cpu-4\nprofile: cpu", said))
    return load_job(str(path), JobOptions())


def with_constants(random: Random, plan: Plan) -> Plan:
    """The plan as if its framework launched layers slowly, began micro-batches so, or did neither."""
    timing = with_fields(
        plan.uses.prices.timing,
        layer_us=random.choice([0.0, 150.0, 5e4]),
        micro_batch_ms=random.choice([0.0, 0.2, 50.0]),
        step_ms=random.choice([0.0, 30.0]),
    )
    return with_fields(plan, uses=with_fields(plan.uses, prices=with_fields(plan.uses.prices, timing=timing)))


def rearranged(random: Random, plan: Plan) -> Plan:
    """Samples and items in other micro-batches and on other replicas, and tasks of encoders in other places."""
    count = len(plan.steps[0].micro_batches) + random.randrange(3)
    most = len(plan.uses.items["llm"]) if plan.uses.limits.inputs_per_rank else plan.layouts["llm"].micro_batch
    rows: list[dict] = [{} for _ in range(count)]
    for name, items in plan.uses.items.items():
        cells = [(row, group) for row in range(count) for group in plan.groups if group.startswith(f"{name}.")]
        for item in items:
            open_ = [(row, group) for row, group in cells if len(rows[row].get(name, {}).get(group, ())) < most]
            row, group = random.choice(open_ if name == "llm" else cells)
            own = rows[row].setdefault(name, {})
            own[group] = (*own.get(group, ()), item)
    kept = tuple(row for row in rows if row or plan.layouts["llm"].vpp > 1)
    cells = [(name, number, group) for number, row in enumerate(kept) for name in row for group in row[name]]
    encoded = [cell for cell in cells if cell[0] != "llm"]
    places = [each for each in plan.steps[0].placed if each.is_rule]
    for name, number, group in random.sample(encoded, min(len(encoded), random.randrange(3))):
        phase, where = random.choice("FB"), random.choice(("before", "after", "beside", "beside"))
        other = f"{random.choice('FB')}{random.randrange(len(kept))}@0"
        if phase == "B" and where == "beside":
            other = random.choice((other, "sync", "gather"))
        on = random.choice((group, ""))
        places.append(TaskPlacement(do=f"{name}.{phase}{number}", on=on, **{where: f"llm.{other}"}))
    step = with_fields(plan.steps[0], micro_batches=kept, order={"place": tuple(places)} if places else {})
    return with_fields(plan, steps=(step,))


def seconds_of(plan: Plan) -> float | None:
    """Of a step; None where the plan is not legal, or does not fit."""
    try:
        if violations(plan):
            return None
        found = score(plan)
        require_memory(plan, found)
        return found.step_seconds
    except PlannerError:
        return None


def problems_of(random: Random, inputs: Inputs, plan: Plan) -> list[JointProblem]:
    """What the job fixes; nothing but how many samples a micro-batch has; all that the plan has; and some of it."""
    as_laid_out = joint_problem_of_plan(plan)
    as_fixed = replace(as_laid_out, fixed={**{name: Parallelism() for name in plan.layouts}, **without_stages(inputs)})
    every = {name: decided(layout) for name, layout in plan.layouts.items()}
    some = {
        name: {field: value for field, value in fields.items() if field == "micro_batch" or random.random() < 0.5}
        for name, fields in every.items()
    }
    fixed = [{name: Parallelism(**fields) for name, fields in each.items()} for each in (every, some)]
    nothing = dict.fromkeys(plan.layouts, Parallelism(micro_batch=plan.layouts["llm"].micro_batch))
    return [as_laid_out, as_fixed, *(replace(as_fixed, fixed=each) for each in (nothing, *fixed))]


ORDERS = ((1, 1, 2, 3, None), (0, 0, 1, 2, None), (False, True))  # serves, ahead, at once


def without_stages(inputs: Inputs) -> dict[str, Parallelism]:
    """What the job fixes of each module, without the layers of stages: where they are uneven, they may be any."""
    return {name: with_fields(fixed, stages=None) for name, fixed in with_joint_fields(inputs).job.fix.layouts.items()}


def decided(layout: Layout) -> dict[str, object]:
    """The fields of a layout that a job can fix, and a search keep: its stages are even ones."""
    fields = {name: getattr(layout, name) for name in Parallelism.__struct_fields__ if name != "stages"}
    return {name: value for name, value in fields.items() if value is not None}


@pytest.mark.slow
@given(st.integers(0, 10**6))
@examples(60)
def test_no_plan_is_quicker(seed):
    random = Random(seed)
    fixed = {"llm": random.choice(LLM), "vit": random.choice(OTHER), "ear": random.choice(OTHER)}
    orders = {name: EncoderOrder(*map(random.choice, ORDERS)) for name in ("vit", "ear")}
    with tempfile.TemporaryDirectory() as folder:
        inputs = drawn_inputs(random, Path(folder), fixed)
        try:
            plan = plan_of_layouts(inputs, placed_layouts(inputs, True), orders=[orders])
            plan = with_constants(random, plan)
        except PlannerError:
            return
    bounds = [joint_bound(problem) for problem in problems_of(random, inputs, plan)]
    for one in (plan, *(rearranged(random, plan) for _ in range(4))):
        seconds = seconds_of(one)
        assert seconds is None or max(bounds) <= seconds * (1 + 1e-9)


@given(st.integers(0, 10**6))
@examples(15)
def test_no_plan_is_quicker_on_devices_that_just_hold_it(seed):
    """Whatever replicas have in the micro-batches of others, or have not."""
    random = Random(seed)
    fixed = {"llm": random.choice([each for each in LLM if "pp" in each]), "vit": "ranks: 3", "ear": "ranks: 3"}
    with tempfile.TemporaryDirectory() as folder:
        inputs = drawn_inputs(random, Path(folder), fixed)
        try:
            plan = rearranged(random, plan_together(inputs))
            found = None if violations(plan) else score(plan)
        except PlannerError:
            return
    if not found:
        return
    most = max(found.memory.peaks[rank] for rank in plan.layouts["llm"].ranks)
    for problem in problems_of(random, inputs, plan)[-2:]:
        device = problem.devices[problem.cluster.ranks[0].kind]
        margin = 1.0 - most * (1 + 1e-9) / (device.memory_gib * GIB)
        tight = replace(problem, limits=with_fields(problem.limits, memory_margin=margin))
        assert joint_bound(tight) <= found.step_seconds * (1 + 1e-9)


def test_the_bound_is_found_again_from_a_plan(tmp_path):
    """And one that was edited is found out, whatever its digest says."""
    fixed = {"llm": "tp: 2, zero: 1", "vit": "tp: 1", "ear": "ranks: 0-1"}
    inputs = with_joint_fields(drawn_inputs(Random(1), tmp_path, fixed))
    plan, found = priced_together(inputs)
    bound = plan_space_seconds(plan)
    assert 0 < bound < found.step_seconds
    stated = with_bound_digest(stating(plan, bound))
    assert not check_plan(stated).false
    edited = stating(plan, (bound + found.step_seconds) / 2)
    assert [each.where for each in check_plan(with_bound_digest(edited)).false] == ["outcome.bound"]
    kept = with_fields(edited.outcome, bound_digest=stated.outcome.bound_digest)
    assert "outcome.bound" in [each.where for each in check_plan(with_fields(edited, outcome=kept)).false]


def stating(plan: Plan, seconds: float) -> Plan:
    """The plan, as if its strategy had found this bound."""
    bound = round_digits(seconds)
    gap = round_digits(plan.outcome.value / bound - 1)
    outcome = with_fields(plan.outcome, status="feasible", bound=bound, gap=gap, bound_by="space")
    return with_fields(plan, outcome=outcome)


@given(
    st.lists(st.tuples(st.floats(0.1, 9), st.floats(0.1, 9)), min_size=1, max_size=6), st.floats(0, 9), st.floats(0, 9)
)
@examples(100)
def test_others_take_as_few_ranks_as_end_in_time(points, own, busy):
    """The least over all times in which the others may end, tried one by one."""
    ends = np.sort([end for end, _ in points])
    area = np.sort([area for _, area in points])[::-1]
    found = OtherWork(ends, area, 2).least_seconds(np.array([own]), np.array([busy]))
    assert found[0] == min(max(own, end, busy + each / 2) for end, each in zip(ends, area, strict=True))
