"""Software files: each says what it can run and from where it is known; what is missing is named."""

import re
from math import exp
from pathlib import Path

import msgspec
import pytest

from planner import files, pipeline
from planner.errors import InputError
from planner.scoring import plan_answer
from planner.specs.base import with_fields
from planner.specs.framework.knobs import Knobs
from planner.specs.framework.software import Software
from planner.specs.inputs import JobOptions, load_job
from planner.specs.library import read_named, shipped_names
from planner.specs.named_files import ANY, read_software
from tests.static_jobs import for_software, small_cluster, static_job

SHIPPED = shipped_names(Software)
CHOICES = ("cp", "schedules", "etp", "dispatch", "zero", "recompute", "dtypes", "gradients", "overlap")


def knobs_of(name):
    return read_software(name)[0].knobs


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_file_says_where_each_knob_is_from(name):
    knobs, every = knobs_of(name), Knobs()
    restricted = {field for field in Knobs.__struct_fields__ if getattr(knobs, field) != getattr(every, field)}
    assert restricted - {"sources"} and restricted - {"sources"} <= set(knobs.sources)
    assert all(len(source) > 10 for source in knobs.sources.values())


def test_the_generic_framework_has_what_two_others_both_have():
    generic, others = knobs_of("generic"), [knobs_of(name) for name in ("megatron", "torchtitan")]
    for field in CHOICES:
        both = set.intersection(*(set(getattr(each, field)) for each in others))
        assert set(getattr(generic, field)) == both, field


def test_what_one_gpu_cannot_tell_of_the_own_runtime_is_what_is_common_to_all():
    generic, own = (read_named(name, Software)[0].timing for name in ("generic", "planner"))
    told = {"passes", "kernels", "attention", "layer_us", "step_ms", "recomputes_logits"}
    same = {name: getattr(generic, name) for name in generic.__struct_fields__ if name not in told}
    assert with_fields(own, **same) == own


def test_a_files_month_says_what_its_step_of_adam_holds():
    """Fused in torchtitan since 2025-02, a root with foreach since torch 2.1, and its sum with epsilon before."""
    shipped = read_named("torchtitan", Software)[0]
    held = {
        month: with_fields(shipped, month=month).dated_accounting.update_bytes
        for month in ("2023-01", "2024-05", "2025-06", "")
    }
    assert held == {"2023-01": 8.0, "2024-05": 4.0, "2025-06": 0.0, "": 0.0}
    assert read_named("fsdp", Software)[0].dated_accounting.update_bytes == 4.0
    dated = with_fields(read_named("megatron", Software)[0], month="2024-05")
    assert dated.dated_accounting == dated.accounting


def test_what_no_job_says_widens_the_interval(tmp_path):
    """Two steps of Llama-3-8B on 8 H100 in torchtitan of 2024-05, of 26.9 and 22.4 % MFU (PyTorch issue 88838)."""
    cluster = small_cluster(tmp_path, "h100-80gb", 8)
    for fixed, mfu in (("tp: 1, micro_batch: 1", 0.269), ("tp: 4, micro_batch: 4", 0.224)):
        job = static_job(tmp_path, "llama-3-8b", cluster, [8192] * 8, f"{fixed}, recompute: full", "zero: 3")
        found = pipeline.predict(for_software(job, "torchtitan"))
        seconds, spread = found.plan.outcome.value, found.plan.prediction.spread
        measured = plan_answer(found.plan, found.scores)["mfu"] * seconds / mfu
        assert 1.3 * seconds < measured < seconds * exp(spread)


def test_bridge_runs_what_its_core_does():
    assert with_fields(knobs_of("nemo"), sources={}) == with_fields(knobs_of("megatron"), sources={})


@pytest.mark.parametrize("name", SHIPPED)
def test_knobs_survive_a_file(name):
    shipped = read_named(name, Software)[0]
    assert files.parse(files.dump(shipped), Software, "again") == shipped


def test_any_is_the_generic_framework_with_every_knob():
    software, path = read_software(ANY)
    assert software.knobs == Knobs() and path.stem == "generic"
    assert with_fields(software, name="generic", knobs=knobs_of("generic")) == read_named("generic", Software)[0]


def own_software(folder, knobs):
    data = {"format": Software.FORMAT, "name": "own", "provenance": {"source": "me"}, **knobs}
    (folder / "own.yaml").write_bytes(msgspec.yaml.encode(data))


@pytest.mark.parametrize(
    ("knobs", "message", "fix"),
    [
        ({}, "does not say what the framework can run", "`knobs: {}` refuses nothing"),
        ({"knobs": {"ring": True}}, "unknown key `ring`", ""),
        ({"knobs": {"cp": ["spiral"]}}, "spiral", "one of both, ring, ulysses"),
        ({"knobs": {"rank_orders": ["tp-xp"]}}, "`xp`", "order tp-cp"),
        ({"knobs": {"sources": {"tq": "a page"}}}, "a knob `tq`", "name a knob"),
    ],
)
def test_a_file_that_is_wrong_is_named_with_its_fix(tmp_path, knobs, message, fix):
    own_software(tmp_path, knobs)
    job = static_job(tmp_path, "llama-3-8b", small_cluster(tmp_path, "h100-80gb", 8), [4096] * 8)
    with pytest.raises(InputError) as caught:
        load_job(for_software(job, "./own.yaml"), JobOptions())
    assert message in caught.value.message and fix in caught.value.fix and "own.yaml" in caught.value.where


def test_what_a_file_leaves_out_is_as_the_one_has_it_that_it_is_like(tmp_path):
    """Key by key, over several files; sources of knobs, too."""
    shipped = read_software("megatron")[0]
    (tmp_path / "first.yaml").write_text(
        "format: planner.software/1\nname: first\nlike: megatron\nprovenance: {source: me}\n"
        "knobs: {orders: any, sources: {orders: ours}}\ntiming: {gathers_ahead: false, step_ms: 1.0}\nspread: 0.3\n"
    )
    (tmp_path / "second.yaml").write_text(
        "format: planner.software/1\nname: second\nlike: ./first.yaml\nprovenance: {source: me}\n"
        "timing: {gathers_ahead: true}\n"
    )
    first, second = (read_software(f"./{name}.yaml", tmp_path)[0] for name in ("first", "second"))
    sources = {**shipped.knobs.sources, "orders": "ours"}
    assert first == with_fields(
        shipped,
        name="first",
        provenance=with_fields(shipped.provenance, source="me"),
        knobs=with_fields(shipped.knobs, orders="any", sources=sources),
        timing=with_fields(shipped.timing, gathers_ahead=False, step_ms=1.0),
        spread=0.3,  # though that is what a file has that says none
    )
    assert second == with_fields(first, name="second", timing=with_fields(first.timing, gathers_ahead=True))


@pytest.mark.parametrize("like", ["./own.yaml", "../FOLDER/own.yaml", "megatorn"])
def test_a_file_that_is_like_itself_or_like_none_is_refused(tmp_path, like):
    own_software(tmp_path, {"like": like.replace("FOLDER", tmp_path.name)})
    with pytest.raises(InputError) as caught:
        read_software("./own.yaml", tmp_path)
    assert "own.yaml:" in caught.value.where and "(like)" in caught.value.where
    assert ("megatron" in caught.value.fix) if like == "megatorn" else ("like themselves" in caught.value.message)


def test_shipped_orders_have_megatrons_coefficients():
    megatron, waiting, beside = (
        read_software(name)[0] for name in ("megatron", "megatron-orders", "megatron-orders-overlap")
    )
    assert beside.timing == megatron.timing
    assert waiting.timing == with_fields(megatron.timing, overlaps_replicas=False, gathers_ahead=False)
    for each in (waiting, beside):
        free = with_fields(megatron.knobs, groups="any", packing="any", orders="any", sources=each.knobs.sources)
        assert each.knobs == free


def job_with(folder, software, fixed, kept="zero: 1"):
    cluster = small_cluster(folder, "h100-80gb", 8)
    return for_software(static_job(folder, "llama-3-8b", cluster, [4096] * 16, fixed, kept), software)


@pytest.mark.parametrize("verb", [pipeline.predict, pipeline.fits, pipeline.solve], ids=["predict", "fits", "solve"])
@pytest.mark.parametrize(
    ("software", "fixed", "rule"),
    [
        ("fsdp", "tp: 2, pp: 2, zero: 3", "pipeline"),
        ("megatron", "tp: 2, cp: 1, pp: 2, schedule: zb_h1", "schedule"),
        ("torchtitan", "tp: 2, dtype: float64, zero: 3", "dtype"),
        ("planner", "tp: 4, sequence_parallel: false", "sequence parallelism"),
    ],
)
def test_a_layout_that_its_software_cannot_launch_is_refused(tmp_path, verb, software, fixed, rule):
    kept = "" if "zero" in fixed else "zero: 1"
    with pytest.raises(InputError) as caught:
        verb(job_with(tmp_path, software, fixed, kept))
    assert f"{software} cannot launch this layout" in caught.value.message and f"(rule: {rule})" in caught.value.message
    assert "job.yaml (" in caught.value.where and "software: any" in caught.value.fix


def test_any_software_launches_it(tmp_path):
    prediction = pipeline.predict(job_with(tmp_path, ANY, "tp: 2, cp: 1, pp: 2, schedule: zb_h1"))
    assert prediction.plan.layouts["llm"].schedule == "zb_h1"


@pytest.mark.slow
def test_open_fields_refuse_nothing_before_they_are_decided(tmp_path):
    """Four layers to a chunk need a pipeline of some depth, which the search finds."""
    plan = pipeline.solve(job_with(tmp_path, "megatron", "pp: 2, vpp: 2")).plan
    assert plan.layouts["llm"].vpp == 2


def test_the_page_on_software_has_every_knob():
    page = (Path(__file__).parents[2] / "docs" / "software.md").read_text(encoding="utf-8")
    rows = {
        name
        for line in page.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`(\w+)`", line.split("|")[1])
    }
    assert set(Knobs.__struct_fields__) <= rows
