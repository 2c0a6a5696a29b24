"""The table of policies, and what decides as it was chosen from it."""

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from planner.errors import InputError
from planner.policies.cells import CellPolicy
from planner.policies.fair import Shares, dominant_shares, makespan_shares, max_min_shares
from planner.policies.joint import JointPolicy
from planner.policies.learned import LearnedPolicy
from planner.policies.matching import PackingPolicy
from planner.policies.orders import ORDERS, Order, least_left
from planner.policies.policy_weights import read_policy
from planner.policies.queue_policy import Place, QueuePolicy, fastest_kind, first_kind
from planner.policies.rounds import GAVEL, RoundLength, RoundPolicy
from planner.policies.want import Want, Wants
from planner.policies.wanted_actions import decided_anew, started
from planner.simulate import Decide, Event, State
from planner.specs.cluster_jobs.actions_file import PolicyChoice
from planner.specs.cluster_jobs.jobs import Fleet

PLACES: Mapping[str, Place] = {"fastest": fastest_kind, "first": first_kind}
GAVEL_ROUNDS = "gavel"
JOINT, CELLS, PACK = "joint", "cells", "pack"  # places of all jobs together, of which the last goes with another
MARGINAL_GAIN = CellPolicy(Order("least count, ends soonest", least_left))
SHARES: Mapping[str, Callable[[State], Shares]] = {"makespan": makespan_shares, "max_min": max_min_shares}
LEARNED = "learned"
WANTS: Mapping[str, Callable[[State], Wants]] = {"drf": dominant_shares, "marginal_gain": MARGINAL_GAIN.wants}
PLACE_NAMES = (*PLACES, JOINT, CELLS, PACK)


def in_order(order: Order) -> Callable[[State], Iterable[tuple[str, Want]]]:
    """Whom an order gives what it asks for, running jobs among the others."""
    queue = QueuePolicy(order, fastest_kind, preempt=True)
    return lambda state: queue.wants(state).items()


TEACHERS: Mapping[str, Callable[[State], Iterable[tuple[str, Want]]]] = {  # whom they give what, one after the other
    "marginal_gain": MARGINAL_GAIN.taken,
    "drf": lambda state: dominant_shares(state).items(),
    **{name: in_order(order) for name, order in ORDERS.items()},
}


def policy_names() -> tuple[str, ...]:
    """All that an order may be called."""
    return (*ORDERS, *WANTS, *SHARES)


def anew(wants_of: Callable[[State], Wants]) -> Decide:
    """Decides about all jobs at each event that changes who is there."""
    return lambda state, event: decided_anew(state, wants_of(state)) if event.changes else ()


def starting(wants_of: Callable[[State, Event], Wants]) -> Decide:
    """Starts waiting jobs at such events, and leaves alone what runs."""
    return lambda state, event: started(state, wants_of(state, event)) if state.waiting and event.changes else ()


def policy(choice: PolicyChoice, fleet: Fleet) -> Decide:
    """What decides as it was chosen. Raises InputError where names do not go together, and for a learned policy that
    cannot be read or is of another cluster.
    """
    require_known(choice)
    if choice.order == LEARNED:
        return learned_policy(choice, fleet)
    length = GAVEL if choice.rounds == GAVEL_ROUNDS else RoundLength(choice.round_seconds)
    if choice.order in SHARES:
        return RoundPolicy(SHARES[choice.order], length)
    if choice.order in WANTS:
        wants_of: Callable[[State], Wants] = WANTS[choice.order]
    else:
        queue = queue_policy(choice)
        anew_too = choice.preempt or choice.counts_change
        if PACK in choice.places:
            return PackingPolicy(ORDERS[choice.order], queue.wants, anew_too)
        if not anew_too and not choice.rounds:
            return starting(queue.wants)
        wants_of = queue.wants
    return RoundPolicy(whole_shares(wants_of), length, fill=False) if choice.rounds else anew(wants_of)


def learned_policy(choice: PolicyChoice, fleet: Fleet) -> LearnedPolicy:
    """The policy of a file, with its teacher beside it. Raises InputError."""
    if not choice.weights:
        fix = "planner schedule TRACE --policy FILE, which planner train-policy writes"
        raise InputError("the order `learned` is that of a policy's file", where="--order", fix=fix)
    weights, sha256 = read_policy(Path(choice.weights), (*fleet.counts,))
    if choice.weights_sha256 not in ("", sha256):
        message = f"this policy is not the one that decided: its SHA-256 begins with {sha256[:12]}"
        raise InputError(message, where=choice.weights, fix=f"the file whose SHA-256 is {choice.weights_sha256}")
    teacher = TEACHERS[weights.teacher]
    return LearnedPolicy(weights, sha256, lambda state: dict(teacher(state)))


def queue_policy(choice: PolicyChoice) -> CellPolicy | JointPolicy | QueuePolicy:
    """What takes jobs in an order; in rounds all are decided about anew."""
    order, preempt = ORDERS[choice.order], choice.preempt or bool(choice.rounds)
    (place,) = [each for each in choice.places if each != PACK] or ["fastest"]
    if place == CELLS:
        return CellPolicy(order)
    if place == JOINT:
        return JointPolicy(order, preempt)
    return QueuePolicy(order, PLACES[place], choice.backfill, preempt)


def whole_shares(wants_of: Callable[[State], Wants]) -> Callable[[State], Shares]:
    """Who is wanted, as shares of all the time."""
    return lambda state: {(job, want.kind): 1.0 for job, want in wants_of(state).items()}


def require_known(choice: PolicyChoice) -> None:
    """Raises InputError for a policy that there is not, or that cannot be."""
    named = [
        ("order", choice.order, (*policy_names(), LEARNED)),
        *(("place", place, PLACE_NAMES) for place in choice.places),
    ]
    for what, name, known in named:
        if name not in known:
            raise InputError(f"no {what} is called `{name}`", where=f"--{what}", fix=f"one of {', '.join(known)}")
    if len({*choice.places} - {PACK}) > 1 or len({*choice.places}) < len(choice.places):
        message = f"the places {choice.place} say twice which kind a job gets"
        raise InputError(message, where="--place", fix=f"one place, or one and {PACK}, such as {CELLS},{PACK}")
    if JOINT in choice.places and choice.order in ORDERS and ORDERS[choice.order].gain is None:
        gaining = ", ".join(name for name, order in ORDERS.items() if order.gain)
        message = f"the order {choice.order} does not say what a job gains by a kind, which joint places weigh"
        raise InputError(message, where="--place", fix=f"an order of {gaining}, or another place")
    usual = (choice.place, choice.backfill, choice.preempt) == ("fastest", True, False)
    if not usual and choice.order not in ORDERS:
        message = f"{choice.order} says itself who runs where: place, backfilling and preemption are not asked for"
        raise InputError(message, where="--order", fix=f"leave them out, or one of {', '.join(ORDERS)}")
    if {JOINT, CELLS} & {*choice.places} and not choice.backfill:
        message = "kinds that are chosen for all jobs together have no first job that others wait for"
        raise InputError(message, where="--no-backfill", fix="leave it out, or another place")
    if choice.rounds and choice.rounds != GAVEL_ROUNDS and not re.fullmatch(r"[1-9][0-9]{0,5}", choice.rounds):
        message = f"rounds of `{choice.rounds}` are none"
        raise InputError(message, where="--rounds", fix=f"whole seconds from 1, such as 360; or {GAVEL_ROUNDS}")
    if (choice.rounds or choice.order in SHARES) and choice.restart_s >= choice.round_seconds:
        message = f"a restart of {choice.restart_s:g} s takes all of a round of {choice.round_seconds:g} s"
        raise InputError(message, where="--rounds", fix="longer rounds")
    if (choice.counts_change or PACK in choice.places) and choice.rounds:
        message = "rounds give jobs the counts that they ask for, and GPUs of their own"
        raise InputError(message, where="--rounds", fix="leave it out")
