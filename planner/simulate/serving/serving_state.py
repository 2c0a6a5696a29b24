"""What a policy of servers sees and may do, and the check of its actions before any of them happens."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from planner.costs.serving import StagePrices
from planner.errors import InputError
from planner.simulate.serving.instance import Instance
from planner.simulate.serving.setup import STAGE_SETS, ServingSetup, Stages
from planner.specs.workload.requests.request import Request


class ServingAction(NamedTuple):
    """An instance takes on other stages, or another group of requests; every term that was weighed, by its name."""

    instance: int
    stages: Stages
    group: int | None = None  # None: as before
    reason: str = ""
    terms: tuple[tuple[str, float], ...] = ()


class InstanceView(NamedTuple):
    """An instance as it is."""

    number: int
    stages: Stages
    group: int
    turning: bool  # about to take on other stages
    idle: bool
    answering: tuple[int, ...]  # numbers of requests
    kv_used: int  # tokens
    kv_room: int


@dataclass(frozen=True, slots=True)
class ServingState:
    """What a policy sees; requests are numbers in order of arrival."""

    now: float
    setup: ServingSetup
    prices: StagePrices
    instances: tuple[InstanceView, ...]
    arrived: Sequence[Request]  # since the policy was last asked
    to_encode: tuple[int, ...]  # requests that wait, in no order
    to_prefill: tuple[int, ...]
    to_decode: tuple[int, ...]
    ended: tuple[int, int]  # requests so far, and tokens of their answers
    request: Callable[[int], Request]  # of a number that stands in this state


ServingDecide = Callable[[ServingState], Iterable[ServingAction]]


def view_of(instance: Instance, idle: bool) -> InstanceView:
    """What a policy sees of an instance."""
    return InstanceView(
        instance.number,
        instance.stages,
        instance.group,
        instance.turning is not None,
        idle,
        (*(number for _, number in instance.answers), *instance.joining),
        instance.kv_used,
        instance.kv_room,
    )


def require_possible_turns(actions: Sequence[ServingAction], instances: Sequence[Instance], now: float) -> None:
    """Raises InputError naming the first action that cannot happen, or after all of which nobody has a stage."""
    fix = "correct the action, or the policy that took it"
    seen, after = set[int](), {each.number: each.turning or each.stages for each in instances}
    for number, action in enumerate(actions):
        fault = ""
        if not 0 <= action.instance < len(instances):
            fault = f"there is no instance {action.instance}"
        elif action.stages not in STAGE_SETS:
            fault = f"{action.stages!r} are no stages"
        elif action.instance in seen:
            fault = f"instance {action.instance} is decided about twice"
        elif instances[action.instance].turning:
            fault = f"instance {action.instance} is already about to change"
        if fault:
            raise InputError(fault, where=f"at {now:.9g} s (actions[{number}])", fix=fix)
        seen.add(action.instance)
        after[action.instance] = action.stages
    lost = {stage for each in instances for stage in each.stages} - {stage for each in after.values() for stage in each}
    if actions and lost:
        raise InputError(f"no instance would have stage {min(lost)}", where=f"at {now:.9g} s", fix=fix)
