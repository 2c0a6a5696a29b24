"""What a policy wants, job by job, as actions: who starts, stops, moves, and on which GPUs."""

from collections.abc import Iterator

from planner.policies.numbering import Places, numbered, placed
from planner.policies.want import Wants
from planner.simulate import Action, Do, State


def started(state: State, wants: Wants) -> list[Action]:
    """Starts of waiting jobs on GPUs that are free; what runs is left alone."""
    return [*given(placed({number: {*gpus} for number, gpus in state.free.items()}, state.fleet, wants), state, wants)]


def decided_anew(state: State, wants: Wants) -> list[Action]:
    """Actions after which exactly the wanted jobs run, as they are wanted, and as few as can be have moved."""
    stops = [Action("stop", job, reason="others come first") for job in state.running if job not in wants]
    return [*stops, *given(numbered(state, wants), state, wants)]


def given(places: Places, state: State, wants: Wants) -> Iterator[Action]:
    """Actions of jobs that get other GPUs than they have."""
    for job, gpus in places.items():
        run, want = state.running.get(job), wants[job]
        if run is None or {*run.gpus} != {*gpus}:
            do: Do = "start" if run is None else "move" if len(run.gpus) == want.gpus else "resize"
            layout = (run or state.waiting[job]).job.layouts.get(want.kind, {}).get(want.gpus, "")
            yield Action(do, job, gpus, f"{want.reason}; {layout}" if layout else want.reason)
