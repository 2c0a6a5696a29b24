"""Steps that count their loader: what they state is true, they wait as long as they must, no bound is above them."""

import pytest

from planner import files, pipeline
from planner.costs import loader_reads, with_loading
from planner.errors import InputError
from planner.plan.plan_file import Plan
from planner.scoring import false_statements, loader_bound_steps, score, step_loading_seconds, with_loader
from planner.specs.base import with_fields
from planner.specs.inputs import JobOptions, load_job
from planner.specs.loader import LoaderFile, LoaderPool, LoaderSettings, LoaderStage, LoaderTiming
from tests.test_golden import GOLDEN
from tests.typed import typed

ON_GPUS, ON_CPUS = (
    files.read(GOLDEN / f"sequence_groups/{name}/plan.yaml", Plan) for name in ("flexsp-gpt-7b", "demo")
)


def loader_of(seconds, cores=16):
    return LoaderFile(
        format=LoaderFile.FORMAT,
        name="made up",
        source="analytic",
        pools={"cores": LoaderPool(units=cores, shared=True)},
        stages=(LoaderStage(name="decode", pool="cores", seconds=seconds),),
    )


@pytest.mark.parametrize("plan", [ON_GPUS, ON_CPUS], ids=["GPUs", "CPUs"])
@pytest.mark.parametrize("seconds", [1e-6, 10.0])
def test_what_a_plan_with_a_loader_states_is_true(plan, seconds):
    loaded = with_loader(plan, loader_of(seconds))
    scores = pipeline.simulate(loaded)
    assert not [*false_statements(loaded, scores)]
    (found,), loading = scores, step_loading_seconds(loaded, 0)
    trained = score(plan).step_seconds
    assert found.trained_seconds == trained
    whole = max(trained, loading) if plan is ON_GPUS and loaded.loader.workers else trained + loading
    assert found.step_seconds == pytest.approx(whole, rel=1e-12)
    assert found.bound.seconds <= found.step_seconds and loader_bound_steps(loaded, scores) == (found.loading > 0)
    parts = found.breakdown
    assert parts.compute + parts.exposed_comm + parts.idle == pytest.approx(found.step_seconds)


def test_more_cores_are_never_slower_and_quicker_stages_neither():
    seconds = [
        [with_loader(ON_GPUS, loader_of(each, cores)).prediction.step_seconds for cores in (8, 16, 32, 64)]
        for each in (0.1, 1.0, 10.0)
    ]
    for row in seconds:
        assert row == sorted(row, reverse=True)
    assert all(one <= other for one, other in zip(seconds[0], seconds[1], strict=True))


def test_each_rank_of_a_group_loads_its_items():
    reads = loader_reads(ON_GPUS, 0)
    items = len(ON_GPUS.uses.items["llm"])
    assert reads.ranks == 8 and items / 8 <= reads.once <= reads.each_rank <= 8 * reads.once
    placed = with_fields(ON_GPUS, uses=with_fields(ON_GPUS.uses, loader=loader_of(1.0)), loader=None)
    assert with_loading(placed, 0, 3.0) == 3.0


def test_no_worker_loads_between_steps():
    loader = with_fields(
        loader_of(0.1), timings=(LoaderTiming(workers=0, seconds=0.1), LoaderTiming(workers=16, seconds=9.0))
    )
    loaded = with_loader(ON_GPUS, loader)
    assert loaded.loader.workers == 0
    assert score(loaded).loading == pytest.approx(step_loading_seconds(loaded, 0))
    asked = with_fields(loaded, loader=LoaderSettings(workers=2))
    assert score(asked).step_seconds > score(loaded).step_seconds


JOB = """format: planner.job/1
name: fed
model: gpt-7b
cluster: a100x64
workload: {lengths: 4096, batch_rows: 64}
software: megatron
fix: {layouts: {llm: {tp: 8, pp: 1, cp: 1, dp: 8, zero: 1, micro_batch: 1, recompute: full}}}
strategy: parallel_search
loader: loader.yaml
"""


@pytest.mark.slow
def test_verbs_say_what_sets_the_step(tmp_path):
    (tmp_path / "job.yaml").write_text(JOB)
    for seconds, says in ((30.0, True), (1e-6, False)):
        files.write(tmp_path / "loader.yaml", loader_of(seconds))
        for command in ("predict job.yaml", "fits job.yaml", "solve job.yaml -o plan.yaml", "show plan.yaml"):
            printed = typed(f"planner {command}", tmp_path)
            assert printed.code == 0, printed.errors
            assert ("loader-bound" in printed.out) == says, command
    assert "decode  1 µs a sample on one core" in typed("planner show plan.yaml", tmp_path).out


def test_a_job_planned_during_its_run_has_no_loader(tmp_path):
    (tmp_path / "job.yaml").write_text(JOB.replace("strategy: parallel_search", "planning: per_batch"))
    files.write(tmp_path / "loader.yaml", loader_of(1.0))
    with pytest.raises(InputError, match="loaded when they are known"):
        load_job(str(tmp_path / "job.yaml"), JobOptions())
