"""What packing two jobs on a GPU gains, and how few jobs move: 200 jobs of a trace of Gavel's on 64 V100.

Jobs of `gavel_msr_ee9e8c_seed0.csv.gz` for which a throughput on V100 was measured, 200 of them drawn by a seed, in the
order of the trace; none takes longer than three days. Pairs as measured, of jobs of one GPU. All are there at time 0,
or are submitted as in the trace, all times scaled alike to a load: GPU-seconds over 64 GPUs from the first to the last.
Restarts are free. Each order is beside itself without packing.

Moves are of jobs that run before and after a decision with as many GPUs; `own_numbering`: where each decision places
its jobs from nothing. Seconds of the processor that one of the first 200 decisions takes: 256
GPUs, and 2,000 of the jobs at once.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from time import process_time

from benchmarks.registry import Figures
from planner.errors import Infeasible
from planner.policies import Want, placed, policy, schedule_jobs
from planner.simulate import Action, Event, State, run_jobs
from planner.specs.base import with_fields
from planner.specs.cluster_jobs.actions_file import PolicyChoice
from planner.specs.cluster_jobs.job_records import Speeds, cluster_job
from planner.specs.cluster_jobs.job_tables import read_throughputs, table_jobs
from planner.specs.cluster_jobs.jobs import ClusterJob, Fleet
from planner.specs.cluster_jobs.read_jobs import read_fleet

LONGEST, JOBS, SEEDS, LOADS = 3 * 86_400.0, 200, range(3), (None, 0.7, 0.9, 1.1, 1.3, 1.5)
ORDERS = {
    "fifo": PolicyChoice(),
    "srtf": PolicyChoice(order="srtf", preempt=True),
    "las": PolicyChoice(order="las", preempt=True),
    "srtf, not preempting": PolicyChoice(order="srtf"),
}
MANY = 2_000


def run(data: Path | None) -> Iterator[Figures]:
    if data is None:
        return
    able = known_jobs(data / "cluster")
    for name, choice in ORDERS.items():
        for load in LOADS:
            gains = [gain_of_packing(drawn(able, seed, JOBS, load), choice) for seed in SEEDS]
            yield {"order": name, "load": load or "all at once", "times_better": gains}
    for name in ("srtf", "las"):
        fleet = read_fleet("", "64xv100")
        watch = Watch(ORDERS[name], fleet)
        run_jobs(drawn(able, 0, JOBS, None), fleet, watch)
        yield {"order": name, "moves": watch.moves, "own_numbering": watch.others}
    for place in ("fastest", "pack"):
        fleet = read_fleet("", "256xv100")
        watch = Watch(with_fields(ORDERS["las"], place=place), fleet, most=200)
        with suppress(Enough):
            run_jobs(drawn(able, 0, MANY, None), fleet, watch)
        yield {"gpus": 256, "jobs": MANY, "place": place, "longest_s": round(watch.longest, 3)}


def known_jobs(folder: Path) -> list[ClusterJob]:
    """Jobs of the trace that can run on V100."""
    fleet, speeds = read_fleet("", "64xv100"), Speeds(read_throughputs(folder / "gavel_throughputs.csv.gz"))
    found = []
    for record in table_jobs(folder / "gavel_msr_ee9e8c_seed0.csv.gz"):
        try:
            found.append(cluster_job(record, fleet, speeds, 0.0))
        except Infeasible:
            continue
    return found


def drawn(able: list[ClusterJob], seed: int, count: int, load: float | None) -> list[ClusterJob]:
    """So many jobs, submitted at a load; None: all at once. More than there are: some twice."""
    jobs = Random(seed).sample(able * -(-count // len(able)), count)
    jobs.sort(key=lambda job: job.submit_s)
    seconds = [min(LONGEST, job.best_seconds) for job in jobs]
    used = sum(each * job.gpus for each, job in zip(seconds, jobs, strict=True))
    first, last = jobs[0].submit_s, jobs[-1].submit_s
    scale = used / load / 64 / (last - first) if load else 0.0
    return [
        with_fields(job, id=str(n), seconds={"v100": {job.gpus: each}}, submit_s=(job.submit_s - first) * scale)
        for n, (job, each) in enumerate(zip(jobs, seconds, strict=True))
    ]


def gain_of_packing(jobs: list[ClusterJob], choice: PolicyChoice) -> float:
    """The mean completion without packing, over that with it."""
    runs = (schedule_jobs(jobs, read_fleet("", "64xv100"), with_fields(choice, place=p)) for p in ("fastest", "pack"))
    alone, packs = (each.outcome.mean_completion_s for each in runs)
    return round(alone / packs, 3)


class Enough(Exception):
    """So many decisions were seen as were asked for."""


class Watch:
    """A policy, watched: moves, those with numbers of its own for each decision, and the longest decision."""

    def __init__(self, choice: PolicyChoice, fleet: Fleet, most: int = 0) -> None:
        self.decide, self.most, self.seen = policy(choice, fleet), most, 0
        self.moves, self.others, self.longest = 0, 0, 0.0
        self.own: dict[str, tuple[int, ...]] = {}

    def __call__(self, state: State, event: Event) -> Iterable[Action]:
        start = process_time()
        actions = [*self.decide(state, event)]
        self.longest, self.seen = max(self.longest, process_time() - start), self.seen + 1
        if self.seen == self.most:
            raise Enough
        before = {job: run.gpus for job, run in state.running.items()}
        after = before | {each.job: each.gpus for each in actions if each.job}
        after = {job: gpus for job, gpus in after.items() if gpus}
        own = placed({n: {*node.gpus} for n, node in enumerate(state.fleet.nodes)}, state.fleet, wants_of(state, after))
        self.moves += sum({*before[job]} != {*gpus} for job, gpus in after.items() if job in before)
        self.others += sum({*self.own[job]} != {*own[job]} for job in own if job in before and job in self.own)
        self.own = own
        return actions


def wants_of(state: State, places: dict[str, tuple[int, ...]]) -> dict[str, Want]:
    """What runs on these GPUs, as a policy wants it: of two on one GPU, one."""
    once = {gpus: job for job, gpus in places.items()}
    return {job: Want(state.fleet.kind_of[gpus[0]], len(gpus), "") for gpus, job in once.items()}
