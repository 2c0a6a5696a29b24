"""What a policy of servers sees and may do, and the check of its actions before any of them happens."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from planner.costs.serving import StagePrices
from planner.errors import InputError
from planner.simulate.serving.instance import IDLE, Instance
from planner.simulate.serving.setup import STAGE_SETS, ServingSetup, Stages
from planner.specs.workload.requests.request import Request


class ServingAction(NamedTuple):
    """Instances take on other stages: one for one, or as many of another tensor-parallel degree as their GPUs make."""

    instances: tuple[int, ...]
    stages: Stages
    tp: int = 0  # 0: as before
    reason: str = ""
    terms: tuple[tuple[str, float], ...] = ()  # everything that was weighed, by its name


class InstanceView(NamedTuple):
    """An instance as it is."""

    number: int
    stages: Stages
    tp: int
    turning: bool  # about to take on other stages
    idle: bool
    answering: tuple[int, ...]  # numbers of requests
    kv_used: int  # tokens


@dataclass(frozen=True, slots=True)
class ServingState:
    """What a policy sees; requests are numbers in order of arrival."""

    now: float
    setup: ServingSetup
    prices: Mapping[int, StagePrices]  # by tensor-parallel degree
    instances: tuple[InstanceView, ...]
    arrived: Sequence[Request]  # since the policy was last asked
    waiting: Mapping[str, tuple[int, ...]]  # stage → requests that wait for it, in no order
    ended: tuple[int, int]  # requests so far; and tokens of all answers so far, of those that go on too
    request: Callable[[int], Request]  # of a number that stands in this state


ServingDecide = Callable[[ServingState], Iterable[ServingAction]]


def view_of(instance: Instance) -> InstanceView:
    """What a policy sees of an instance."""
    return InstanceView(
        instance.number,
        instance.stages,
        instance.prices.tp,
        instance.turning is not None,
        instance.doing == IDLE,
        (*(number for _, number in instance.answers), *instance.joining),
        instance.kv_used,
    )


def require_possible_turns(
    actions: Sequence[ServingAction], instances: Sequence[Instance], degrees: Collection[int], now: float
) -> None:
    """Raises InputError naming the first action that cannot happen, or after all of which nobody has a stage."""
    fix = "correct the action, or the policy that took it"
    after = {each.number: each.turning.spec.stages if each.turning else each.stages for each in instances}
    had, seen = {stage for each in instances for stage in each.stages}, set[int]()
    for number, action in enumerate(actions):
        fault = fault_of(action, instances, degrees, seen)
        if fault:
            raise InputError(fault, where=f"at {now:.9g} s (actions[{number}])", fix=fix)
        seen |= {*action.instances}
        after |= dict.fromkeys(action.instances, action.stages)
    lost = had - {stage for each in after.values() for stage in each}
    if actions and lost:
        raise InputError(f"no instance would have stage {min(lost)}", where=f"at {now:.9g} s", fix=fix)


def fault_of(
    action: ServingAction, instances: Sequence[Instance], degrees: Collection[int], seen: Collection[int]
) -> str:
    """Why an action cannot happen, after those about instances that were seen; empty: it can."""
    if action.stages not in STAGE_SETS:
        return f"{action.stages!r} are no stages"
    if not action.instances or len({*action.instances}) < len(action.instances):
        return "its instances must be different ones, at least one"
    for each in action.instances:
        if not 0 <= each < len(instances) or not instances[each].stages:
            return f"there is no instance {each}"
        if each in seen:
            return f"instance {each} is decided about twice"
        if instances[each].turning:
            return f"instance {each} is already about to change"
    gpus = sum(instances[each].prices.tp for each in action.instances)
    tp = action.tp or instances[action.instances[0]].prices.tp
    if tp not in degrees or gpus % tp:
        return f"no instances of tensor-parallel degree {tp} have exactly {gpus} GPUs"
    return ""
