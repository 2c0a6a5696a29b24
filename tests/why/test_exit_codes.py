"""`why-not` ends with 0 for an answer, 3 for what does not fit, 2 for what no job may fix; of stages, too."""

import pytest
from typer.testing import CliRunner

from planner import files, pipeline
from planner.cli.app import app
from tests.static_jobs import for_software, small_cluster, static_job

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    """The file of a plan on eight ranks."""
    folder = tmp_path_factory.mktemp("why")
    job = static_job(folder, "llama-3-8b", small_cluster(folder, "h100-80gb", 8), (4096,) * 16, kept="")
    files.write(folder / "plan.yaml", pipeline.solve(for_software(job, "any")).plan)
    return folder / "plan.yaml"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("stages=[0-7,8-17,18-25,26-31] pp=2 vpp=2 overlap=[tp]", 0),
        ("tp=1 pp=1 zero=0 micro_batch=16 recompute=none", 3),
        ("stages=[0-1,2-31] tp=1 zero=0 recompute=none", 3),
        ("tp=3", 2),
        ("stages=[0-14,16-31]", 2),
        ("overlap=[pp]", 2),
    ],
)
@pytest.mark.every(2)
def test_the_exit_code_says_whether_it_fits(plan, words, code):
    done = CliRunner().invoke(app, ["why-not", str(plan), *words.split()])
    error = done.exception
    assert (done.exit_code if error is None or isinstance(error, SystemExit) else error.exit_code) == code


def test_stages_are_all_that_changes(plan):
    """Of a plan whose stages are changed the other fields stay, and even stages are what the layout had."""
    loaded = pipeline.read_plan(str(plan))
    even = pipeline.why_not(loaded, ("pp=2", "stages=[0-15,16-31]"))
    uneven = pipeline.why_not(loaded, ("pp=2", "stages=[0-7,8-31]"))
    assert even.after.value < uneven.after.value
