"""Samples packed to a job's limits: no replica above one in any micro-batch, each item once, beside who reads it."""

import json
from dataclasses import replace
from math import gcd
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import files, pipeline
from planner.errors import Infeasible, InputError
from planner.plan.legal.plan_laws import require_legal, violations
from planner.plan.pack_fill import pack_fill
from planner.plan.plan_file import Plan, assignments
from planner.specs.base import with_fields
from planner.specs.inputs import JobOptions, load_job
from planner.specs.workload.items import input_count
from planner.strategies.static.layouts_plan import plan_together
from tests.examples import examples
from tests.specs.workload.test_stream_batches import FILES

LIMITED = """\
limits: {{inputs_per_rank: {{llm: {llm}, vit: {vit}, ear: {ear}}}}}
layout: {{dtype: float32, zero: {zero}}}
fix: {{layouts: {{llm: {{{llm_layout}}}, vit: {{{vit_layout}}}, ear: {{zero: 0}}}}}}
"""
LAYOUTS = ("tp: 1", "tp: 2", "tp: 4", "cp: 2")  # replicas: 4, 2, 1, 2


@st.composite
def stream_jobs(draw):
    """Files of a job of three modules, whose images and clips have one reader or two, and its limits."""
    rows = draw(st.lists(st.integers(8, 100), min_size=1, max_size=24))
    readers = st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=2, unique=True)
    items = st.tuples(st.integers(1, 2), readers)
    images, clips = draw(st.lists(items, max_size=12)), draw(st.lists(items, max_size=6))
    has = [0] * len(rows)  # outputs among a row's tokens
    lines = {"images": ["patches,row"], "clips": ["frames,row"]}
    for name, found in (("images", images), ("clips", clips)):
        for size, of in found:
            if all(has[row] + size <= rows[row] for row in of):
                lines[name].append(f"{4 * size},{'+'.join(map(str, of))}")
                has = [amount + size * (row in of) for row, amount in enumerate(has)]
    limits = {"llm": draw(st.integers(100, 250)), "vit": draw(st.integers(96, 140)), "ear": draw(st.integers(48, 90))}
    layouts = {
        "llm_layout": draw(st.sampled_from([*LAYOUTS, "pp: 2"])),
        "vit_layout": draw(st.sampled_from(LAYOUTS)),
    }
    text = FILES["job.yaml"].replace("batch_rows: 4", f"batch_rows: {len(rows)}")
    return {
        "model.yaml": FILES["model.yaml"],
        "rows.txt": "\n".join(map(str, rows)) + "\n",
        **{f"{name}.csv": "\n".join(found) + "\n" for name, found in lines.items()},
        "job.yaml": text + LIMITED.format(**limits, **layouts, zero=draw(st.sampled_from([1, 3]))),
    }


def written(folder: Path, texts: dict[str, str]) -> str:
    for name, text in texts.items():
        (folder / name).write_text(text)
    return str(folder / "job.yaml")


def placed(plan: Plan) -> dict[tuple[str, int], tuple[int, int]]:
    """Module and item → its micro-batch, and the number of its replica. Each item is met once."""
    found: dict[tuple[str, int], tuple[int, int]] = {}
    for number, micro_batch in enumerate(plan.steps[0].micro_batches):
        for a in assignments(plan, micro_batch):
            for item in a.items:
                assert (a.module, item) not in found
                found[a.module, item] = number, int(a.group.rpartition("dp")[2])
    return found


def require_packed(plan: Plan) -> None:
    """Limits of all replicas in all micro-batches, counted anew; every item once; bounds are below what there is."""
    at = placed(plan)
    assert {*at} == {(module, item) for module, items in plan.uses.items.items() for item in items}
    for module, limit in plan.uses.limits.inputs_per_rank.items():
        layout, spec, held = plan.layouts[module], plan.uses.models[module], dict[tuple[int, int], int]()
        for item, size in plan.uses.items[module].items():
            held[at[module, item]] = held.get(at[module, item], 0) + input_count(spec, size)
        assert all(inputs <= limit * layout.tp * layout.cp for inputs in held.values())
    fill = pack_fill(plan)
    assert fill and fill.fewest <= fill.micro_batches == len(plan.steps[0].micro_batches)
    for module in fill.modules:
        assert module.fewest_packs <= module.packs and 0 <= module.fill <= 1 and module.fullest <= module.budget


@pytest.mark.slow
@given(stream_jobs())
@examples(40)
def test_no_replica_is_above_a_limit_in_any_micro_batch(tmp_path_factory, texts):
    inputs = load_job(written(tmp_path_factory.mktemp("job"), texts), JobOptions())
    plan = plan_together(inputs)
    assert not violations(plan) and plan_together(inputs) == plan
    require_packed(plan)
    at, (batch,) = placed(plan), inputs.batches
    for module, items in batch.streams.items():
        for item in items:
            rows = [at["llm", reader] for reader in batch.feeds[module]["llm"][item]]
            assert at[module, item][0] == min(row for row, _ in rows), "with its first reader"
            assert lane(plan, module, at[module, item]) in [lane(plan, "llm", row) for row in rows]


def lane(plan: Plan, module: str, place: tuple[int, int]) -> tuple[int, int]:
    """The micro-batch of a place, and which of the sets that replicas of all modules are paired into."""
    number, replica = place
    return number, replica * gcd(*(each.dp for each in plan.layouts.values())) // plan.layouts[module].dp


SAMPLES = """format: planner.job/1
name: vl
model: qwen2.5-vl-7b
cluster: h200x8
workload: {{lengths: {{from: samples, path: samples.jsonl}}, batch_rows: {rows}, module: llm{more}}}
limits: {limits}
fix: {{layouts: {{llm: {{zero: 3}}, vision: {{{vision}}}}}}}
"""
BOTH = "{inputs_per_rank: {llm: 4096, vision: 8000}}"


def job(folder: Path, samples: list[dict[str, object]], limits: str = BOTH, more: str = "", vision: str = "") -> str:
    (folder / "samples.jsonl").write_text("\n".join(map(json.dumps, samples)) + "\n")
    text = SAMPLES.format(rows=len(samples), limits=limits, more=more, vision=vision or "zero: 1")
    (folder / "job.yaml").write_text(text)
    return str(folder / "job.yaml")


def seen(*images: tuple[int, int], text: int = 100) -> dict[str, object]:
    return {"text": text, "images": images}


TEXT, PHOTO = seen(), seen((640, 480))  # 1,564 patches


@pytest.mark.parametrize("vision", ["zero: 1", "tp: 2", "tp: 4"])
@pytest.mark.parametrize("batch", [[TEXT] * 60, [PHOTO] * 60, [PHOTO, TEXT, TEXT] * 20], ids=["0:1", "1:0", "1:2"])
@pytest.mark.every(3)
def test_every_mix_is_packed(tmp_path, batch, vision):
    plan = plan_together(load_job(job(tmp_path, batch, vision=vision), JobOptions()))
    require_packed(plan)
    fill = pack_fill(plan)
    assert fill and fill.micro_batches == fill.fewest
    assert next(each for each in fill.modules if each.module == "vision").packs == 0 or batch != [TEXT] * 60


@pytest.mark.slow
def test_a_sample_of_ten_thousand_images_is_packed_or_named(tmp_path):
    crowd = {"text": 5, "images": [[28, 28]] * 10_000}  # 16 patches and 4 tokens each, the rule's least size
    limits = "{{inputs_per_rank: {{llm: {}, vision: {}}}}}"
    plan = plan_together(load_job(job(tmp_path, [crowd, TEXT, PHOTO], limits.format(40_200, 160_000)), JobOptions()))
    require_packed(plan)
    path = job(tmp_path, [TEXT, crowd, PHOTO], limits.format(40_200, 159_000))
    with pytest.raises(
        Infeasible, match="sample 1 has 160,000 patches of `vision` in 10,000 items of up to 16"
    ) as found:
        plan_together(load_job(path, JobOptions()))
    assert found.value.where.startswith(f"{path}:6:") and "limits.inputs_per_rank.vision" in found.value.where
    assert "to 160000, or drop such samples: workload.max_inputs: {vision: 159000}" in found.value.fix


def test_items_over_several_replicas_of_an_encoder_may_fit_where_their_sum_does_not_fit_one(tmp_path):
    """Four replicas of the encoder for one of the LLM: images of a sample are spread over them, each whole."""
    four = seen(*[(640, 480)] * 4)
    text = Path(job(tmp_path, [four] * 5, "{inputs_per_rank: {llm: 4096, vision: 1600}}")).read_text()
    path = tmp_path / "job.yaml"
    path.write_text(text.replace("llm: {zero: 3}", "llm: {tp: 4, zero: 3}"))
    require_packed(plan_together(load_job(str(path), JobOptions())))
    path.write_text(path.read_text().replace("vision: 1600", "vision: 1500"))
    with pytest.raises(Infeasible, match="1,500 on each of 4 replicas") as refused:
        plan_together(load_job(str(path), JobOptions()))
    assert "sample 0 has 6,256 patches" in refused.value.message and "(4 more such)" in refused.value.message


def test_samples_beyond_max_inputs_are_dropped_and_named(tmp_path):
    large = seen((1280, 960), (1280, 960))
    path = job(tmp_path, [PHOTO, large, TEXT], more=", max_inputs: {vision: 8000}")
    plan = plan_together(load_job(path, JobOptions()))
    assert plan.uses.dropped == (1,) and plan.uses.left_out == {"vision": (1, 2)}
    assert {*plan.uses.items["llm"]} == {0, 2} and {*plan.uses.items["vision"]} == {0}
    with pytest.raises(InputError, match="every sample of the batch from sample 0 on") as refused:
        load_job(job(tmp_path, [PHOTO], more=", max_inputs: {vision: 8}"), JobOptions())
    assert "workload.max_inputs" in refused.value.where


def test_a_limit_below_every_sample_says_so(tmp_path):
    for limits, key in (("{inputs_per_rank: {llm: 64}}", "inputs_per_rank.llm"), ("{tokens_per_rank: 64}", "tokens_")):
        with pytest.raises(Infeasible, match=r"has .* and a pack may hold 64 \(2 more such\)") as refused:
            plan_together(load_job(job(tmp_path, [TEXT, PHOTO, TEXT], limits), JobOptions()))
        assert key in refused.value.where and "max_" in refused.value.fix


@pytest.mark.parametrize(
    ("limits", "more", "message", "where", "fix"),
    [
        ("{inputs_per_rank: {visoin: 9}}", "", "has no module `visoin`", "limits.inputs_per_rank.visoin", "vision"),
        ("{inputs_per_rank: {ear: 9}}", "", "has no module `ear`", "limits.inputs_per_rank.ear", "one of vision, llm"),
        (BOTH, ", max_inputs: {ear: 9}", "has no module `ear`", "workload.max_inputs.ear", "one of vision"),
        (BOTH, ", max_inputs: {llm: 9}", "limited in tokens", "workload.max_inputs.llm", "workload.max_tokens"),
    ],
)
def test_a_limit_of_what_is_no_module_is_refused(tmp_path, limits, more, message, where, fix):
    with pytest.raises(InputError, match=message) as refused:
        load_job(job(tmp_path, [TEXT], limits, more), JobOptions())
    assert where in refused.value.where and "job.yaml:" in refused.value.where and fix in refused.value.fix


def test_inputs_of_encoders_are_limited_where_there_are_samples(tmp_path):
    texts = {**FILES, "job.yaml": FILES["job.yaml"].replace("  module: llm", "  module: llm\n  max_inputs: {vit: 9}")}
    with pytest.raises(InputError, match="only samples with images and sound"):
        load_job(written(tmp_path, texts), JobOptions())


def test_a_plan_edited_beyond_a_limit_is_refused(tmp_path):
    plan = pipeline.predict(job(tmp_path, [PHOTO, TEXT] * 20)).plan
    tight = with_fields(plan.uses.limits, inputs_per_rank={"llm": 4096, "vision": 1563})
    edited = with_fields(plan, uses=with_fields(plan.uses, limits=tight))
    with pytest.raises(InputError, match=r"patches of `vision`, its 1 ranks may hold 1,563") as refused:
        pipeline.verify(edited)
    assert refused.value.where.startswith("vl (steps[0].micro_batches[") and refused.value.fix
    files.write(tmp_path / "plan.yaml", edited)
    with pytest.raises(InputError, match="its 1 ranks may hold 1,563"):
        pipeline.predict(str(tmp_path / "plan.yaml"))
    unknown = with_fields(tight, inputs_per_rank={"ear": 9})
    with pytest.raises(InputError, match="no layout is called `ear`"):
        require_legal(with_fields(plan, uses=with_fields(plan.uses, limits=unknown)), "plan.yaml")


def test_a_module_with_a_limit_of_its_own_does_not_keep_the_cap_on_tokens(tmp_path):
    """`tokens_per_rank` holds for every other module."""
    batch = [seen((1280, 960))] * 8  # 6,256 patches
    plan = plan_together(
        load_job(job(tmp_path, batch, "{tokens_per_rank: 4096, inputs_per_rank: {vision: 6256}}"), JobOptions())
    )
    assert not violations(plan)
    with pytest.raises(Infeasible, match="6,256 patches of `vision`, and a pack may hold 4,096"):
        plan_together(load_job(job(tmp_path, batch, "{tokens_per_rank: 4096}"), JobOptions()))


@pytest.mark.slow
def test_encoders_and_llm_are_even_over_ranks(tmp_path):
    """A tenth of what ranks would wait if samples went by the LLM's time alone, one in a micro-batch."""
    batch = [seen(*[(640, 480)] * (at % 3), text=50 + 97 * at % 900) for at in range(160)]
    inputs = load_job(job(tmp_path, batch, "{inputs_per_rank: {llm: 16384, vision: 24000}}"), JobOptions())
    packed = pipeline.layouts.predict_job(inputs)
    alone = pipeline.layouts.predict_job(replace(inputs, job=with_fields(inputs.job, limits=type(inputs.job.limits)())))
    assert packed.plan.uses.items == alone.plan.uses.items
    waits, apart = (found.parts["waiting"] for found in (packed, alone))
    assert packed.scores[0].step_seconds < alone.scores[0].step_seconds and waits < apart
