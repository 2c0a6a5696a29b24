"""Fields that a job fixes and no layout can have: one located error with its fix, whatever the strategy."""

import pytest

from planner import pipeline
from planner.errors import InputError
from tests.static_jobs import for_software, small_cluster, static_job


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
def test_what_no_layout_can_have_is_one_located_error(tmp_path, strategy, model, ranks, fixed, said):
    with pytest.raises(InputError, match=said) as caught:
        pipeline.solve(job(tmp_path, model, ranks, fixed, strategy))
    assert "(fix.layouts.llm)" in caught.value.where and caught.value.fix


@pytest.mark.slow
def test_seven_ranks_have_a_plan(tmp_path):
    path = for_software(job(tmp_path, "llama-3-8b", 7, "", "parallel_search"), "megatron")
    (layout,) = pipeline.solve(path).plan.layouts.values()
    assert 32 % (layout.dp * layout.replica * layout.micro_batch) == 0
