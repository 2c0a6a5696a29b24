"""A learned policy beside its teacher and others: traces from which nothing was learned.

**Jobs.** Gavel's trace `gavel_msr_ee9e8c_seed0.csv.gz` with its measured throughputs, for all counts that these know,
on 16 V100 and 16 P100; jobs of models without throughputs are left out. The policy learns from the first half. Ten
unseen traces are 40 consecutive jobs each of the second half, squeezed to loads of 0.6, 0.9 and 1.3 in turn:
GPU-seconds that jobs ask for over those there are. Restarts are free, or cost 120 s.

Figures: mean completion over the teacher's, the mean of ten traces, with the least and the most of them; how often the
imitation takes what its teacher takes; seconds of the processor that training takes, and a decision at most.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from time import process_time

from benchmarks.registry import Figures
from planner.errors import Infeasible
from planner.learning import TrainingPlan, train_policy
from planner.learning.episodes import Episode
from planner.policies import TEACHERS, LearnedPolicy, Wants
from planner.simulate import State
from planner.specs.base import with_fields
from planner.specs.cluster_jobs.job_records import cluster_job
from planner.specs.cluster_jobs.jobs import ClusterJob, Fleet
from planner.specs.cluster_jobs.read_jobs import read_fleet, read_jobs
from planner.workflows.scheduling import ClusterQuestion, speeds_of

TRACE, THROUGHPUTS, GPUS = "gavel_msr_ee9e8c_seed0.csv.gz", "gavel_throughputs.csv.gz", "16xv100,16xp100"
TEACHER, OTHERS = "marginal_gain", ("srtf", "drf")
RESTARTS, LOADS, JOBS, UNSEEN, ROUNDS, SEEDS = (0.0, 120.0), (0.6, 0.9, 1.3), 40, 10, 20, range(3)


def run(data: Path | None) -> Iterator[Figures]:
    if data is None:
        return
    fleet = read_fleet("", GPUS)
    jobs = known_jobs(data / "cluster", fleet)
    half = len(jobs) // 2
    for restart in RESTARTS:
        unseen = [unseen_episode(jobs[half:], fleet, restart, number) for number in range(UNSEEN)]
        taught = completions(unseen, lambda state: dict(TEACHERS[TEACHER](state)))
        for name in OTHERS:
            others = completions(unseen, lambda state, name=name: dict(TEACHERS[name](state)))  # type: ignore[misc]
            yield {"restart_s": restart, "policy": name, **over(others, taught)}
        for seed in SEEDS:
            yield from learned_figures(jobs[:half], fleet, restart, seed, unseen, taught)


def learned_figures(
    jobs: list[ClusterJob], fleet: Fleet, restart: float, seed: int, unseen: list[Episode], taught: list[float]
) -> Iterator[Figures]:
    """What a seed learns, and what that is worth."""
    start = process_time()
    plan = TrainingPlan(((*jobs,),), fleet, TEACHERS[TEACHER], TEACHER, restart, ROUNDS, seed)
    with TemporaryDirectory() as folder:
        training = train_policy(plan, Path(folder) / "training", lambda done, of, what: None)
    spent = process_time() - start
    line = training.weights.tensors["line"]
    told = {"restart_s": restart, "seed": seed, "teacher": TEACHER}
    imitation = LearnedPolicy(training.weights.with_line(0 * line))
    yield {
        **told,
        "policy": "imitation",
        "agreement": round(training.agreement, 3),
        **over(completions(unseen, imitation.wants), taught),
    }
    start = process_time()
    figures = over(completions(unseen, LearnedPolicy(training.weights).wants), taught)
    each = (process_time() - start) / sum(2 * len(episode.jobs) for episode in unseen)
    yield {**told, "policy": "learned", **figures, "training_s": round(spent), "decision_ms": round(1e3 * each, 1)}
    falls_back = LearnedPolicy(training.weights, "", lambda state: dict(TEACHERS[TEACHER](state)))
    completions(unseen, falls_back.wants)
    decisions = falls_back.learned + falls_back.fallen_back
    yield {**told, "decisions": decisions, "teachers_part": round(falls_back.fallen_back / decisions, 4)}


def known_jobs(folder: Path, fleet: Fleet) -> list[ClusterJob]:
    """The jobs of which it is known how long they take as they ask."""
    question = ClusterQuestion(folder / TRACE, gpus=GPUS, throughputs=folder / THROUGHPUTS, elastic=True)
    speeds, jobs = speeds_of(question), list[ClusterJob]()
    for record in sorted(read_jobs(question.trace).records, key=lambda record: record.submit_s):
        try:
            jobs.append(cluster_job(record, fleet, speeds, 0.0))
        except Infeasible:
            continue
    return jobs


def unseen_episode(jobs: list[ClusterJob], fleet: Fleet, restart: float, number: int) -> Episode:
    first = number * (len(jobs) - JOBS) // (UNSEEN - 1)
    part = jobs[first : first + JOBS]
    asked = sum(job.best_seconds * job.gpus for job in part) / (LOADS[number % len(LOADS)] * fleet.size)
    scale = asked / (part[-1].submit_s - part[0].submit_s)
    squeezed = [with_fields(job, submit_s=(job.submit_s - part[0].submit_s) * scale) for job in part]
    return Episode((*squeezed,), fleet, restart)


def completions(episodes: list[Episode], wants_of: Callable[[State], Wants]) -> list[float]:
    return [episode.mean_completion(episode.run(wants_of)) for episode in episodes]


def over(completion: list[float], taught: list[float]) -> Figures:
    """Over the teacher's: the mean, the least, the most, and how many are below it."""
    parts = [one / other for one, other in zip(completion, taught, strict=True)]
    shown = {"mean": mean(parts), "least": min(parts), "most": max(parts)}
    return {**{name: round(value, 4) for name, value in shown.items()}, "below": sum(part < 1 for part in parts)}
