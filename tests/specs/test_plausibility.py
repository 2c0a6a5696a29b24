"""What can hardly be meant is said in one line on stderr, and stops nothing."""

import logging
import re
import subprocess
import sys

import pytest

from planner.specs.inputs import JobOptions, load_job
from planner.specs.library import shipped_folder

JOB = """\
format: planner.job/1
name: small
model: llama-3-8b
cluster: ./cluster.yaml
workload: {{lengths: 512, batch_rows: 4}}
{more}"""
GOOD = "gpus: 8xh100\nnodes: 2\n"
BY_LEVEL = """\
source: made up
ranks: [{{kind: h100-80gb, count: {count}, per_node: 8}}]
levels:
  - {{name: node, ranks: 8, gb_per_s: {near}, latency_us: 6}}
  - {{name: all, ranks: 16, gb_per_s: 50, latency_us: 15}}
"""


@pytest.fixture
def warnings_of(tmp_path, caplog):
    """The warnings about a job on a cluster."""

    def load(cluster: str = GOOD, more: str = "") -> list[str]:
        (tmp_path / "cluster.yaml").write_text(f"format: planner.cluster/1\nname: mine\n{cluster}")
        (tmp_path / "job.yaml").write_text(JOB.format(more=more))
        with caplog.at_level(logging.WARNING):
            load_job(str(tmp_path / "job.yaml"), JobOptions())
        return [record.getMessage() for record in caplog.records]

    return load


def test_nothing_is_said_of_what_is_usual(warnings_of):
    assert warnings_of(more="degrees: [1, 2, 4, 8]\nlayout: {dtype: bf16}\n") == []


TRAINED = [path for path in sorted((shipped_folder() / "jobs").glob("*.yaml")) if "requests:" not in path.read_text()]


@pytest.mark.parametrize("path", TRAINED, ids=lambda path: path.stem)
@pytest.mark.every(9)
def test_nothing_is_said_of_what_is_shipped(path, caplog, tmp_path):
    load_job(str(path), JobOptions())
    assert not caplog.records


@pytest.mark.parametrize(
    ("cluster", "more", "warning"),
    [
        (BY_LEVEL.format(count=16, near=25), "", r"cluster.yaml:6:3 \(levels\): 50 GB/s beyond .* within one, 25 GB/s"),
        ("nodes: 2\ngpus: 8xh100\nnics: 80x400Gb\n", "", r"\(levels\): 500 GB/s beyond a node .* 450 GB/s"),
        (BY_LEVEL.format(count=12, near=450), "", r"cluster.yaml:4:8 \(ranks\): 12 ranks .* 8 a node .* 4"),
        ("nodes: 1\ngpus: 8xv100-32gb\n", "", r"job.yaml.* v100-32gb has no bf16"),
        ("nodes: 1\ngpus: 8xv100-32gb\n", "layout: {dtype: bf16}\n", r"job.yaml:6:17 \(layout.dtype\): v100-32gb has"),
        ("nodes: 1\ngpus: 8xa100-80gb\n", "layout: {dtype: fp8}\n", "a100-80gb has no fp8"),
        (GOOD, "degrees: [3, 5]\n", r"job.yaml:6:10 \(degrees\): 3 and 5 .* 32 heads .* 16 ranks"),
        (GOOD, "degrees: [8, 32]\n", r"\(degrees\): 32 .* 16 ranks"),
    ],
)  # fmt: skip
def test_what_can_hardly_be_meant_is_said_once(warnings_of, cluster, more, warning):
    (said,) = warnings_of(cluster, more)
    assert re.search(warning, said) and "\n" not in said


@pytest.mark.slow
def test_one_line_on_stderr_and_the_answer_on_stdout(tmp_path):
    (tmp_path / "cluster.yaml").write_text("format: planner.cluster/1\nname: mine\nnodes: 1\ngpus: 8xv100-32gb\n")
    (tmp_path / "job.yaml").write_text(JOB.format(more="layout: {dtype: bf16}\nfix: {layouts: {llm: {tp: 8}}}\n"))
    command = [sys.executable, "-m", "planner", "predict", "job.yaml", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    warnings = [line for line in done.stderr.splitlines() if line.startswith("warning: ")]
    assert done.returncode == 0 and done.stdout.startswith("{")
    assert len(warnings) == 1 and "no bf16" in warnings[0]
