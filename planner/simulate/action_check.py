"""Actions are checked before any of them happens: each against the state, and against those before it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from planner.errors import InputError
from planner.simulate.decisions import Action, JobState, State, known_seconds

LEAVES = ("stop", "move", "resize")  # actions by which a job gives its GPUs back


def require_possible(actions: Sequence[Action], state: State, decision: str) -> None:
    """Raises InputError naming the first action that cannot happen."""
    leaving = leaving_jobs(actions, state.running)
    gone = [state.running[job] for job in leaving if state.running[job].beside in {"", *leaving}]
    alone: dict[frozenset[int], str] = {}
    if any(action.do == "pack" for action in actions):
        stays = {job: run for job, run in state.running.items() if job not in leaving}
        alone = {frozenset(run.gpus): job for job, run in stays.items() if run.beside not in stays}
    check = ActionCheck(state, {gpu for run in gone for gpu in run.gpus}, set(), alone)
    seen: set[str] = set()
    for number, action in enumerate(actions):
        fault = f"job `{action.job}` is decided twice" if action.job in seen else check.fault(action)
        if fault:
            where = f"{decision} at {state.now:.9g} s (actions[{number}])"
            raise InputError(f"{action.do}: {fault}", where=where, fix="correct the action, or the policy that took it")
        seen |= {action.job} - {""}
        check.take(action)


def leaving_jobs(actions: Sequence[Action], running: Mapping[str, JobState]) -> dict[str, Action]:
    """Running jobs that give their GPUs back, by the actions by which they do."""
    return {a.job: a for a in actions if a.job in running and (a.do in LEAVES or a.do == "pack")}


def holder(gpus: Collection[int], running: Mapping[str, JobState]) -> str:
    """The job that has exactly these GPUs to itself; empty: none."""
    return next((job for job, run in running.items() if {*run.gpus} == {*gpus} and not run.beside), "")


@dataclass(frozen=True, slots=True)
class ActionCheck:
    """A state, the GPUs that are given back in it, those that earlier actions of the decision took, and who has which
    to itself after these.
    """

    state: State
    given_back: set[int]
    taken: set[int]
    alone: dict[frozenset[int], str]

    def take(self, action: Action) -> None:
        """An action that can happen: nobody else may have its GPUs."""
        self.taken.update(action.gpus)
        if action.do == "pack":
            del self.alone[frozenset(action.gpus)]
        elif action.gpus:
            self.alone[frozenset(action.gpus)] = action.job

    def fault(self, action: Action) -> str:
        """Why an action cannot happen; empty: it can."""
        if action.do == "wait":
            late = action.until > self.state.now
            return "" if late else f"{action.until:.9g} s is not after {self.state.now:.9g} s"
        waiting, running = self.state.waiting.get(action.job), self.state.running.get(action.job)
        job = waiting or running if action.do == "pack" else waiting if action.do == "start" else running
        if job is None:
            return f"no job `{action.job}` is {'waiting' if action.do in ('start', 'pack') else 'running'}"
        return "" if action.do == "stop" else self.fault_of_gpus(action, job)

    def fault_of_gpus(self, action: Action, job: JobState) -> str:
        """Why a job cannot have the GPUs of an action; empty: it can."""
        fleet, gpus = self.state.fleet, action.gpus
        waiting, running = self.state.waiting, self.state.running
        if not gpus or len({*gpus}) < len(gpus) or not all(0 <= gpu < fleet.size for gpu in gpus):
            return f"its GPUs must be different ones, at least one, from 0 to {fleet.size - 1}"
        kinds = sorted({fleet.kind_of[gpu] for gpu in gpus})
        beside = self.alone.get(frozenset(gpus), "") if action.do == "pack" else ""
        if action.do == "pack" and not beside:
            return "no job has these GPUs to itself"
        taken = [gpu for gpu in gpus if action.do != "pack" and not self.is_free(gpu)]
        if taken:
            return f"GPU {taken[0]} is not free"
        if len(kinds) > 1:
            return f"its GPUs are of several kinds, {' and '.join(kinds)}"
        if action.do in ("move", "resize") and (len(gpus) == len(job.gpus)) != (action.do == "move"):
            return f"it has {len(job.gpus)} GPUs, and would have {len(gpus)}"
        other = (waiting.get(beside) or running[beside]).job if beside else None
        known = known_seconds(job.job, kinds[0], len(gpus), other)
        return "" if known else f"how long it takes on {len(gpus)} of {kinds[0]} is not known"

    def is_free(self, gpu: int) -> bool:
        free = gpu in self.state.free[self.state.fleet.node_of[gpu]] or gpu in self.given_back
        return free and gpu not in self.taken
