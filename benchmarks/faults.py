"""Faults done to runs of a small model on 2 and 4 ranks, at random moments; and healthy runs with slow ranks.

None is left hanging, no process is left behind, and what is resumed ends with the bits of a run to which nothing was
done. A stopped rank is named in time, and a slow one is not.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import get_args

from benchmarks.elastic_faults import elastic_plan, lose_rank
from benchmarks.fault_launcher import Place, Slowness
from benchmarks.fault_runs import Fault, FaultKind, Launcher, accuses, do_fault, launchers, uninterrupted
from benchmarks.registry import Figures
from planner.files import write
from planner.plan.plan_file import Plan
from tests.runtime.training_worlds import spread

RANKS = (2, 4)
COUNTS: dict[FaultKind, int] = {"stop": 20, "kill": 10, "terminate": 6, "interrupt": 6, "exception": 6,
                                "full disk": 6, "launcher death": 6}  # fmt: skip
FAULTS = [Fault(kind, RANKS[number % 2], number) for kind, count in COUNTS.items() for number in range(count)]
ELASTIC_RUNS = 8
SLOW_RUNS, SLEEP_S = 50, 3.0  # three times what `accuses` lets any task take


def run(data: Path | None) -> Iterator[Figures]:
    with TemporaryDirectory() as folder, launchers(Path(folder) / "ranks") as living:
        yield from faults(living, Path(folder))
        yield from slow_runs(living, Path(folder))
        yield from lost_ranks(living, Path(folder))


def faults(living: Callable[[], Launcher], folder: Path) -> Iterator[Figures]:
    """Figures of every fault, and of all together."""
    plans = {ranks: small_plan(ranks, folder) for ranks in RANKS}
    whole = {ranks: uninterrupted(living, plan, folder / f"whole-{ranks}") for ranks, plan in plans.items()}
    failed, named, left = 0, [0.0], [0.0]
    for number, fault in enumerate(FAULTS):
        done = do_fault(living, fault, plans[fault.ranks], folder / str(number), whole[fault.ranks])
        wrong = done.wrong(fault)
        failed += bool(wrong)
        if fault.kind == "stop" and done.named_s is not None:
            named.append(done.named_s)
            left.append(done.ended_s - done.named_s)
        yield {"fault": fault.name, "code": done.code, "ended_s": round(done.ended_s, 2), "wrong": wrong}
    most = {"named_after_s_at_most": round(max(named), 2), "ended_after_that_s_at_most": round(max(left), 2)}
    yield {"faults": len(FAULTS), "failed": failed, **most}


def slow_runs(living: Callable[[], Launcher], folder: Path) -> Iterator[Figures]:
    """How many healthy runs are accused in which a rank is slow for a while."""
    accused = []
    for number, slowness in enumerate(slow_ranks(SLOW_RUNS)):
        ranks = RANKS[number % 2]
        said = accuses(living, slowness, small_plan(ranks, folder), folder / f"slow-{number}")
        accused += [f"{slowness}: {said}"] if said else []
    yield {"slow_runs": SLOW_RUNS, "accused": len(accused), "said": accused}


def lost_ranks(living: Callable[[], Launcher], folder: Path) -> Iterator[Figures]:
    """How many elastic runs end otherwise than they should, and how long nobody trained."""
    plan, losses = elastic_plan(folder), []
    for seed in range(ELASTIC_RUNS):
        kind: FaultKind = "stop" if seed % 2 else "kill"
        losses.append(lose_rank(living, kind, seed, plan, folder / f"elastic-{seed}"))
        yield {"elastic": kind, "seed": seed, "again_s": losses[-1].again_s, "wrong": list(losses[-1].wrong)}
    again = [each.again_s for each in losses if each.again_s is not None]
    yield {"elastic_runs": len(losses), "failed": sum(bool(each.wrong) for each in losses),
           "again_after_s_at_most": round(max(again, default=0.0), 2)}  # fmt: skip


def slow_ranks(count: int) -> Iterator[Slowness]:
    """One place after the other, on one rank after the other."""
    places: tuple[Place, ...] = get_args(Place)
    for number in range(count):
        yield Slowness(f"rank {number // len(places) % 2}", places[number % len(places)], SLEEP_S)


def small_plan(ranks: int, folder: Path) -> Path:
    """A plan file: data parallel on 2 ranks, on 4 in a pipeline besides."""
    path = folder / f"plan-{ranks}.yaml"
    write(path, two_ranks() if ranks == 2 else four_ranks())
    return path


def two_ranks() -> Plan:
    return spread(2, dp=2, zero=1, dtype="float32", rows=[[(0,), (1,)]] * 2)


def four_ranks() -> Plan:
    return spread(4, dp=2, pp=2, zero=1, dtype="float32", order="1f1b", rows=[[(0, 2), (1, 3)]] * 2)
