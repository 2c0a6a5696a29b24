"""As little is offloaded as fits and hides: against every share and every number of layers by themselves."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.costs import largest_offload
from planner.costs.memory import OFFLOAD_STEPS, footprint
from planner.costs.memory.pipeline_activations import fewest_recomputed, offloadable_bytes
from planner.costs.pricing import pricing_of
from planner.layouts.bounds.space_bound import layout_bounds
from planner.layouts.screening.layout_screening import screen, seconds_of
from planner.layouts.space.launchable_layouts import layouts_of
from planner.layouts.space.layout_batches import column_batches
from planner.layouts.space.layout_fields import FULL_LAYERS, OFFLOAD, SCHEDULE, SCHEDULES
from planner.layouts.space.layout_problem import fixed_fields, layout_problem
from planner.layouts.space.layout_space import layout_at
from planner.plan.launchable.launch_refusals import launch_refusals
from planner.plan.launchable.launch_rules import trained_facts
from planner.scoring import score
from planner.specs.base import Layers, with_fields
from planner.specs.hardware.cluster import NodeStorage
from planner.specs.parallelism import ZERO_BUBBLE, Parallelism
from planner.strategies import parallel_search
from planner.strategies.static import predict_job
from planner.strategies.static.closed_form_change import smallest_change
from planner.strategies.static.layouts_plan import draft_of_layouts
from planner.strategies.static.memory_fit import memory_fit_of_job
from tests.static_jobs import small_cluster, static_inputs

LONG, SHORT = [8192] * 16, [1024] * 128
VARIED = [300, 9000, 512, 700, 4096, 1000, 2048, 600, 333, 8192, 64, 1500, 2500, 700, 128, 4000]
KIND = "h100-80gb"
TIGHT = "tp: 1, cp: 1, pp: 1, zero: 3"
SHARES = np.arange(OFFLOAD_STEPS + 1) / OFFLOAD_STEPS


@pytest.fixture
def screened(tmp_path):
    """Screens the space of a job: its inputs, problem and layouts."""

    def found(sizes, fixed="", model="llama-3-8b", ranks=8, offload="any", gib=None, **knobs):
        inputs = static_inputs(tmp_path, model, small_cluster(tmp_path, "h100-80gb", ranks), sizes, fixed)
        if gib:
            kind = inputs.cluster.ranks[0].kind
            inputs = replace(inputs, devices={kind: with_fields(inputs.device, memory_gib=gib)})
        problem = layout_problem(inputs)
        problem = replace(problem, knobs=with_fields(problem.knobs, offload=offload, **knobs))
        return inputs, problem, screen(problem, layouts_of(problem, fixed_fields(inputs)))

    return found


def some_of(mask, count, seed=0):
    """Places of a few layouts."""
    places = np.nonzero(mask)[0]
    return np.random.default_rng(seed).permutation(places)[:count]


def solved_columns(problem, found, place):
    """One layout as columns, with what was solved for."""
    one = {name: column[[place]] for name, column in found.items()}
    ((_, at),) = column_batches(problem.trained, one)
    layers = problem.trained.module.layers // int(one["pp"][0])
    return replace(at, full_recompute=one[FULL_LAYERS] / layers, offload=one[OFFLOAD] / OFFLOAD_STEPS), layers


def bytes_of_fullest(problem, at, full, offload):
    """Bytes on the fullest stage of one layout for each pair of shares, (pairs,)."""
    full, offload = np.broadcast_arrays(full, offload)
    at = replace(at, alike={}, full_recompute=full, offload=offload, **columns_like(at, full.shape))
    stages = range(int(at.pp.max()))
    module = problem.trained.module
    return np.max([footprint(module, at, problem.accounting, stage).total for stage in stages], axis=0)


def columns_like(at, shape):
    names = ("tp", "cp", "ulysses", "pp", "vpp", "ep", "etp", "replica", "zero", "micro_batch")
    return {name: np.broadcast_to(getattr(at, name), shape).astype(float) for name in names}


@pytest.mark.slow
@pytest.mark.parametrize(("model", "ranks", "sizes"), [("llama-3-8b", 8, LONG), ("qwen3-30b-a3b", 16, SHORT)])
@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.every(2)
def test_it_is_the_least_of_all_shares_and_the_fewest_of_all_layers(screened, model, ranks, sizes, ranges):
    """Brute force over both of layouts whose stages all have as many layers."""
    kinds = ("none", "selective", "full", *(["ranges"] if ranges else []))
    _, problem, found = screened(sizes, model=model, ranks=ranks, recompute=kinds)
    space, module = found.layouts, problem.trained.module
    even = module.layers % (space["pp"] * space["vpp"]) == 0
    offloads, both = space[OFFLOAD] > 0, space[FULL_LAYERS] > 0
    assert (offloads & both).any() and (offloads & ~both).any()
    for mask in (offloads & both & even, offloads & ~both & even, ~offloads & both & even):
        for place in some_of(mask, 12):
            at, layers = solved_columns(problem, space, place)
            most = largest_offload(module, at, problem.machine, min(sizes))
            counts = range(layers + 1) if ranges else (0, layers)
            best = None
            for count in counts:
                share = SHARES[(most.full if count == layers else most.partial) >= SHARES]
                fits = bytes_of_fullest(problem, at, count / layers, share) <= problem.allowed
                if fits.any():
                    best = count, round(float(share[np.argmax(fits)]) * OFFLOAD_STEPS)
                    break
            assert bool(found.fits(problem)[place]) == (best is not None)
            if best:
                assert (space[FULL_LAYERS][place], space[OFFLOAD][place]) == best


@pytest.mark.slow
def test_no_pair_that_fits_is_quicker(screened):
    """The seconds of the closed form, for every number of layers and a tenth of all shares that hide."""
    _, problem, found = screened(LONG)
    space = found.layouts
    even = problem.trained.module.layers % (space["pp"] * space["vpp"]) == 0
    mask = found.fits(problem) & (space[OFFLOAD] > 0) & even
    for place in some_of(mask, 12):
        at, layers = solved_columns(problem, space, place)
        most = largest_offload(problem.trained.module, at, problem.machine, max(LONG))
        for count in range(layers + 1):
            limit = float((most.full if count == layers else most.partial)[0])
            fits = bytes_of_fullest(problem, at, count / layers, np.linspace(0, limit, 10)) <= problem.allowed
            seconds = seconds_of(problem, replace(at, full_recompute=np.array([count / layers])))
            assert not fits.any() or seconds[0] >= found.seconds[place] * (1 - 1e-8)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "ranks", "sizes", "fixed"),
    [
        ("llama-3-8b", 8, LONG, ""),
        ("llama-3-8b", 8, VARIED, ""),
        ("qwen3-30b-a3b", 16, [4096] * 32, ""),
        ("deepseek-v2-lite", 8, [4096] * 32, ""),
        ("llama-3-8b", 8, SHORT, "recompute: full"),
        ("llama-3-8b", 8, LONG, "dtype: float32"),
    ],
)
@pytest.mark.every(6)
def test_no_plan_offloads_more_than_hides_or_holds_more_than_was_said(screened, model, ranks, sizes, fixed):
    """The largest share is that of the rule for plans, of one kind of layer to the last step; bounds stay below."""
    inputs, problem, found = screened(sizes, fixed, model, ranks)
    space, bounds = found.layouts, layout_bounds(problem, layouts_of(problem, problem.trained.fixed))
    fits = found.fits(problem)
    assert (bounds.bytes_needed[fits] <= problem.allowed).all()
    mask = fits & (space[OFFLOAD] > 0) & (space["micro_batch"] * 4 >= len(sizes) // ranks)
    places = some_of(mask, 10)
    assert len(places)
    for place in places:
        layout = layout_at(problem.trained, space, int(place))
        plan = draft_of_layouts(inputs, {inputs.module: layout})
        scored = score(plan)  # refuses what would not hide
        assert layout.offload == space[OFFLOAD][place] / OFFLOAD_STEPS
        assert bounds.seconds[place] <= scored.step_seconds * (1 + 1e-9)
        assert scored.peak_bytes <= found.bytes_needed[place] * 1.03  # a mean over dense and expert layers
        at, _ = solved_columns(problem, space, place)
        most = largest_offload(problem.trained.module, at, problem.machine, min(sizes))
        share = float((most.full if layout.recompute == "full" else most.partial)[0])
        for chunk in layout.stages or (Layers(range(problem.trained.module.layers)),):
            hides = pricing_of(plan).offloading("llm", KIND, chunk).largest_ratio(min(sizes))
            assert share <= hides
            if model == "llama-3-8b" and not isinstance(layout.recompute, dict):
                assert share == hides


@pytest.mark.parametrize("fixed", ["offload: 0", "offload: 0.1", "recompute: full", "recompute: none", ""])
def test_a_job_keeps_what_it_fixes(screened, fixed):
    _, problem, found = screened(LONG, fixed)
    name, _, value = fixed.partition(": ")
    layouts = [layout_at(problem.trained, found.layouts, int(place)) for place in range(len(found.seconds))]
    if name:
        assert {str(getattr(layout, name)) for layout in layouts} == {str(float(value)) if name == "offload" else value}
    if name != "offload":
        assert len({layout.offload for layout in layouts}) > 1


@pytest.mark.parametrize("offload", ["none", "alone"])
def test_a_framework_offloads_only_where_it_can(screened, offload):
    _, problem, found = screened(LONG, offload=offload)
    space = found.layouts
    offloads = space[OFFLOAD] > 0
    beside = (space["pp"] > 1) | (space["recompute"] > 0) | (space[FULL_LAYERS] > 0)
    assert not (offloads & beside).any() and offloads.any() == (offload == "alone")
    facts = trained_facts(problem.trained.module, 8, tuple(LONG))
    for place in some_of(offloads, 20):
        assert not launch_refusals(layout_at(problem.trained, space, int(place)), facts, problem.knobs)


@pytest.mark.slow
def test_a_framework_without_offload_has_the_layouts_of_a_job_that_forbids_it(screened):
    """Byte for byte, and so does a device without a link to its host."""
    _, _, forbidden = screened(LONG, "offload: 0")
    _, _, without = screened(LONG, offload="none")
    inputs, other, _ = screened(LONG)
    cut = replace(other.machine, device=with_fields(other.machine.device, host_gb_per_s=None))
    unlinked = screen(replace(other, machine=cut), layouts_of(other, fixed_fields(inputs)))
    priced = screen(replace(other, by_rates=False), layouts_of(other, fixed_fields(inputs)))
    for each in (without, unlinked, priced):
        assert (each.seconds == forbidden.seconds).all() and (each.bytes_needed == forbidden.bytes_needed).all()
        assert all((each.layouts[name] == forbidden.layouts[name]).all() for name in each.layouts)


def test_a_split_backward_offloads_nothing(screened):
    _, _, found = screened([4096] * 64, ranks=16)
    split = np.isin(found.layouts[SCHEDULE], [SCHEDULES.index(name) for name in ZERO_BUBBLE])
    assert split.any() and not found.layouts[OFFLOAD][split].any() and found.layouts[OFFLOAD][~split].any()


def test_a_chunk_of_two_layers_offloads_nothing(screened):
    _, problem, found = screened(LONG)
    few = problem.trained.module.layers // (found.layouts["pp"] * found.layouts["vpp"]) <= 2
    assert few.any() and not found.layouts[OFFLOAD][few].any()


@pytest.mark.parametrize("sizes", [LONG, VARIED])
def test_with_offload_no_layout_is_slower_and_none_stops_fitting(screened, sizes):
    _, problem, found = screened(sizes)
    _, _, without = screened(sizes, "offload: 0")
    fits, before = found.fits(problem), without.fits(problem)
    assert fits[before].all() and (sizes is VARIED or fits.sum() > before.sum())
    assert (found.seconds[before] <= without.seconds[before] * (1 + 1e-9)).all()
    assert (found.seconds[before] < without.seconds[before] * (1 - 1e-3)).any()


@pytest.mark.slow
def test_long_sequences_are_offloaded_and_short_ones_recomputed(tmp_path):
    """With as many tokens in a micro-batch, in the same memory: of short sequences compute leaves too little time for
    the copies, so that layers are recomputed, alone where the framework cannot do both.
    """
    found = {}
    for length, knob in ((32768, "alone"), (512, "alone"), (512, "any")):
        fixed, count = f"{TIGHT}, micro_batch: {32768 // length}", 8 * 32768 // length
        inputs = static_inputs(tmp_path, "llama-3-8b", small_cluster(tmp_path, KIND, 8), [length] * count, fixed)
        software = with_fields(inputs.software, knobs=with_fields(inputs.software.knobs, offload=knob))
        devices = {KIND: with_fields(inputs.device, memory_gib=170.0)}
        job = with_fields(inputs.job, within=0.0)  # the quickest
        found[length, knob] = parallel_search.plan(replace(inputs, job=job, software=software, devices=devices), None)
    long, short, both = (plan.layouts["llm"] for plan in found.values())
    assert long.offload and long.recompute == "none"
    assert not short.offload and short.recompute != "none"
    assert both.offload and both.recompute != "none"
    values = [plan.outcome.value for plan in found.values()]
    assert values[2] < values[1]


@given(st.integers(1, 40), st.integers(1, 4), st.floats(0.0, 1.0), st.floats(0.0, 0.99), st.floats(0.01, 0.9))
def test_the_fewest_layers_are_those_of_a_walk_over_all(each, chunks, saved, offload, least):
    """What a rank keeps falls in three straight pieces: inverted, and counted layer by layer."""
    layers = chunks * (each + 2)

    def kept(count):
        own = layers - count * (1.0 - least)
        return own - offload * offloadable_bytes(float(layers), layers * least, layers, chunks, count)

    wanted = saved * (kept(0) - kept(layers))
    exact = float(fewest_recomputed(wanted / (1.0 - least), layers, chunks, offload))
    walked = next(count for count in range(layers + 1) if kept(0) - kept(count) >= wanted - 1e-9)
    assert np.ceil(exact - 1e-6) == walked


@given(st.integers(3, 12), st.integers(1, 3), st.floats(0.0, 1.0), st.integers(0, 40))
def test_a_rank_keeps_the_ends_of_its_chunks(each, chunks, offload, recomputed):
    """Layer by layer, in the order in which they are recomputed: the first of each chunk, then the second."""
    layers = each * chunks
    count = min(recomputed, layers)
    order = [(layer, chunk) for layer in range(each) for chunk in range(chunks)]
    bytes_of = {place: 1.0 if number < count else 7.0 for number, place in enumerate(order)}
    kept = sum(size * (1.0 if layer in (0, each - 1) else 1.0 - offload) for (layer, _), size in bytes_of.items())
    whole = sum(bytes_of.values())
    moved = offload * offloadable_bytes(7.0 * layers, 1.0 * layers, layers, chunks, count)
    assert whole - moved == pytest.approx(kept)


def test_the_smallest_change_is_recomputation_before_offload(tmp_path):
    """Either alone would do, and people recompute first; it fits in the words of a job."""
    fixed = f"{TIGHT}, micro_batch: 1, recompute: none"
    inputs = static_inputs(tmp_path, "llama-3-8b", small_cluster(tmp_path, KIND, 8), [10240] * 8, fixed)
    found = memory_fit_of_job(inputs)
    assert not found.fits and found.change.differences == ("recompute=selective",)
    for change in ("recompute: selective", "recompute: none, offload: 0.3"):
        cluster, changed = inputs.sources["cluster"], f"{TIGHT}, micro_batch: 1, {change}"
        assert memory_fit_of_job(static_inputs(tmp_path, "llama-3-8b", cluster, [10240] * 8, changed)).fits


@pytest.mark.parametrize("host", [None, 2.0])
@pytest.mark.parametrize("offload", ["0.4", "1.0", "[attention, norm]"])
@pytest.mark.every(6)
def test_the_smallest_change_hides_what_a_job_offloads(tmp_path, offload, host):
    """Short sequences compute too little on most meshes beside copies of all their activations, and a host may have no
    room for these.
    """
    fixed = f"tp: 1, cp: 1, pp: 1, zero: 0, recompute: none, offload: {offload}"
    inputs = static_inputs(tmp_path, "llama-3-8b", small_cluster(tmp_path, KIND, 8), [2048] * 32, fixed)
    if host:
        storage = NodeStorage(host_gib=host, disk_gib=1.0)
        inputs = replace(inputs, cluster=with_fields(inputs.cluster, storage=storage))
    change = smallest_change(layout_problem(inputs), fixed_fields(inputs))
    if change:
        names = ("tp", "cp", "pp", "vpp", "zero", "micro_batch", "recompute", "offload", "sequence_parallel")
        fields = {name: getattr(change.layouts[""], name) for name in names}
        said = with_fields(inputs.job.fix, layouts={inputs.module: Parallelism(**fields)})
        assert predict_job(replace(inputs, job=with_fields(inputs.job, fix=said))).fits
