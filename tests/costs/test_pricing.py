"""Prices agree: closed form and simulated plans, mixed groups and static layouts, tasks and cost lines."""

import random
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.costs.compute.assumed_rates import ASSUMED_RATES
from planner.costs.layer_pass import LayerPass, recompute_counts
from planner.costs.layout_columns import PipelineBatch, columns_of
from planner.costs.memory.footprint import fullest_stage
from planner.costs.packing_problem import ENDLESS
from planner.costs.pricing import Pricing
from planner.costs.step.stage_seconds import head_seconds, mean_layer_seconds
from planner.layouts.screening.layout_screening import closed_form_parts
from planner.layouts.space.layout_fields import columns_for
from planner.layouts.space.layout_problem import layout_problem
from planner.plan.plan_file import Group, Layout, Plan, Prices
from planner.plan.task import Task
from planner.scoring.score import score
from planner.specs import library
from planner.specs.base import Layers, Ranks, with_fields
from planner.specs.framework.software import Software
from planner.specs.framework.timing_coefficients import TimingCoefficients
from planner.specs.hardware.cluster import Cluster
from planner.specs.hardware.profile import Profile
from planner.specs.inputs import JobOptions, load_job
from planner.specs.model import Model
from planner.strategies.one_module.simulated_layouts import simulate_layout
from planner.strategies.static.fixed_layout import fixed_layout
from planner.strategies.static.layouts_plan import draft_of_layouts
from planner.units import MS
from tests.examples import soaked
from tests.static_jobs import for_software, small_cluster, static_inputs, static_job

# ------------------------------------------------------------------------ the closed form and the simulated plan

SPREAD = ["", "tp: 4", "tp: 2, sequence_parallel: false", "cp: 4", "cp: 4, ulysses: 4", "tp: 2, cp: 4, ulysses: 2"]
STATES = ["zero: 0", "zero: 1", "zero: 2", "zero: 3", "zero: 3, replica: 2", "zero: 1, recompute: full"]
PIPES = [
    "pp: 4, tp: 2, zero: 0",
    "pp: 8, zero: 1, recompute: selective",
    "pp: 4, cp: 2, zero: 1",
    "pp: 4, tp: 2, zero: 1, schedule: gpipe",
    "pp: 4, vpp: 2, tp: 2, zero: 1",
    "pp: 4, vpp: 3, tp: 4, zero: 1",  # chunks that do not come out even
    "pp: 3, tp: 4, zero: 1",
    "pp: 5, tp: 2, zero: 1",
    "pp: 4, tp: 2, zero: 1, schedule: zb_h1",
    "pp: 4, tp: 2, zero: 3",
]


def off(tmp_path: Path, fixed: str, count: int, cluster: str = "h100x64", seq: int = 8192) -> float:
    """By how much a simulated plan of a layout takes longer than the closed form says, relatively."""
    job = static_job(tmp_path, "llama-3-8b", cluster, [seq] * count, fixed, kept="")
    inputs = load_job(for_software(job, "any"), JobOptions())
    problem, layout = layout_problem(inputs), fixed_layout(inputs)
    return simulate_layout(inputs, layout).seconds / float(closed_form_parts(problem, layout).seconds) - 1.0


COUNTS = (64, 256)
SHARDED = [*product(SPREAD, STATES)]


@pytest.mark.parametrize(
    ("spread", "states", "count"),
    soaked(  # each with one number of sequences; in the soak with both
        [(*each, count) for each in SHARDED for count in COUNTS],
        [(*each, COUNTS[at % 2]) for at, each in enumerate(SHARDED)],
    ),
)
@pytest.mark.every(8)
def test_a_simulated_plan_takes_what_the_closed_form_says(tmp_path, spread, states, count):
    """One micro-batch of each replica, or several."""
    fixed = ", ".join(part for part in (spread, states, "pp: 1") if part)
    assert abs(off(tmp_path, fixed, count)) < 0.003


@pytest.mark.parametrize("fixed", PIPES)
@pytest.mark.every(2)
def test_a_simulated_pipeline_takes_about_what_the_closed_form_says(tmp_path, fixed):
    ranks = 60 if fixed.startswith(("pp: 3", "pp: 5")) else 64
    cluster = small_cluster(tmp_path, "h100-80gb", ranks, 4) if ranks != 64 else "h100x64"
    assert abs(off(tmp_path, fixed, 240 if ranks != 64 else 256, cluster)) < (0.01 if "zb" in fixed else 0.005)


# ------------------------------------------------------------------------------------- groups that happen to be alike


def grouped(plan: Plan) -> Plan:
    """The same work by groups that say how they split it, under a layout that says nothing but what is sharded."""
    layout = plan.layouts["llm"]
    split = {"ulysses": layout.ulysses, "ring": layout.cp // layout.ulysses}
    said = {name: size for name, size in split.items() if size > 1} or {"ulysses": 1}
    groups = {name: Group(ranks=group.ranks, split=said) for name, group in plan.groups.items()}
    whole = with_fields(layout, dp=layout.dp * layout.cp, cp=1, ulysses=1)
    return with_fields(plan, layouts={"llm": whole}, groups=groups)


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
@pytest.mark.parametrize("split", ["cp: 1", "cp: 4", "cp: 4, ulysses: 4", "cp: 16, ulysses: 8", "cp: 4, ulysses: 2"])
@pytest.mark.every(3)
def test_equal_groups_cost_what_their_layout_does(tmp_path, split, zero):
    cluster = small_cluster(tmp_path, "h100-80gb", 16)
    fixed = f"{split}, tp: 1, pp: 1, zero: {zero}"
    inputs = static_inputs(tmp_path, "llama-3-8b", cluster, [4096] * 32, fixed)
    plan = draft_of_layouts(inputs, {inputs.module: fixed_layout(inputs)})
    one, other = score(plan), score(grouped(plan))
    assert other.step_seconds == pytest.approx(one.step_seconds, rel=1e-9)
    assert other.memory.peaks == pytest.approx(one.memory.peaks, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("zero", [1, 3])
def test_a_plan_of_groups_of_one_rank_costs_what_data_parallelism_does(tmp_path, zero):
    """As the two strategies solve it."""
    from planner.strategies import parallel_search, sequence_groups

    cluster, sizes = small_cluster(tmp_path, "h100-80gb", 8), [4096] * 16
    fixed = f"tp: 1, cp: 1, pp: 1, zero: {zero}, recompute: full, micro_batch: 1"
    static = static_inputs(tmp_path, "llama-3-8b", cluster, sizes, fixed)
    layout = parallel_search.plan(static, None)
    job = with_fields(
        static.job,
        strategy="sequence_groups",
        degrees=(1,),
        fix=with_fields(static.job.fix, layouts={}),
        layout=with_fields(static.job.layout, zero=zero, recompute="full"),
        limits=with_fields(static.job.limits, tokens_per_rank=4096),
        sync="micro_batch" if zero == 3 else "step",
    )
    groups = sequence_groups.plan(replace(static, job=job), None)
    assert groups.outcome.value == pytest.approx(layout.outcome.value, rel=1e-9)


# ------------------------------------------------------------------------------------------- what hides exchanges


def priced(zero: int, kind: str, **timing) -> tuple[Pricing, Layout]:
    module = library.read_named("llama-3-8b", Model)[0].modules["llm"]
    cluster = library.read_named("h100x64", Cluster)[0]
    device = library.read_named("h100-80gb", Profile)[0].device
    layout = Layout(ranks=Ranks(range(64)), dp=64, zero=zero)
    prices = Prices(
        profile="made up", rates={cluster.ranks[0].kind: ASSUMED_RATES}, timing=TimingCoefficients(**timing)
    )
    devices = {cluster.ranks[0].kind: with_fields(device, kind=kind)}
    return Pricing({"llm": module}, {"llm": layout}, cluster, prices, devices), layout


EXCHANGES = [
    (1, "gather", None),
    (1, "sync", None),
    (0, "sync", None),
    (2, "sync", None),
    (3, "gather", 0),
    (3, "sync", 0),
]


def beside(phase: str, sizes: list[int]) -> tuple:
    """A group for each of these sizes, in one micro-batch."""
    layers, found = Layers(range(32)), []
    for number, size in enumerate(sizes):
        passed = "F" if phase == "gather" else "B"
        found.append((Task("llm", layers, passed, 0, f"g{number}", Ranks((number,)), (size,), (number,)),))
    return (tuple(found),)


@given(
    st.sampled_from(EXCHANGES),
    st.lists(st.integers(1, 60_000), min_size=1, max_size=3),
    st.integers(1, 20_000),
    st.sampled_from([0.0, 0.3, 1.0]),
)
def test_more_compute_hides_more_communication_but_not_the_uncovered_part(of, sizes, more, window):
    """Nor more than its window, and none on a CPU, where both use the same cores."""
    zero, phase, micro_batch = of
    pricing, layout = priced(zero, "cuda", dp_window=window)
    task = Task("llm", Layers(range(32)), phase, micro_batch, "all", layout.ranks)
    whole, alone = pricing.price(task).value, pricing.exposed_seconds(task, ENDLESS)
    less, most = (pricing.price(task, beside(phase, [size + add for size in sizes])).value for add in (0, more))
    assert alone <= most <= less <= whole
    assert alone == pytest.approx(whole / 32 if window else whole)
    assert (most < whole) == (window > 0)
    on_cpu, _ = priced(zero, "cpu", dp_window=window)
    assert (
        on_cpu.price(task, beside(phase, sizes)).value
        == on_cpu.price(task).value
        == on_cpu.exposed_seconds(task, ENDLESS)
    )


@given(st.sampled_from(EXCHANGES), st.integers(1, 60_000))
def test_exposed_part_depends_on_seconds_of_compute_only(of, size):
    """Only layers hide communication; what is outside of them does not."""
    zero, phase, micro_batch = of
    pricing, layout = priced(zero, "cuda", dp_window=0.5, jitter=0.01)
    task, concurrent = Task("llm", Layers(range(32)), phase, micro_batch, "all", layout.ranks), beside(phase, [size])
    seconds = pricing.pass_cost(concurrent[0][0][0], embedding_head=False).value
    assert pricing.price(task, concurrent).value == pytest.approx(pricing.exposed_seconds(task, seconds), rel=1e-12)


# ------------------------------------------------------------------------------- lines and the closed form's passes

SHAPES = ["llama-3-8b", "gpt-oss-20b", "qwen3-30b-a3b", "deepseek-v3", "gpt-22b"]
PARTS = [  # how a layout is spread over 16 ranks
    {"dp": 16}, {"dp": 4, "tp": 4}, {"dp": 4, "tp": 4, "sequence_parallel": False}, {"dp": 2, "cp": 4, "tp": 2},
    {"dp": 4, "cp": 4, "ulysses": 4}, {"dp": 2, "cp": 8, "ulysses": 4}, {"dp": 8, "tp": 2, "ep": 8},
    {"dp": 16, "ep": 4, "etp": 2}, {"dp": 16, "ep": 8, "dispatch": "all_gather"},
    {"dp": 16, "ep": 16, "dispatch": "node_level"}, {"dp": 4, "tp": 4, "overlap": ("tp",)},
    {"dp": 16, "dtype": "fp8"}, {"dp": 16, "dtype": "float32"},
]  # fmt: skip


SOFTWARE, RECOMPUTE = ("megatron", "megatron-2021", "planner"), ("none", "selective", "full")
LINES = [*product(SHAPES, RECOMPUTE, SOFTWARE)]
OFTEN = [  # every two of the three together
    (name, recompute, SOFTWARE[(at + by) % 3])
    for (at, name), (by, recompute) in product(enumerate(SHAPES), enumerate(RECOMPUTE))
]


@pytest.mark.parametrize(("name", "recompute", "software"), soaked(LINES, OFTEN))
@pytest.mark.every(5)
def test_cost_lines_equal_passes_of_the_closed_form(name, recompute, software):
    """At any number of tokens; with windows, experts and latent attention too. Windows of rings are of 4096 tokens."""
    module, random_ = library.read_named(name, Model)[0].modules["llm"], random.Random(f"{name}{recompute}{software}")
    cluster = library.read_named("h100x64", Cluster)[0]
    kind, device = cluster.ranks[0].kind, library.read_named("h100-80gb", Profile)[0].device
    traits = library.read_named(software, Software)[0]
    for parts in PARTS:
        if "ep" in parts and getattr(module, "moe", None) is None:
            continue
        layout = Layout(ranks=Ranks(range(16)), zero=1, recompute=recompute, **parts)
        prices = Prices(profile="made up", rates={kind: ASSUMED_RATES}, timing=with_fields(traits.timing, jitter=0.0))
        pricing = Pricing({"llm": module}, {"llm": layout}, cluster, prices, {kind: device})
        machine, degree = pricing.module_pricing("llm", kind).machine, layout.cp * layout.tp
        windowed = getattr(module, "window", None) is not None and layout.cp > layout.ulysses
        for seq in (4096,) if windowed else (1, 4096, *(random_.randrange(2, 300_000) for _ in range(3))):
            at = columns_of(layout, PipelineBatch(seq=float(seq), batch=float(layout.dp)))
            layer, behind = mean_layer_seconds(module, at, machine), head_seconds(module, at, machine)
            for forward in (True, False):
                one, end = (each.forward if forward else each.backward for each in (layer, behind))
                pause = machine.timing.micro_batch_ms * MS
                for ends in (False, True):
                    again = recompute_counts(layout, range(module.layers))
                    part = LayerPass(
                        "llm", module.layers, ends, Ranks(range(degree)), layout.default_split, forward, again
                    )
                    line = pricing.pass_line(part, kind)[0]
                    expected = float(one.seconds) * module.layers + ends * float(end.seconds) + pause
                    assert line.seconds((seq,)) == pytest.approx(expected, rel=1e-9), (parts, seq, forward)


# ---------------------------------------------------------------------------------------------------------- memory


HELD = [
    *("zero: 0", "zero: 1", "zero: 2", "zero: 3", "tp: 4, zero: 1", "cp: 4, zero: 3", "tp: 2, replica: 2, zero: 1"),
    *("pp: 4, zero: 1", "pp: 8, tp: 2, zero: 0", "pp: 2, zero: 3", "cp: 4, ulysses: 2, pp: 4, zero: 1"),
    "pp: 4, vpp: 2, zero: 1",
]


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("fixed", HELD)
@pytest.mark.every(4)
def test_the_fullest_rank_holds_what_the_closed_form_says(tmp_path, fixed, recompute):
    """Of equal sequences, as the simulated step has them."""
    inputs = static_inputs(tmp_path, "llama-3-8b", "h100x64", [4096] * 128, f"{fixed}, recompute: {recompute}")
    problem, layout = layout_problem(inputs), fixed_layout(inputs)
    plan = draft_of_layouts(inputs, {inputs.module: layout})
    closed = float(
        fullest_stage(problem.trained.module, columns_for(layout, problem.trained), problem.accounting).total
    )
    assert max(score(plan).memory.peaks) == pytest.approx(closed, rel=0.01)
