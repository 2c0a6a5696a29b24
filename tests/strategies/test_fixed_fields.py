"""Fields that a job fixes and no layout can have: one located error with its fix, whatever the strategy."""

from pathlib import Path

import pytest

from planner import pipeline
from planner.errors import InputError
from planner.specs.inputs import JobOptions
from tests.static_jobs import small_cluster, static_job


def job(folder, model, ranks, fixed, strategy):
    cluster = small_cluster(folder, "h100-80gb", ranks)
    path = folder / static_job(folder, model, cluster, (2048,) * 32, fixed, "")
    path.write_text(path.read_text().replace("parallel_search", strategy))
    return str(path)


@pytest.mark.parametrize("strategy", ["parallel_search", "best"])
@pytest.mark.parametrize(
    ("model", "ranks", "fixed", "said"),
    [
        ("mixtral-8x7b", 8, "ep: 3", "8 experts do not divide over ep = 3"),
        ("llama-3-8b", 8, "ep: 2", "the model has no experts"),
        ("llama-3-8b", 8, "tp: 2, dp: 8", "tp 2 · dp 8 does not multiply to 8 ranks"),
        ("llama-3-8b", 8, "pp: 1, vpp: 2", "vpp = 2 needs a pipeline"),
        ("llama-3-8b", 7, "tp: 2", "tp 2 does not multiply to 7 ranks"),
        ("llama-3-8b", 8, "pp: 8, vpp: 5", "pp · vpp = 40 is more than 32 layers"),
    ],
)
@pytest.mark.every(6)
def test_what_no_layout_can_have_is_one_located_error(tmp_path, strategy, model, ranks, fixed, said):
    with pytest.raises(InputError, match=said) as caught:
        pipeline.solve(job(tmp_path, model, ranks, fixed, strategy))
    assert "(fix.layouts.llm)" in caught.value.where and caught.value.fix


@pytest.mark.parametrize("ask", [pipeline.predict, pipeline.fits])
@pytest.mark.parametrize("model", ["llama-3-8b", "llava-1.5-7b"])
@pytest.mark.parametrize(
    ("fixed", "said", "where"),
    [
        ("replica: 2, rank_order: tp-cp-dp-pp", "does not say where replica is", "llm.rank_order)"),
        ("pp: 2, stages: []", "0 stages for pp = 2", "llm)"),
        ("pp: 2, stages: [0, 2-31]", "layer 1 in no stage", "llm.stages)"),
        ("recompute: {90: full}", "layer 90 does not exist", "llm.recompute)"),
    ],
)
def test_what_no_plan_can_have_is_refused_before_anything_is_assigned(tmp_path, ask, model, fixed, said, where):
    """Of one module and of several alike."""
    path = Path(job(tmp_path, model, 8, fixed, "parallel_search"))
    if model == "llava-1.5-7b":
        lengths = "{from: sample_mix, multimodal: 1, text_only: 0, text: 64, images: {name: coco, each: 1}}"
        text = path.read_text().replace("{from: file, path: lengths.txt}", lengths).replace("parallel_", "modality_")
        path.write_text(
            text.replace("modality_search", "modality_layout").replace("layouts: {", "layouts: {vision: {}, ")
        )
    with pytest.raises(InputError, match=said) as caught:
        ask(str(path), JobOptions())
    assert caught.value.where.endswith(f"(fix.layouts.{where}") and caught.value.fix
