"""Recorded decisions, taken again: the same actions at the same events."""

from collections.abc import Iterable, Sequence
from math import isclose

from planner.errors import InputError
from planner.simulate import Action, Decide, Event, State
from planner.specs.cluster_jobs.actions_file import RecordedDecision


def replayed(decisions: Sequence[RecordedDecision], name: str) -> Decide:
    """A policy that takes them; `name`: of their file in errors. Raises InputError, as the policy does, where an event
    comes at another time than the one that was recorded.
    """
    by_number = {decision.event: decision for decision in decisions}
    seen = iter(range(10**12))

    def decide(state: State, event: Event) -> Iterable[Action]:
        number = next(seen)
        recorded = by_number.get(number)
        if recorded is None:
            return ()
        if recorded.at_s != event.at:
            close = "" if not isclose(recorded.at_s, event.at) else ", by rounding"
            message = f"event {number} is at {event.at!r} s{close}, and was recorded at {recorded.at_s!r} s"
            raise InputError(message, where=f"{name} (decisions)", fix="record the decisions again")
        return [Action(each.do, each.job, (*each.gpus,), each.reason, each.until_s) for each in recorded.actions]

    return decide
