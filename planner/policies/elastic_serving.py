"""Instances that take on other stages while requests come (ElasticMM, arXiv 2507.10069, section 3.2), and why.

What a stage with n instances lacks is predicted for the next `horizon` seconds, in seconds that requests wait together.
Of encoding and prefill, with `rate` seconds of work that come in a second, as in the last `window`, B that waits, and
`arrivals` requests a second:

    lack(n) = arrivals · ∫ b(t)/n dt        b(t) = max(0, B + (rate − use·n)·t)

Of decoding, with A answers (or those that are to be expected), A/n on each instance: what each token takes
beyond `use` of what is promised,

    lack(n) = A · horizon · max(0, 1 − use·tpot/step(A/n))

An instance moves from the stage that loses least by it to the one that gains most, where

    gain = lack(n) − lack(n + 1)     >     margin · (cost = lack'(n' − 1) − lack'(n') + switch · requests that it has)

As long as no stage lacks anything nothing is gained, and instances stay. Decode's lack grows least with fewer
instances, as batches grow instead, and so it shrinks first. Whoever has least to do moves, and rests then.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from planner.simulate.serving import InstanceView, ServingAction, ServingState, Stages
from planner.specs.service import Service
from planner.specs.workload.requests.request import Request

KNOWN = 0.4  # of as many requests as came within the window, those that have ended: short ones do so first
MOVING: tuple[Stages, ...] = ("e", "p", "d")


@dataclass(frozen=True, slots=True)
class ElasticChoice:
    """How a policy of instances weighs; seconds where nothing else is said."""

    window: float = 20.0
    horizon: float = 10.0
    use: float = 0.9  # of an instance's time, and of a promised token's
    margin: float = 1.5
    rest: float = 10.0  # before an instance moves again
    least: float = 0.5  # of a gain, for each request a second that comes: less is noise


class Load(NamedTuple):
    """What a stage has to do: work that waits, work that comes in a second, and requests a second."""

    waits: float
    rate: float
    arrivals: float

    def lack(self, instances: int, choice: ElasticChoice) -> float:
        """Seconds that requests wait for so many instances within the horizon, together."""
        slope, left = self.rate - choice.use * instances, self.waits
        spans = choice.horizon
        if slope < 0.0:
            spans = min(spans, left / -slope)
        return self.arrivals * (left * spans + slope * spans * spans / 2.0) / instances


class DecodeLoad(NamedTuple):
    """Answers, the tokens that they attend to in the mean, and what an iteration of them takes."""

    answers: int
    tokens: float  # that those who come want in a second
    limit: int  # answers of an instance at once
    steps: Sequence[float]  # by answers, seconds
    cached_s: float
    attended: float
    tpot_s: float

    def lack(self, instances: int, choice: ElasticChoice) -> float:
        """Seconds by which tokens are late within the horizon, together."""
        batch = max(self.answers / instances, self.coming(instances))
        within = min(batch, float(self.limit))
        if not within:
            return 0.0
        step = self.step(within) * batch / within  # beyond the limit some wait
        return batch * instances * choice.horizon * max(0.0, 1.0 - choice.use * self.tpot_s / step)

    def step(self, batch: float) -> float:
        """Seconds of an iteration."""
        return self.steps[min(len(self.steps) - 1, ceil(batch))] + self.cached_s * batch * self.attended

    def coming(self, instances: int) -> float:
        """Answers of an instance when as much goes as comes: tokens a second times a step (Little's law)."""
        each, batch = self.tokens / instances, 1.0
        if each * self.step(self.limit) >= self.limit:
            return each * self.step(self.limit)
        for _ in range(20):
            batch = each * self.step(batch)
        return batch


class Move(NamedTuple):
    """A move between stages, and what it is worth."""

    source: Stages
    target: Stages
    gain: float
    cost: float


class ElasticServing:
    """A policy of the clock of servers, for instances that encode, prefill or decode."""

    def __init__(self, service: Service, choice: ElasticChoice | None = None) -> None:
        self.service, self.choice = service, choice or ElasticChoice()
        self.recent: deque[tuple[float, float, float]] = deque()  # at, seconds of encoding, of prefill
        self.moved: dict[int, float] = {}  # instance → when it last moved

    def __call__(self, state: ServingState) -> Iterator[ServingAction]:
        self.see(state)
        if any(each.turning for each in state.instances):
            return
        loads = self.loads(state)
        counts: dict[Stages, int] = {stage: 0 for stage in MOVING}
        for each in state.instances:
            counts[each.stages] = counts.get(each.stages, 0) + 1
        taken = set[int]()
        while move := self.best_move(loads, counts, state):
            instance = self.who_moves(state, move, taken)
            if instance is None:
                return
            taken.add(instance.number)
            self.moved[instance.number] = state.now
            counts[move.source] -= 1
            counts[move.target] += 1
            yield ServingAction(
                instance.number,
                move.target,
                reason=f"{move.gain:.3g} s of waiting are gained and {move.cost:.3g} s lost",
                terms=tuple(terms_of(move, loads, counts, self.choice)),
            )

    def see(self, state: ServingState) -> None:
        """Keep the work of what came within the window."""
        for each in state.arrived:
            self.recent.append((each.arrival_s, *work_of(each, state)))
        while self.recent and self.recent[0][0] < state.now - self.choice.window:
            self.recent.popleft()

    def loads(self, state: ServingState) -> Mapping[Stages, Load | DecodeLoad]:
        """What each stage has to do."""
        span = max(1.0, min(self.choice.window, state.now))
        encode, prefill = (sum(each[which] for each in self.recent) for which in (1, 2))
        images = sum(each[1] > 0.0 for each in self.recent)
        waits = [work_of(state.request(number), state) for number in (*state.to_encode, *state.to_prefill)]
        waiting_images = sum(work_of(state.request(number), state)[0] for number in state.to_encode)
        answering = [number for each in state.instances for number in each.answering]
        answering += state.to_decode
        attended = sum(state.request(number).prompt_tokens + 1 for number in answering) / (len(answering) or 1)
        price = state.prices.iteration
        return {
            "e": Load(waiting_images, encode / span, images / span),
            "p": Load(sum(each for _, each in waits), prefill / span, len(self.recent) / span),
            "d": DecodeLoad(
                answers=len(answering),
                tokens=len(self.recent) / span * state.ended[1] / max(1, state.ended[0]),
                limit=state.setup.answers,
                steps=price.steps,
                cached_s=price.cached_s,
                attended=attended,
                tpot_s=self.service.tpot_s,
            ),
        }

    def best_move(
        self, loads: Mapping[Stages, Load | DecodeLoad], counts: Mapping[Stages, int], state: ServingState
    ) -> Move | None:
        """The move that is worth most; None: none is worth what it costs."""
        choice, moves = self.choice, list[Move]()
        enough = choice.least * max(1.0, len(self.recent) / choice.window)
        for target in MOVING:
            gain = loads[target].lack(counts[target], choice) - loads[target].lack(counts[target] + 1, choice)
            for source in MOVING:
                unknown = source == "d" and state.ended[0] < KNOWN * len(self.recent)  # how long answers become
                if source == target or counts[source] < 2 or unknown:
                    continue
                lost = loads[source].lack(counts[source] - 1, choice) - loads[source].lack(counts[source], choice)
                held = loads["d"].answers / counts["d"] if source == "d" and isinstance(loads["d"], DecodeLoad) else 1.0
                cost = lost + state.setup.switch_s * held
                if gain > enough and gain > choice.margin * cost:
                    moves.append(Move(source, target, gain, cost))
        return max(moves, key=lambda each: (each.gain - each.cost, each.source == "d"), default=None)

    def who_moves(self, state: ServingState, move: Move, taken: set[int]) -> InstanceView | None:
        """The instance of a stage that has least to do, among those that have rested."""
        rested = [
            each
            for each in state.instances
            if each.stages == move.source
            and each.number not in taken
            and state.now - self.moved.get(each.number, -self.choice.rest) >= self.choice.rest
        ]
        return min(
            rested, key=lambda each: (not each.idle, len(each.answering), each.kv_used, each.number), default=None
        )


def work_of(request: Request, state: ServingState) -> tuple[float, float]:
    """Seconds of encoding and of prefill of a request."""
    encode = state.prices.encode.seconds(request.images) if state.prices.encode and request.images else 0.0
    return encode, state.prices.iteration.prefill_seconds(request.prompt_tokens)


def terms_of(
    move: Move, loads: Mapping[Stages, Load | DecodeLoad], counts: Mapping[Stages, int], choice: ElasticChoice
) -> Iterator[tuple[str, float]]:
    """Everything that was weighed, by its name; instances are those after the move."""
    yield from (("gain_s", move.gain), ("cost_s", move.cost))
    for stage in MOVING:
        yield f"instances_{stage}", float(counts[stage])
        yield f"lack_{stage}_s", loads[stage].lack(max(1, counts[stage]), choice)
