"""A folder of cases, each solved again as its plan says it was made."""

import pytest

from planner import files, pipeline
from planner.callbacks import silent
from planner.check import BLOCKING, Solving, Tolerances, all_findings, check_folder, exit_code
from planner.errors import InputError
from planner.plan.plan_file import Plan
from planner.specs.base import with_fields
from planner.specs.inputs import JobOptions
from planner.why import asked_inputs
from tests.check.small_plans import categories, one_by_one, other_digest, solve, with_rows, write_job


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    """The plan of the usual job."""
    return solve(write_job(tmp_path_factory.mktemp("usual")))


@pytest.fixture
def store(tmp_path, usual):
    """Stores a case: its job, and the plan that a change makes of the solved one."""

    def stored(name, change=lambda plan: plan, job=True, **options):
        path = write_job(tmp_path / name)
        plan = change(solve(path, **options) if options else usual)
        if not job:
            path.unlink()
            plan = with_fields(plan, outcome=with_fields(plan.outcome, status="by_hand"))
        files.write(path.parent / "plan.yaml", plan)
        return tmp_path

    return stored


def check(folder):
    return pipeline.check(folder, None, Tolerances())


@pytest.mark.soak
def test_what_was_stored_is_what_is_solved(store):
    store("plain")
    store("deep/er/seeded", seed=3, effort=3, batches=2, first_row=16)
    root = store("by-hand", job=False)
    heard = []
    assert pipeline.check(root, None, Tolerances(), lambda *told: heard.append(told)) == []
    assert heard == [(0, 3, "by-hand"), (1, 3, "deep/er/seeded"), (2, 3, "plain"), (3, 3, "")]


def test_solving_worse_than_before_is_a_regression(store):
    root = store("case")
    solving = Solving(lambda inputs: one_by_one(pipeline.plan_of(inputs)), asked_inputs)
    slower = all_findings(check_folder(root, solving, Tolerances(), silent))
    assert ("regression", "case: outcome.value") in [(f.category, f.where) for f in slower]
    assert exit_code(slower) == 1


def test_changed_inputs_are_stale(store):
    findings = check(store("case", other_digest))
    assert [(f.category, f.where) for f in findings] == [("stale_inputs", "case: uses.sources.profile")]
    assert exit_code(findings) == 0


@pytest.mark.parametrize("job", [True, False])
def test_an_illegal_stored_plan_blocks_with_and_without_a_job(store, job):
    findings = check(store("case", lambda plan: with_rows(plan, plan.steps[0].micro_batches[:-1]), job=job))
    assert set(categories(findings)) == {"illegal"}
    assert findings[0].where.startswith("case: stored: uses.items.llm")
    assert exit_code(findings) == 1


def test_a_solved_plan_without_its_job_is_an_error_with_the_fix(store):
    root = store("case")
    (root / "case/job.yaml").unlink()
    with pytest.raises(InputError, match="a plan and no job to solve") as error:
        check(root)
    assert error.value.where == f"{root}/case/plan.yaml"
    assert "by_hand" in error.value.fix


def test_where_nothing_is_compared_the_gate_says_so_and_blocks(store):
    root = store("hand", job=False)
    (finding,) = check(root)
    assert finding.category == "unjudged" and "no case has a job" in finding.message
    assert exit_code([finding]) == 1
    assert pipeline.check(root, None, Tolerances(allow_unjudged=True)) == []


def test_a_plan_that_cannot_be_read_blocks_and_says_where_and_the_others_are_checked(store):
    store("good", one_by_one)
    root = store("torn")
    text = (root / "torn/plan.yaml").read_text()
    (root / "torn/plan.yaml").write_text(text.replace("zero: 3", "zero: 4"))
    findings = check(root)
    (torn,) = [f for f in findings if f.category == "illegal"]
    assert "torn/plan.yaml:" in torn.where and "layouts.llm.zero" in torn.where
    assert any(f.where.startswith("good: ") for f in findings)
    assert exit_code(findings) == 1


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("degrees: [1, 2]", "degrees: [1]", "no longer be solved: item 11 has 1295"),
        ("cluster: cpu-4", "cluster: cpu-5", "no cluster is called `cpu-5`"),
        ("degrees", "degree", "unknown key `degree`"),
    ],
)
def test_a_job_that_can_no_longer_be_solved_is_a_regression(store, before, after, says):
    root = store("case")
    path = root / "case/job.yaml"
    path.write_text(path.read_text().replace(before, after).replace("tokens_per_rank: 1600", "tokens_per_rank: 800"))
    (finding,) = check(root)
    assert finding.category == "regression"
    assert says in finding.message
    assert exit_code([finding]) == 1


def test_the_jobs_strategy_counts_and_one_that_nobody_has_is_a_regression(store):
    root = store("case", lambda plan: with_fields(plan, made=with_fields(plan.made, strategy="guessing")))
    assert {f.where for f in check(root)} == {"case: made.strategy"}
    path = root / "case/job.yaml"
    path.write_text(path.read_text() + "strategy: guessing\n")
    assert "no strategy is called `guessing`" in check(root)[0].message


def test_other_work_whose_old_job_cannot_be_solved_is_not_judged(store):
    root = store("case")
    path = root / "case/job.yaml"
    path.write_text(path.read_text().replace("batch_rows: 16", "batch_rows: 15"))

    def unable(plan):
        raise InputError("no longer")

    def found(**options):
        cases = check_folder(root, Solving(pipeline.plan_of, unable), Tolerances(**options), silent)
        return all_findings(cases)

    assert [f.category for f in found() if f.category in BLOCKING] == ["unjudged"]
    assert exit_code(found(allow_unjudged=True)) == exit_code(found(judge_changed_inputs=True)) == 0
    assert exit_code(check(root)) == 0  # as it can be


@pytest.mark.parametrize(("asks", "blocks"), [("degrees: [1, 2]", False), ("degrees: [4]", True)])
def test_of_other_work_what_the_job_asks_is_judged_by_itself(store, asks, blocks):
    """A shorter batch is quicker by far, and hides nothing."""
    root = store("case")
    path = root / "case/job.yaml"
    path.write_text(path.read_text().replace("batch_rows: 16", "batch_rows: 12").replace("degrees: [1, 2]", asks))
    findings = check(root)
    (work,) = [f for f in findings if f.where == "case: uses"]
    assert work.category == "changed_input" and work.new < work.old
    assert work.message.endswith("a sample: the data changed")
    assert exit_code(findings) == blocks
    assert any(f.message.endswith("degrees changed, for the same model, data and cluster") for f in findings) == blocks


# ----------------------------------------------------------------------------------------------------- thresholds


def thresholds(root, text):
    (root / "check.yaml").write_text(f"format: planner.check/1\n{text}")


def test_thresholds_of_a_case_go_before_those_of_its_folder_and_of_the_command(store):
    root = store("case")
    path = root / "case/job.yaml"
    path.write_text(path.read_text().replace("[1, 2]", "[4]"))  # 2.5 % slower

    def code(value=0.02):
        return exit_code(pipeline.check(root, None, Tolerances(value, gap=1.0)))

    assert (code(), code(0.05)) == (1, 0)
    thresholds(root, "value: 0.1%")
    assert code(0.05) == 1
    thresholds(root, "value: 0.1%\ncases: {case: {value: 5%}}")
    assert code() == 0


@pytest.mark.parametrize(
    ("text", "line", "message", "fix"),
    [
        ("value: 3", 2, "expected a number <= 1.0, this is `3`", "3%, where percent are meant"),
        ("value: -1%", 2, "expected a number or nothing, this is `-1%`", ""),
        ("value: -0.01", 2, "expected a number >= 0.0, this is `-0.01`", ""),
        ("values: 3%", 2, "unknown key `values`", "did you mean `value`?"),
        ("cases: {cast: {value: 3%}}", 2, "there is no case `cast`", "did you mean `case`?"),
        ("cases:\n  case: {memory: 200%}", 3, "expected a number <= 1.0, this is `2.0`", ""),
    ],
)
def test_thresholds_that_are_none_are_located_with_the_fix(store, text, line, message, fix):
    root = store("case")
    thresholds(root, text)
    with pytest.raises(InputError) as error:
        check(root)
    assert error.value.message == message
    assert error.value.where.startswith(f"{root}/check.yaml:{line}:")
    assert fix in error.value.fix


def test_a_baseline_of_a_newer_format_blocks_and_says_what_to_do(store):
    root = store("case")
    path = root / "case/plan.yaml"
    path.write_text(path.read_text().replace("planner.plan/1", "planner.plan/2", 1))
    (finding,) = check(root)
    assert finding.category == "illegal"
    assert finding.where == f"case: {path}:1:9 (format)"
    assert "fix: upgrade planner, or make the file again" in finding.message


# --------------------------------------------------------------------------------------------- updates, verdicts


@pytest.mark.slow
def test_an_update_writes_what_is_new_or_changed_and_then_nothing_differs(store):
    root = store("slow", one_by_one)
    store("same")
    write_job(root / "new")
    write_job(root / "torn").with_name("plan.yaml").write_text("format: planner.plan/1\n")
    written = pipeline.update(root)
    assert [path.parent.name for path in written] == ["new", "slow", "torn"]
    assert check(root) == []
    assert pipeline.update(root) == []


def test_unchanged_cases_are_not_solved_again_and_any_change_is(store, tmp_path):
    root, solved = store("case"), []
    kept = tmp_path / ".verdicts"

    def solve_again(inputs):
        solved.append(inputs.job.name)
        return pipeline.plan_of(inputs)

    def code(value=0.02):
        solving, tolerances = Solving(solve_again, asked_inputs), Tolerances(value)
        return exit_code(all_findings(check_folder(root, solving, tolerances, silent, kept)))

    assert [code(), code()] == [0, 0]
    assert len(solved) == 1
    code(value=0.0)
    assert len(solved) == 2
    path = root / "case/job.yaml"
    path.write_text(path.read_text().replace("[1, 2]", "[4]"))
    assert [code(), code()] == [1, 1]
    assert len(solved) == 6  # each time the job of today, and as it was


def test_folders_without_anything_to_check(store, tmp_path):
    with pytest.raises(InputError, match="no such folder"):
        check(tmp_path / "nowhere")
    (tmp_path / ".hidden").mkdir()
    write_job(tmp_path / ".hidden")
    with pytest.raises(InputError, match="holds no case"):
        check(tmp_path)
    write_job(tmp_path / "new")
    with pytest.raises(InputError, match="no plan to compare with") as error:
        check(tmp_path)
    assert error.value.fix == f"planner solve {tmp_path}/new/job.yaml -o {tmp_path}/new/plan.yaml"


def test_two_files(store, tmp_path):
    root = store("case")
    old, new = root / "case/plan.yaml", tmp_path / "new.yaml"
    files.write(new, one_by_one(files.read(old, Plan)))
    assert pipeline.check(old, old, Tolerances()) == []
    assert exit_code(pipeline.check(old, new, Tolerances())) == 1
    with pytest.raises(InputError, match="cannot read the file"):
        pipeline.check(old, tmp_path / "missing.yaml", Tolerances())


@pytest.mark.slow
def test_a_plan_of_other_lengths_is_solved_again_from_them(tmp_path):
    job, lengths = write_job(tmp_path), tmp_path / "mine.txt"
    lengths.write_text("\n".join(map(str, range(100, 400))))
    files.write(tmp_path / "plan.yaml", pipeline.solve(str(job), JobOptions(lengths=str(lengths))).plan)
    assert pipeline.check(tmp_path, None, Tolerances()) == []
    lengths.write_text("\n".join(map(str, range(200, 500))))
    assert {finding.category for finding in pipeline.check(tmp_path, None, Tolerances())} >= {"stale_inputs"}
