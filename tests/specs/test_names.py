"""Names that a job misspells are all said at once, with file and line, and what was probably meant."""

import pytest

from planner import files, pipeline
from planner.errors import InputError
from tests.typed import typed

JOB = """\
format: planner.job/1
name: small
model: lama-3-8b
cluster: h100x65
software: megatronn
profile: h101
strategy: sequence_group
objective: step_second
workload:
  lengths: {from: distribution, name: wikipdia}
  batch_rows: 4
"""
SAID = [
    ("3:8", "model", "no model is called `lama-3-8b`", "did you mean `llama-3-8b`?"),
    ("4:10", "cluster", "no cluster is called `h100x65`", "did you mean `h100x64`?"),
    ("5:11", "software", "no software is called `megatronn`", "did you mean `megatron`?"),
    ("6:10", "profile", "no device is called `h101`", "did you mean `h100-80gb`?"),
    ("7:11", "strategy", "no strategy is called `sequence_group`", "did you mean `sequence_groups`?"),
    ("8:12", "objective", "no objective is called `step_second`", "did you mean `step_seconds`?"),
    ("10:39", "workload.lengths.name", "no distribution is called `wikipdia`", "did you mean `wikipedia`?"),
]
RIGHT = ["llama-3-8b", "h100x64", "megatron", "h100-80gb", "sequence_groups", "step_seconds", "wikipedia"]


@pytest.fixture
def errors_of(tmp_path):
    def errors(text: str) -> tuple[InputError, ...]:
        (tmp_path / "job.yaml").write_text(text)
        with pytest.raises(InputError) as caught:
            pipeline.solve(str(tmp_path / "job.yaml"))
        return caught.value.errors

    return errors


def test_every_misspelt_name_of_a_job_is_said(errors_of, tmp_path):
    found = errors_of(JOB)
    assert [error.where for error in found] == [f"{tmp_path}/job.yaml:{place} ({path})" for place, path, _, _ in SAID]
    assert [(error.message, error.fix) for error in found] == [(message, fix) for _, _, message, fix in SAID]


@pytest.mark.parametrize("number", range(len(SAID)))
def test_each_one_alone(errors_of, number):
    text = JOB
    for other, (_, _, message, _) in enumerate(SAID):
        if other != number:
            text = text.replace(f" {message.split('`')[1]}", f" {RIGHT[other]}")
    (error,) = errors_of(text)
    assert SAID[number][1] in error.where and error.fix == SAID[number][3]


def test_a_job_that_is_asked_for_by_a_wrong_name():
    with pytest.raises(InputError) as caught:
        pipeline.solve("llama3-8b-h100x64")
    assert caught.value.fix == "did you mean `llama-3-8b-h100x64`?"


OTHERWISE_RIGHT = """\
format: planner.job/1
name: s
model: llama-3-8b
cluster: h100x64
layout: {dtype: bf16}
workload:
  lengths: 8
  batch_rows: 4
"""


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ("  max_tokens: 3\n", "job.yaml:9:15 (workload.max_tokens)"),
        ("  module: vit\n", "job.yaml:9:11 (workload.module)"),
        ("software: fsdp\nfix: {layouts: {llm: {pp: 2}}}\n", "job.yaml:5:9 (layout)"),
        ("fix: {layouts: {vit: {pp: 2}}}\nstrategy: parallel_search\n", "job.yaml:9:"),
        ("strategy: sequence_groups\nfix: {layouts: {llm: {pp: 2}}}\n", "job.yaml:9:11 (strategy)"),
    ],
)
def test_what_does_not_fit_together_has_its_line_too(tmp_path, change, where):
    (tmp_path / "job.yaml").write_text(OTHERWISE_RIGHT + change)
    printed = typed("planner solve job.yaml", tmp_path)
    assert printed.code == 2 and f"at {where}" in printed.errors


@pytest.mark.parametrize("where", ["", "--seed", "job.yaml:3:4 (name)", "none.yaml (name)", "workload", "data.csv:3"])
def test_other_places_stay_as_they_are(where):
    assert files.with_position(where) == where
