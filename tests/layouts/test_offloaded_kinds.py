"""Whole kinds of activations in host memory: what they are of a layer, and which a search names, against every set."""

from dataclasses import replace
from itertools import accumulate, pairwise

import numpy as np
import pytest

from planner.costs.layer_savings import named_bytes
from planner.costs.layout_columns import LayoutColumns
from planner.costs.memory import footprint
from planner.costs.memory.footprint import token_bytes
from planner.errors import Infeasible, InputError
from planner.layouts.bounds.space_bound import layout_bounds
from planner.layouts.screening.layout_screening import screen
from planner.layouts.screening.searched_parts import hidden_bytes
from planner.layouts.space.launchable_layouts import layouts_of
from planner.layouts.space.layout_batches import column_batches
from planner.layouts.space.layout_fields import FULL_LAYERS, OFFLOAD
from planner.layouts.space.layout_problem import fixed_fields, layout_problem
from planner.layouts.space.layout_space import layout_at
from planner.runtime.preflight.preflight_checks import refusals
from planner.scoring.bounds.bound_scope import bound_over
from planner.specs import library
from planner.specs.base import Layers, with_fields
from planner.specs.framework.memory_coefficients import MemoryCoefficients
from planner.specs.layers import kind_counts, module_parts
from planner.specs.model import Model
from planner.specs.parallelism import RECOMPUTED_PARTS, Parallelism, part_code, parts_of_code, sets_of_parts
from planner.strategies import parallel_search
from planner.strategies.static import predict_job
from tests.examples import share
from tests.static_jobs import small_cluster, static_inputs

KINDS = ("attention", "norm", "moe")
KNOBS = {"offload_shares": "none", "offloaded_parts": KINDS, "recompute": ("none", "selective", "full")}
# model, ranks, sequences, fixed fields, GiB of a device
JOBS = [("llama-3-8b", 8, [8192] * 16, "cp: 1", 60.0), ("qwen3-30b-a3b", 16, [4096] * 32, "cp: 1, zero: 1", 80.0)]
MODELS = ("llama-3-8b", "qwen3-30b-a3b", "deepseek-v2-lite", "nemotron-h-8b")


@pytest.fixture
def job(tmp_path):
    """A job for a framework that offloads kinds alone, and its problem."""

    def made(model, ranks, sizes, fixed, gib, host=None, **knobs):
        inputs = static_inputs(tmp_path, model, small_cluster(tmp_path, "h100-80gb", ranks), sizes, fixed)
        kind = inputs.cluster.ranks[0].kind
        device = with_fields(inputs.device, memory_gib=gib, **({"host_gib": host} if host else {}))
        software = with_fields(inputs.software, knobs=with_fields(inputs.software.knobs, **{**KNOBS, **knobs}))
        inputs = replace(inputs, devices={kind: device}, software=software)
        return inputs, layout_problem(inputs)

    return made


def columns(**fields):
    return LayoutColumns(ranks=8, seq=4096.0, batch=8.0, **{"tp": 2, **fields})


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("parts", [(), ("norm",), ("norm", "mlp"), ("attention", "moe")])
@pytest.mark.every(4)
def test_kinds_add_up_to_what_a_layer_keeps(name, fused, parts):
    """But for routers' logits and state spaces, which are of no kind; and more kinds are never less."""
    (module,) = library.read_named(name, Model)[0].modules.values()
    accounting = MemoryCoefficients(fused_norms=fused)
    for kind in kind_counts(module):

        def moved(names, kind=kind):
            at = columns(recomputed_parts=frozenset(parts), offloaded_parts=part_code(names))
            return token_bytes(module, kind, at, accounting)

        whole, each = moved(()), {part: float(moved((part,)).offloadable) for part in RECOMPUTED_PARTS}
        for names in sets_of_parts(RECOMPUTED_PARTS):
            assert float(moved(names).offloadable) == pytest.approx(sum(each[part] for part in names))
            assert moved(names).least_offloadable == 0.0 and moved(names).with_recompute == whole.with_recompute
        rest = float(whole.with_recompute) - sum(each.values())
        routed = module.routed_experts.experts * 4 * 2 / 2 if kind == "moe" else 0.0
        state_space = "state" in str(kind) or "mamba" in str(kind) or "ssm" in str(kind)
        assert rest == pytest.approx(routed, abs=1e-6) or (state_space and rest > 0)


def test_a_code_is_a_set_of_parts():
    for names in sets_of_parts(RECOMPUTED_PARTS):
        assert parts_of_code(part_code(names)) == names
    assert Parallelism(offload=("norm", "attention")).offload == ("attention", "norm")
    with pytest.raises(ValueError, match="names `norm` twice"):
        Parallelism(offload=("norm", "norm"))


@pytest.mark.slow
@pytest.mark.parametrize("case", JOBS, ids=lambda case: case[0])
@pytest.mark.parametrize("host", [None, 120.0])
@pytest.mark.every(2)
def test_the_kinds_are_those_that_move_least_of_all_sets_that_do(job, case, host):
    """Brute force over all sets of layouts whose stages have as many layers: each fits by the footprint of its stages,
    hides, and the host has room; where none does, layers are recomputed, or nothing fits.
    """
    inputs, problem = job(*case, host=host)
    found = screen(problem, layouts_of(problem, fixed_fields(inputs)))
    module, space = problem.trained.module, found.layouts
    even = module.layers % (space["pp"] * space["vpp"]) == 0
    shared = even & (space["recompute"] < 2)
    named, other = shared & (space[OFFLOAD] < 0), shared & (space[OFFLOAD] == 0)
    draw = np.random.default_rng(0)
    some = [place for each in (named, other) for place in draw.permutation(np.flatnonzero(each))[: share(60)]]
    assert named.any()
    sets = [(), *sets_of_parts(tuple(part for part in module_parts(module) if part in KINDS))]
    for place in some:
        one = {name: column[[place]] for name, column in space.items()}
        ((_, at),) = column_batches(problem.trained, one)
        sizes = named_bytes(module, at, problem.accounting, sets[-1])
        hides = [True, *(bool(each.most <= hidden_bytes(problem, at)) for each in sizes)]
        able = []
        for names, hidden in zip(sets, hides, strict=True):
            tried = replace(at, offload=float(bool(names)), offloaded_parts=part_code(names), alike={})
            stages = range(int(at.pp[0]))
            full = [footprint(module, tried, problem.accounting, stage) for stage in stages]
            kept = [footprint(module, replace(tried, offload=0.0), problem.accounting, stage) for stage in stages]
            fits = max(float(each.total[0]) for each in full) <= problem.allowed
            moved = max(float((a.activations - b.activations)[0]) for a, b in zip(kept, full, strict=True))
            if fits and hidden and moved <= problem.host_bytes:
                able.append((moved, part_code(names)))
        chosen = -int(space[OFFLOAD][place])
        if space[FULL_LAYERS][place] or not found.fits(problem)[place]:
            assert not able and not chosen
        else:
            assert min(able)[1] == chosen


@pytest.mark.slow
@pytest.mark.parametrize("case", JOBS, ids=lambda case: case[0])
@pytest.mark.every(2)
def test_no_layout_with_kinds_is_below_its_bound(job, case):
    """And its plan holds what the closed form says."""
    inputs, problem = job(*case)
    found = screen(problem, layouts_of(problem, fixed_fields(inputs)))
    bounds = layout_bounds(problem, found.layouts)
    chosen = np.flatnonzero((found.layouts[OFFLOAD] < 0) & found.fits(problem))
    for place in np.random.default_rng(1).permutation(chosen)[:12]:
        layout = layout_at(problem.trained, found.layouts, place)
        said = with_fields(inputs.job.fix, layouts={inputs.module: Parallelism(**asked(layout))})
        predicted = predict_job(replace(inputs, job=with_fields(inputs.job, fix=said)))
        assert bounds.seconds[place] <= predicted.plan.outcome.value * (1 + 1e-9)
        assert predicted.fits and predicted.plan.layouts[inputs.module].offload == layout.offload
        bare = with_fields(said, layouts={inputs.module: Parallelism(**{**asked(layout), "offload": 0.0})})
        assert not predict_job(replace(inputs, job=with_fields(inputs.job, fix=bare))).fits


def asked(layout):
    """The fields of a layout that a job fixes."""
    names = ("tp", "cp", "ulysses", "pp", "vpp", "ep", "etp", "zero", "micro_batch", "recompute", "offload", "replica")
    return {name: getattr(layout, name) for name in (*names, "dispatch", "overlap")}


@pytest.mark.slow
def test_a_search_names_kinds_and_its_bound_leaves_none_out(job):
    case = (*JOBS[0][:3], "tp: 1, cp: 1, pp: 1", 60.0)
    inputs, _ = job(*case)
    inputs = replace(inputs, job=with_fields(inputs.job, within=0.0))  # the quickest: kinds are not plain
    plan = parallel_search.plan(inputs, None)
    ((name, layout),) = plan.layouts.items()
    alone, _ = job(*case, offload="none")
    assert layout.offload == ("attention",)
    assert plan.outcome.value < parallel_search.plan(alone, None).outcome.value
    assert "activations" not in bound_over(plan)
    refused = [refusal for refusal in refusals(plan) if refusal[1] == f"layouts.{name}.offload"]
    assert refused == [("activations of attention alone cannot be offloaded yet", f"layouts.{name}.offload", ANY_SHARE)]


ANY_SHARE = "offload: a share of all activations"


@pytest.mark.slow
def test_a_host_without_room_is_offloaded_nothing(job):
    inputs, _ = job(*JOBS[0][:4], JOBS[0][4], host=1.0)
    (layout,) = parallel_search.plan(inputs, None).layouts.values()
    assert layout.offload == 0.0


def test_kinds_that_do_not_hide_are_refused_in_words(job):
    """Over a slow link to the host."""
    inputs, _ = job("llama-3-8b", 8, [128] * 64, "", 60.0)
    ((kind, device),) = inputs.devices.items()
    inputs = replace(inputs, devices={kind: with_fields(device, host_gb_per_s=4.0)})
    fields = {"tp": 1, "cp": 1, "pp": 1, "zero": 1, "micro_batch": 1, "recompute": "none", "offload": KINDS[:2]}
    said = with_fields(inputs.job.fix, layouts={inputs.module: Parallelism(**fields)})
    with pytest.raises((InputError, Infeasible), match=r"asks for \[attention, norm\], \d+% of which can") as error:
        predict_job(replace(inputs, job=with_fields(inputs.job, fix=said)))
    assert error.value.fix == "offload: fewer kinds"


@pytest.mark.slow
def test_divided_layers_that_are_all_recomputed_are_no_quicker_than_the_bound(job):
    """A framework without ranges of layers: what each keeps is its input alone, so that memory divides none away."""
    fields = {"tp": 1, "cp": 1, "pp": 4, "vpp": 1, "zero": 1, "recompute": "full", "micro_batch": 4, "offload": 0.0}
    inputs, _ = job("llama-3-8b", 8, [8192] * 64, "", 80.0)
    said = with_fields(inputs.job.fix, layouts={inputs.module: Parallelism(**fields)})
    plan = parallel_search.plan(replace(inputs, job=with_fields(inputs.job, fix=said)), None)
    even = with_fields(said, layouts={inputs.module: Parallelism(**fields, stages=stages_of((8, 8, 8, 8)))})
    uneven = with_fields(said, layouts={inputs.module: Parallelism(**fields, stages=stages_of((9, 9, 8, 6)))})
    each = [predict_job(replace(inputs, job=with_fields(inputs.job, fix=fix))) for fix in (even, uneven)]
    assert all(predicted.fits for predicted in each)
    seconds = [predicted.plan.outcome.value for predicted in each]
    assert plan.outcome.bound <= min(seconds) < seconds[0] and plan.outcome.value <= min(seconds)


def stages_of(counts):
    """Stages of so many layers each."""
    return tuple(Layers(range(first, last)) for first, last in pairwise(accumulate(counts, initial=0)))
