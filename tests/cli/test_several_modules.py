"""Verbs on plans and jobs of several modules: each is named, and what one reads is not added to what another does."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from planner import files
from planner.cli.app import app
from planner.errors import InputError
from planner.plan.legal.plan_laws import violations
from planner.plan.plan_file import Plan
from planner.scoring.score import score
from planner.specs.base import Ranks, with_fields
from planner.strategies.static import memory_fit_of_plan
from tests.specs.workload.test_stream_batches import FILES

BUBBLES = Path(__file__).parents[1] / "golden/by_hand/encoder-in-bubbles/plan.yaml"
FIXED = "fix: {layouts: {llm: {pp: 2}, vit: {tp: 2}, ear: {zero: 0}}}\nlayout: {dtype: float32, zero: 1}\n"


@pytest.fixture
def job(tmp_path):
    """Writes a job of three modules. `other`: lines in place of its layouts."""

    def write(other: str = FIXED) -> str:
        for name, text in FILES.items():
            (tmp_path / name).write_text(text)
        text = FILES["job.yaml"].replace("batch_rows: 4", "batch_rows: 8")
        (tmp_path / "job.yaml").write_text(text + other)
        return str(tmp_path / "job.yaml")

    return write


def refused(*words: str) -> InputError:
    error = CliRunner().invoke(app, list(words)).exception
    assert isinstance(error, InputError) and error.where and error.fix
    return error


def test_ranks_of_an_encoder_alone_are_asked_whether_they_fit():
    """A module on ranks of its own that holds too much: the plan does not fit, though the other module's ranks do."""
    plan = files.read(BUBBLES, Plan)
    (kind,) = plan.ranks
    (level,) = plan.uses.cluster.levels
    wider = (with_fields(kind, count=16, per_node=16),)
    cluster = with_fields(plan.uses.cluster, ranks=wider, levels=(with_fields(level, ranks=16),))
    far = {"v0": plan.groups["v0"], "v1": plan.groups["v1"]}
    groups = {
        **plan.groups,
        **{name: with_fields(g, ranks=Ranks(rank + 8 for rank in g.ranks)) for name, g in far.items()},
    }
    held = {"positions": "learned", "max_positions": 2 * 10**7}  # states, and nothing to compute
    models = {**plan.uses.models, "vit": with_fields(plan.uses.models["vit"], **held)}
    layouts = {**plan.layouts, "vit": with_fields(plan.layouts["vit"], ranks=Ranks(range(8, 16)))}
    steps = tuple(with_fields(step, order={"llm": "1f1b"}) for step in plan.steps)
    uses = with_fields(plan.uses, cluster=cluster, models=models)
    apart = with_fields(plan, ranks=wider, groups=groups, layouts=layouts, steps=steps, uses=uses)
    assert not violations(apart)
    found = memory_fit_of_plan(apart, (score(apart),))
    assert not found.fits and "llm" not in found.fullest.holds
    assert [use.holds for use in found.stages if "llm" in use.holds] == [{"llm": stage} for stage in range(4)]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ("fix: {layouts: {llm: {pp: 2}, ear: {zero: 0}}}\n", "the job fixes no layout of `vit`"),
        ("fix: {layouts: {llm: {pp: 2}, vit: {tp: 3}, ear: {}}}\n", "tp · cp · pp = 3 does not divide 4 ranks"),
    ],
)
def test_a_job_that_cannot_be_laid_out(job, other, message):
    for verb in ("predict", "fits"):
        assert message in refused(verb, job(other)).message


def test_a_job_without_streams_is_asked_for_them(tmp_path):
    text = FILES["job.yaml"]
    (tmp_path / "rows.txt").write_text(FILES["rows.txt"])
    (tmp_path / "model.yaml").write_text(FILES["model.yaml"])
    (tmp_path / "job.yaml").write_text(text[: text.index("  streams:")])
    error = refused("predict", str(tmp_path / "job.yaml"))
    assert "the items of `vit` and `ear`" in error.message and "workload.streams" in error.fix


def test_what_cannot_be_asked_of_several_modules():
    error = refused("why-not", str(BUBBLES), "zero=1")
    assert "the plan has llm, vit" in error.message and error.fix == "llm.zero=1 or vit.zero=1"


@pytest.mark.parametrize("words", [("--regret", "expected"), ("--restart-s", "60"), ("--static", "--regret", "worst")])
def test_options_of_mixes_are_refused_without_mixes(words):
    refused = CliRunner().invoke(app, ["solve", "qwen2.5-vl-7b-h200x8", *words])
    assert isinstance(refused.exception, InputError) and refused.exception.where == words[-2]
