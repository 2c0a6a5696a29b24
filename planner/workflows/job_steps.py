"""Seconds of a step of jobs whose model is named, by planner's own search, once for each model, kind and count."""

import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeVar

from planner import pipeline
from planner.errors import Infeasible
from planner.layouts import fixed_fields, layout_problem, quickest_cell
from planner.plan.descriptions import layout_text
from planner.solve_job import read_job
from planner.specs.cluster_jobs.job_records import JobRecord, JobStep, StepSearch
from planner.specs.inputs import JobOptions
from planner.specs.parallelism import Parallelism
from planner.workflows.questions import USUAL_RANK_SAMPLES, Question, write_question

Found = TypeVar("Found")


def step_search(seq: int, elastic: bool) -> StepSearch:
    """Steps of as many samples as are usual for what the job asks for. `elastic`: of cells, as there are many."""
    search = cell_step if elastic else searched_step

    @cache
    def searched(model: str, kind: str, count: int, batch: int) -> JobStep | None:
        return step_of(Question(batch, model, gpus=f"{count}x{kind}", seq=seq), search)

    def of_record(record: JobRecord, kind: str, count: int) -> JobStep | None:
        return searched(record.model, kind, count, USUAL_RANK_SAMPLES * record.gpus)

    return of_record


def step_of(question: Question, search: Callable[[str], Found]) -> Found | None:
    """What is found of a question's job file; None: nothing fits. Raises InputError."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            return search(str(write_question(question, Path(folder) / "job")))
        except Infeasible:
            return None


def searched_step(job: str) -> JobStep:
    """The step of the plan of a job. Raises Infeasible."""
    plan = pipeline.solve(job, JobOptions(effort=1)).plan
    return JobStep(plan.prediction.step_seconds, ", ".join(map(layout_text, plan.layouts.values())))


def cell_step(job: str, fixed: Parallelism | None = None) -> JobStep:
    """The step of a job's quickest cell; `fixed`: fields of its layout. Raises Infeasible."""
    inputs = read_job(job, JobOptions(effort=1))
    cell = quickest_cell(layout_problem(inputs), fixed or fixed_fields(inputs))
    if cell is None:
        raise Infeasible("no cell of this job fits", where=job, fix="more ranks")
    return JobStep(cell.seconds, layout_text(cell.layout))
