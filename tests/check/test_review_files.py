"""What the gate writes for others: JUnit, annotations of GitHub, Markdown; and the files of `ci/`, run by bash."""

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from planner import files
from planner.check import BLOCKING, CheckedCase, Finding, annotations, junit
from planner.check.finding import CATEGORIES
from planner.specs.check_file import CheckFile
from planner.specs.job import Job
from tests.check.small_plans import solve, write_job
from tests.documents import DOCS, blocks
from tests.examples import examples
from tests.typed import typed

ROOT = Path(__file__).parents[2]
words = st.text(max_size=20)
cases = st.lists(
    st.builds(
        CheckedCase,
        name=words,
        path=words.map(lambda word: Path("plans") / word.replace("\0", "")),
        findings=st.lists(
            st.builds(
                Finding,
                category=st.sampled_from(CATEGORIES),
                where=words,
                old=st.none(),
                new=st.none(),
                message=words,
            ),
            max_size=4,
        ).map(tuple),
    ),
    max_size=4,
)


def blocked(case: CheckedCase) -> bool:
    return any(finding.category in BLOCKING for finding in case.findings)


@examples(60)
@given(cases)
def test_junit_has_a_test_for_each_case_and_a_failure_for_each_that_is_blocked(found):
    (suite,) = ElementTree.fromstring(junit(found).encode())
    assert [test.find("failure") is not None for test in suite] == [blocked(case) for case in found]
    assert (suite.get("tests"), suite.get("failures")) == (str(len(found)), str(sum(map(blocked, found))))


@examples(60)
@given(cases)
def test_an_annotation_is_a_line_whatever_is_in_it(found):
    lines = annotations(found).splitlines()
    told = [f for case in found for f in case.findings if f.category in (*BLOCKING, "changed_input")]
    assert len(lines) == len(told)
    for line, finding in zip(lines, told, strict=True):
        command, properties = line.split("::")[1].split(" ", 1)
        assert command == ("error" if finding.category in BLOCKING else "warning")
        assert properties.count(",") == 1 and properties.startswith("file=plans")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A folder of cases in which nothing differs, and one in which a plan got worse for a job that fixes more."""
    root = tmp_path_factory.mktemp("gate")
    for name, degrees in (("good", "[1, 2]"), ("worse", "[4]")):
        job = write_job(root / name / "plans" / "small")
        files.write(job.with_name("plan.yaml"), solve(job))
        write_job(root / name / "plans" / "small", degrees=degrees)
    return root


def test_markdown_has_the_table_why_and_both_plans(folders):
    printed = typed("planner check plans --markdown --junit out/check.xml --annotations out/a.txt", folders / "worse")
    assert printed.code == 1
    head, why, *drawings = printed.out.split("\n### ")[0], *printed.out.split("\n### ")[1].split("<details>")
    assert "| regression | `small: outcome.value` |" in head
    assert why.startswith("small: slower plan\n\n- ")
    assert [drawn.partition("</summary>")[0] for drawn in drawings] == [
        "<summary>the stored plan",
        "<summary>the plan of today",
    ]
    assert all("micro-batch 0" in drawn for drawn in drawings)
    assert "<failure" in (folders / "worse/out/check.xml").read_text()
    assert (folders / "worse/out/a.txt").read_text().startswith("::error file=plans/small/plan.yaml,title=small%3A ")


def test_a_share_is_written_in_percent_and_a_bare_number_above_one_is_refused(folders):
    assert typed("planner check plans --value 3% --gap 0.05", folders / "worse").code == 0
    refused = typed("planner check plans --value 3", folders / "worse")
    assert refused.code == 2
    assert refused.errors == ("error: `3` is more than the whole\n  at --value\n  fix: 3%, where percent are meant\n")


# ------------------------------------------------------------------------------------------------ the files of ci/


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/bash\n{text}\n", encoding="utf-8")
    path.chmod(0o755)


def bash(script: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """A script as a runner starts it, with planner of this checkout where its own would be installed."""
    kept = {"PATH": f"{folder}/bin:{os.environ['PATH']}", "HOME": str(folder)}
    for venv in (folder / "temp/planner", folder / ".planner/venv"):
        program(venv / "bin/planner", f'PYTHONPATH="{ROOT}" exec "{sys.executable}" -m planner "$@"')
        program(venv / "bin/pip", "")
    program(folder / "bin/python", "")  # makes the environment, which is there
    program(folder / "bin/gh", 'echo "$@" >> gh.txt')
    program(folder / "bin/curl", 'echo "$@" >> curl.txt')
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    return subprocess.run(command, cwd=folder, env={**kept, **variables}, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "code"), [("worse", 1), ("good", 0)])
@pytest.mark.every(2)
def test_the_steps_of_the_action_check_comment_and_end_with_the_verdict(folders, name, code):
    folder = folders / name
    variables = {
        "RUNNER_TEMP": str(folder / "temp"),
        "GITHUB_ACTION_PATH": str(ROOT / "ci"),
        "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
        "GITHUB_OUTPUT": str(folder / "output.txt"),
        "FOLDER": "plans",
        "OPTIONS": "",
        "PULL_REQUEST": "https://host/pull/1",
    }
    steps = {each["name"]: each for each in yaml.safe_load((ROOT / "ci/action.yml").read_text())["runs"]["steps"][2:]}
    ran = {title: bash(steps[title]["run"], folder, **variables) for title in ("Install", "Check", "Comment")}
    assert [each.returncode for each in ran.values()] == [0, 0, 0], [each.stderr for each in ran.values()]
    assert (folder / "output.txt").read_text() == f"code={code}\n"
    assert ran["Check"].stdout.count("::error ") == code
    assert (folder / "summary.md").read_text().startswith("**planner check " + ("blocked" if code else "passed"))
    assert "--body-file planner-comment.md" in (folder / "gh.txt").read_text()
    assert bash(steps["Verdict"]["run"], folder, CODE=str(code)).returncode == code


@pytest.mark.slow
@pytest.mark.parametrize(("name", "code"), [("worse", 1), ("good", 0)])
@pytest.mark.every(2)
def test_the_script_of_gitlab_checks_comments_and_ends_with_the_verdict(folders, name, code):
    folder, job = folders / name, yaml.safe_load((ROOT / "ci/gitlab.yml").read_text())["planner-check"]
    given = {key: text for key, text in job["variables"].items() if "$" not in text}
    of_runner = {
        "PLANNER_TOKEN": "t",
        "CI_MERGE_REQUEST_IID": "7",
        "CI_API_V4_URL": "https://host",
        "CI_PROJECT_ID": "1",
    }
    ran = bash("\n".join(job["script"]), folder, **{**given, **of_runner, "PLANNER_SOURCE": str(ROOT)})
    assert ran.returncode == code, ran.stderr
    assert ran.stdout.startswith("**planner check " + ("blocked" if code else "passed"))
    assert "https://host/projects/1/merge_requests/7/notes" in (folder / "curl.txt").read_text()
    assert (folder / job["artifacts"]["reports"]["junit"]).is_file()
    unsaid = bash("\n".join(job["script"]), folder, **given)
    assert (unsaid.returncode, "PLANNER_SOURCE is empty" in unsaid.stderr) == (2, True)


def test_the_page_has_the_workflow_the_job_and_the_thresholds_as_they_are_read():
    of_page = [each.text for each in blocks(DOCS / "gate.md")]
    workflow = (ROOT / "ci/workflow.yml").read_text(encoding="utf-8").partition("\n")[2]
    assert workflow.strip() in map(str.strip, of_page)
    job, check = (next(text for text in of_page if f"format: planner.{kind}/1" in text) for kind in ("job", "check"))
    assert files.parse(job, Job, "job.yaml").strategy == "best"
    assert files.parse(check, CheckFile, "check.yaml").cases["llama"].value == 0.03


def test_every_option_that_the_files_of_ci_give_is_one():
    known = typed("planner check --help", ROOT).out
    for name in ("action.yml", "gitlab.yml"):
        text = (ROOT / "ci" / name).read_text()
        command = text.partition("bin/planner")[2].partition("code=$?")[0]
        for option in [word for word in command.split() if word.startswith("--")]:
            assert option in known
