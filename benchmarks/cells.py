"""Cells beside elastic counts and counts as they are asked for: 150 jobs on 32 A6000 and 32 A30.

**Cluster.** Two GPUs of a node share PCIe and one adapter of 100 Gb/s, as profiles/devices has these cards.

**Jobs.** Rows of Philly's trace (`philly_jobs_vcs_a.csv.gz`) that last more than 600 s; 95 % of these ask for one GPU.
A seed draws 150 of them, and for each a model and an own kind, each as likely:

    model       GPT-3's XL, 2.7B, 6.7B or 13B (arXiv 2005.14165, table 2.1): 1.3 to 13 billion parameters
    own count   the row's GPUs times the least power of two of its own kind on which the model fits by data parallelism
                alone, 32 at most; ZeRO, recomputation and offload are all allowed, in this and in every column
    step        64 sequences of 2,048 tokens, whatever runs it: the global batch stays
    steps       the row's duration over the seconds of a step on its own kind and count, by data parallelism alone
    submitted   as the row was, all times scaled alike to the load

**Load**: GPU-seconds that the jobs take on their own kinds and counts, over 64 GPUs from the first to the last
submission: 0.6, 0.9 and 1.3. A restart costs 120 s. Two orders: FIFO with backfilling, and SRTF with preemption.

**Columns**, all in that order:

    own       its own kind and count, data parallelism alone: each job lasts as long as its row
    kind      any kind at its count, data parallelism alone
    layout    any kind at its count, the layout of the quickest cell
    elastic   any kind and count, data parallelism alone
    cells     any kind and count, the layout of the quickest cell

`elastic` and `cells` are the same policy on other tables. Figures: mean and 99th percentile of completion; the median
over seeds of how much less `cells` has. The estimator of cells is compared with planner's full search of each model,
kind and count, in seconds of a step and in layouts priced.
"""

import csv
import gzip
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import product
from pathlib import Path
from random import Random
from statistics import mean, median
from tempfile import mkdtemp
from time import process_time

from benchmarks.registry import Figures
from planner.layouts import fixed_fields, layout_problem, layouts_of, quickest_cell
from planner.policies import Schedule, policy, schedule_jobs
from planner.simulate import Action, Event, State, run_jobs
from planner.solve_job import read_job
from planner.specs.base import with_fields
from planner.specs.cluster_jobs.actions_file import PolicyChoice
from planner.specs.cluster_jobs.job_records import JobStep
from planner.specs.cluster_jobs.jobs import ClusterJob, Fleet
from planner.specs.hardware.cluster import RankKind
from planner.specs.inputs import JobOptions
from planner.specs.parallelism import Parallelism
from planner.workflows.job_steps import cell_step, searched_step, step_of
from planner.workflows.questions import Question

TRACE = "philly_jobs_vcs_a.csv.gz"
KINDS, COUNTS, PER_NODE, NICS = ("a6000", "a30"), (1, 2, 4, 8, 16, 32), 2, "1x100Gb"
MODELS = {"1.3b": (24, 2048, 16), "2.7b": (32, 2560, 32), "6.7b": (32, 4096, 32), "13b": (40, 5120, 40)}
BATCH, SEQ, JOBS, LEAST_SECONDS, RESTART = 64, 2048, 150, 600.0, 120.0
LOADS, SEEDS = (0.6, 0.9, 1.3), range(5)
DATA_ALONE = Parallelism(tp=1, cp=1, pp=1)
ORDERS = {
    "backfill": PolicyChoice(restart_s=RESTART),
    "srtf": PolicyChoice(order="srtf", preempt=True, restart_s=RESTART),
}
FLEET = Fleet([RankKind(kind=kind, count=32, per_node=PER_NODE) for kind in KINDS])
COLUMNS = ("own", "kind", "layout", "elastic", "cells")
Table = dict[str, dict[int, float]]  # kind → GPUs → seconds of a step
MODEL_FILE = """format: planner.model/1
name: gpt3-{name}
source: GPT-3 (arXiv 2005.14165), table 2.1
modules:
  llm:
    {{kind: decoder, layers: {layers}, hidden: {hidden}, heads: {heads}, ffn: {ffn}, vocab: 50257, gated: false,
     norm: layer, bias: all, positions: learned, max_positions: {seq}, tied: true}}
"""


def run(data: Path | None) -> Iterator[Figures]:
    yield estimator_figures()
    if data is None:
        return
    rows = long_rows(data / "cluster" / TRACE)
    yield {"jobs": 200, **decision_seconds(jobs_of(rows, 100.0, 0, data_alone=False, count=200))}
    for order, choice in ORDERS.items():
        for load in LOADS:
            means = []
            for seed in SEEDS:
                outcomes = {name: each.outcome for name, each in columns(rows, load, seed, choice).items()}
                means.append({name: each.mean_completion_s for name, each in outcomes.items()})
                tails = {f"{name}_p99": round(each.p99_completion_s) for name, each in outcomes.items()}
                seconds = {name: round(mean) for name, mean in means[-1].items()}
                yield {"order": order, "load": load, "seed": seed, **seconds, **tails}
            less = {name: [1 - each["cells"] / each[name] for each in means] for name in COLUMNS[:-1]}
            shown = {f"less_than_{name}": round(median(shares), 3) for name, shares in less.items()}
            yield {"order": order, "load": load, **shown, "least_less_than_elastic": round(min(less["elastic"]), 3)}


def estimator_figures() -> Figures:
    """Cells beside planner's full search, wherever that finds a plan: seconds of a step, and layouts priced."""
    found = [step_of(question_of(*of), compared) for of in product(MODELS, KINDS, COUNTS)]
    errors = [error for error, _, _ in filter(None, found)]
    priced, every = (sum(each[place] for each in found if each) for place in (1, 2))
    shown = {"worst": max(errors, key=abs), "median": median(map(abs, errors)), "priced": priced / every}
    return {"estimates": len(errors), **{name: round(value, 4) for name, value in shown.items()}}


def compared(job: str) -> tuple[float, int, int]:
    """By how much the estimate is more than the full search; layouts that it prices, and those of the whole space."""
    inputs = read_job(job, JobOptions(effort=1))
    problem, fixed = layout_problem(inputs), fixed_fields(inputs)
    full, cell = searched_step(job), quickest_cell(problem, fixed)
    assert cell
    return cell.seconds / full.seconds - 1, cell.priced, len(layouts_of(problem, fixed)["tp"])


def decision_seconds(jobs: list[ClusterJob]) -> Figures:
    """Seconds of the processor that decisions take while these jobs are there."""
    decide, spent = policy(PolicyChoice(order="srtf", place="cells", restart_s=RESTART), FLEET), list[float]()

    def timed(state: State, event: Event) -> Iterable[Action]:
        start = process_time()
        actions = [*decide(state, event)]
        spent.append(process_time() - start)
        return actions

    run_jobs(jobs, FLEET, timed, RESTART)
    return {"decisions": len(spent), "mean_s": round(mean(spent), 4), "longest_s": round(max(spent), 3)}


def long_rows(path: Path) -> list[tuple[float, float, int]]:
    """Submission, duration and GPUs of the rows that last long enough."""
    with gzip.open(path, "rt") as text:
        read = [(float(r["submit_s"]), float(r["duration_s"]), int(r["num_gpus"])) for r in csv.DictReader(text)]
    return [row for row in read if row[1] > LEAST_SECONDS and row[2]]


def columns(rows: list[tuple[float, float, int]], load: float, seed: int, choice: PolicyChoice) -> dict[str, Schedule]:
    """The schedule of each column."""
    elastic, asked = with_fields(choice, place="cells", preempt=False), choice
    alone, cells = jobs_of(rows, load, seed, data_alone=True), jobs_of(rows, load, seed, data_alone=False)
    own = [with_fields(job, seconds={job.user: job.seconds[job.user]}) for job in alone]
    runs = zip(COLUMNS, (own, alone, cells, alone, cells), (asked, asked, asked, elastic, elastic), strict=True)
    return {name: schedule_jobs(jobs, FLEET, how) for name, jobs, how in runs}


def jobs_of(
    rows: list[tuple[float, float, int]], load: float, seed: int, data_alone: bool, count: int = JOBS
) -> list[ClusterJob]:
    """The jobs of a seed, with the seconds of one of the two tables; their own kind stands in place of a user."""
    draw, drawn, used = Random(seed), [], 0.0
    for submit, duration, gpus in sorted(draw.sample(rows, count)):
        model, kind = draw.choice([*MODELS]), draw.choice(KINDS)
        alone = steps_of(model, True)[kind]
        own = min(32, gpus * min(alone))
        drawn.append((submit, model, kind, own, duration / alone[own]))
        used += duration * own
    first, last = drawn[0][0], drawn[-1][0]
    scale = used / (load * 64) / (last - first)
    jobs = []
    for number, (submit, model, kind, own, steps) in enumerate(drawn):
        table = steps_of(model, data_alone)
        seconds = {k: {n: steps * each for n, each in by_count.items()} for k, by_count in table.items()}
        submit_s = (submit - first) * scale
        jobs.append(ClusterJob(id=str(number), submit_s=submit_s, gpus=own, seconds=seconds, user=kind))
    return jobs


@cache
def steps_of(model: str, data_alone: bool) -> Table:
    """Seconds of a step by kind and count."""
    found = {kind: {n: step_on(model, kind, n, DATA_ALONE if data_alone else None) for n in COUNTS} for kind in KINDS}
    return {kind: {n: step.seconds for n, step in steps.items() if step} for kind, steps in found.items()}


def step_on(model: str, kind: str, count: int, fixed: Parallelism | None) -> JobStep | None:
    """The step of a model's quickest cell."""
    return step_of(question_of(model, kind, count), lambda job: cell_step(job, fixed))


def question_of(model: str, kind: str, count: int) -> Question:
    nodes = -(-count // PER_NODE)
    return Question(BATCH, model_file(model), gpus=f"{count}x{kind}", nodes=nodes, nics=NICS, seq=SEQ)


@cache
def model_file(name: str) -> str:
    layers, hidden, heads = MODELS[name]
    path = Path(mkdtemp()) / f"gpt3-{name}.yaml"
    text = MODEL_FILE.format(name=name, layers=layers, hidden=hidden, heads=heads, ffn=4 * hidden, seq=SEQ)
    path.write_text(text)
    return str(path)
