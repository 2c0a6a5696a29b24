"""What a policy decided about instances of a server as a file, replayed from it, and decided again."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from planner.costs.serving import StagePrices
from planner.errors import InputError
from planner.policies import ElasticServing
from planner.serving.elastic import ElasticAnswer
from planner.serving.goodput import Question
from planner.serving.served_inputs import ServedInputs, priced, require_encoder
from planner.serving.splits import DEGREES, Share, Split
from planner.simulate.serving import ServingAction, ServingDecide, ServingHistory, ServingSetup, ServingState
from planner.specs.base import with_fields
from planner.specs.serving_actions import (
    RecordedTurn,
    RecordedTurns,
    ServedRequest,
    ServedSetup,
    ServedShare,
    ServingActionsFile,
    ServingOutcome,
)
from planner.specs.workload.requests.request import Request, in_order


def actions_file(inputs: ServedInputs, answer: ElasticAnswer) -> ServingActionsFile:
    """All of it. Raises InputError for prices that no file tells again."""
    question, start = answer.question, answer.start
    setup = question.setup
    if any(each.source.startswith("fitted to") for each in question.prices.values()):
        fix = "leave out one of -o and --measured"
        raise InputError("decisions at measured prices cannot be taken again", where="--measured", fix=fix)
    return ServingActionsFile(
        format=ServingActionsFile.FORMAT,
        model=inputs.job.model,
        cluster=inputs.job.cluster,
        memory_margin=inputs.job.limits.memory_margin,
        prices=price_digest(question.prices),
        service=question.service,
        setup=ServedSetup(
            family=start.family,
            answers=start.answers,
            tokens=start.tokens,
            order=answer.order,
            switch_s=setup.switch_s,
            start_s=setup.start_s,
            encoder_cache=setup.encoder_cache,
            prefix_cache=setup.prefix_cache,
            degrees=tuple(tp for tp in DEGREES if tp in question.prices),
        ),
        start=tuple(ServedShare(**each._asdict()) for each in start.shares),
        outcome=outcome_of(question, answer.history),
        decisions=recorded(answer.history),
        requests=tuple(ServedRequest(**each._asdict()) for each in question.requests),
    )


def recorded(history: ServingHistory) -> tuple[RecordedTurns, ...]:
    """The decisions of a run."""
    return tuple(
        RecordedTurns(
            at_s=at,
            actions=tuple(RecordedTurn(**(each._asdict() | {"terms": dict(each.terms)})) for each in actions),
        )
        for at, actions in history.decisions
    )


def outcome_of(question: Question, history: ServingHistory) -> ServingOutcome:
    """What came of a run."""
    count = len(question.requests)
    arrived = sum(each.arrival_s for each in question.requests)
    return ServingOutcome(
        in_time=history.met(question.service) / count,
        mean_first_s=(sum(history.first) - arrived) / count,
        mean_done_s=(sum(history.done) - arrived) / count,
        moves=history.moves,
    )


def price_digest(prices: Mapping[int, StagePrices]) -> str:
    """What tells prices from others: 16 hexadecimal digits. How sure they are and whence they come count nothing."""
    told = [repr(replace(each, source="", spread=0.0)) for _, each in sorted(prices.items())]
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:16]


def prices_today(stored: ServingActionsFile, folder: Path) -> dict[int, StagePrices]:
    """Prices of the instances of a file at today's rates. Raises InputError."""
    return priced(stored.model, stored.cluster, folder, stored.memory_margin, stored.setup.degrees)


def is_repriced(stored: ServingActionsFile, folder: Path) -> bool:
    """Whether a file says that it was decided at other prices than today's. Raises InputError."""
    return stored.prices not in ("", price_digest(prices_today(stored, folder)))


def decided_again(stored: ServingActionsFile, folder: Path, replay: bool) -> ServingActionsFile:
    """A file with the decisions that its policy takes today, or with its own; and what comes of them. Raises InputError
    where one cannot happen.
    """
    prices = prices_today(stored, folder)
    told = stored.setup
    setup = ServingSetup(
        switch_s=told.switch_s,
        start_s=told.start_s,
        encoder_cache=told.encoder_cache,
        prefix_cache=told.prefix_cache,
    )
    names = Request._fields
    each_told = (Request(**{name: getattr(each, name) for name in names}) for each in stored.requests)
    requests = in_order((f"requests[{number}]", each) for number, each in enumerate(each_told))
    require_encoder(requests, any(each.encode for each in prices.values()), stored.model)
    question = Question(requests, stored.service, prices, setup)
    missing = [each.tp for each in stored.start if each.tp not in prices]
    if missing:
        raise InputError(f"no instance has degree {missing[0]}", where="start", fix="one of setup.degrees")
    shares = tuple(Share(each.stages, each.instances, each.tp) for each in stored.start)
    split = Split(told.family, shares, told.answers, told.tokens)
    decide = replayed(stored) if replay else ElasticServing(stored.service)
    history = question.history(split, told.order, 1.0, decide)
    outcome, told_prices = outcome_of(question, history), price_digest(prices)
    return with_fields(stored, prices=told_prices, outcome=outcome, decisions=recorded(history))


def replayed(stored: ServingActionsFile) -> ServingDecide:
    """A policy that takes the decisions of a file."""
    left = {each.at_s: each for each in stored.decisions}

    def decide(state: ServingState) -> Iterable[ServingAction]:
        turns = left.pop(state.now, None)
        for each in turns.actions if turns else ():
            yield ServingAction(each.instances, each.stages, each.tp, each.reason, tuple(each.terms.items()))

    return decide
