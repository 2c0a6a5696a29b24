"""Instances that take on other stages while requests come (ElasticMM, arXiv 2507.10069, section 3.2), and why.

Instances with the same stages are a role. What one with n instances lacks is predicted for the next `horizon` seconds,
in seconds that requests wait together. Of encoding and prefill, with `rate` seconds of work that come in a second, as
in the last `window`, B that waits, and `arrivals` requests a second, of which each takes `each` alone:

    lack(n) = arrivals · (∫ b(t)/n dt + horizon · max(0, each − ttft))        b(t) = max(0, B + (rate − use·n)·t)

Of decoding, with A answers (or those that are to be expected), A/n on each instance: what each token takes
beyond `use` of what is promised; and the answers that wait, where more tokens are wanted in a second than are made,

    lack(n) = A · horizon · max(0, 1 − use·tpot/step(A/n)) + (wanted − made)/length · horizon²/2

Instances move from the role that loses least by it to the one that gains most, where

    gain = lack(n) − lack(n + 1)     >     margin · (cost = lack'(n' − 1) − lack'(n') + delay · requests that it has)

Where tensor-parallel degrees differ, instances merge or split, and `delay` is that of loading weights and starting; and
so a role takes on another degree as a whole, where it gains more within `patience` times the delay than what waits
meanwhile. As long as no role lacks anything nothing is gained, and instances stay. Decode's lack grows least with
fewer instances, as batches grow instead, and so it shrinks first. Whoever has least to do moves, and rests then.
"""

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from planner.costs.serving import StagePrices
from planner.simulate.serving import InstanceView, ServingAction, ServingState, Stages
from planner.specs.service import Service
from planner.specs.workload.requests.request import Request

KNOWN = 0.4  # of as many requests as came within the window, those that have ended: short ones do so first


@dataclass(frozen=True, slots=True)
class ElasticChoice:
    """How a policy of instances weighs; seconds where nothing else is said."""

    window: float = 20.0
    horizon: float = 10.0
    use: float = 0.8  # of an instance's time, and of a promised token's
    margin: float = 1.5
    rest: float = 10.0  # before an instance moves again
    least: float = 0.5  # of a gain, for each request a second that comes: less is noise
    patience: float = 10.0  # delays, after which another degree has to have paid


class Load(NamedTuple):
    """What encodes or prefills has to do: work that waits, work that comes in a second, and requests a second; of one
    of them what it takes beyond what is promised.
    """

    waits: float
    rate: float
    arrivals: float
    beyond: float = 0.0

    def lack(self, instances: int, choice: ElasticChoice, horizon: float = 0.0) -> float:
        """Seconds that requests wait for so many instances within the horizon, together."""
        slope, left = self.rate - choice.use * instances, self.waits
        spans = whole = horizon or choice.horizon
        if slope < 0.0:
            spans = min(spans, left / -slope)
        return self.arrivals * ((left * spans + slope * spans * spans / 2.0) / instances + whole * self.beyond)


class DecodeLoad(NamedTuple):
    """Answers, the tokens that they attend to in the mean, and what an iteration of them takes."""

    answers: int
    tokens: float  # that those who come want in a second
    limit: int  # answers of an instance at once
    steps: Sequence[float]  # by answers, seconds
    cached_s: float
    attended: float
    tpot_s: float
    length: float  # tokens of an answer in the mean

    def lack(self, instances: int, choice: ElasticChoice, horizon: float = 0.0) -> float:
        """Seconds by which tokens are late within the horizon, together."""
        batch, spans = max(self.answers / instances, self.coming(instances)), horizon or choice.horizon
        within = min(batch, float(self.limit))
        if not within:
            return 0.0
        step = self.step(within) * batch / within  # beyond the limit some wait
        late = batch * instances * spans * max(0.0, 1.0 - choice.use * self.tpot_s / step)
        beyond = self.tokens - instances * self.limit / self.step(self.limit)  # tokens a second too many
        return late + max(0.0, beyond) / self.length * spans * spans / 2.0

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


class Role(NamedTuple):
    """Instances with the same stages."""

    stages: Stages
    tp: int
    instances: int
    load: Load | DecodeLoad

    def lack(self, more: int, choice: ElasticChoice) -> float:
        """What it lacks with so many more instances."""
        return self.load.lack(self.instances + more, choice)


class Move(NamedTuple):
    """So many instances of a role become so many of another, or of another degree, and what that is worth."""

    source: Role
    target: Role
    taken: int
    given: int
    gain: float
    lost: float  # by the role that gives
    waited: float  # by what it has meanwhile

    @property
    def cost(self) -> float:
        return self.lost + self.waited


class ElasticServing:
    """A policy of the clock of servers: the roles are those that instances begin with."""

    def __init__(self, service: Service, choice: ElasticChoice | None = None) -> None:
        self.service, self.choice = service, choice or ElasticChoice()
        self.recent: deque[tuple[float, Request]] = deque()
        self.moved: dict[int, float] = {}  # instance → when it last moved

    def __call__(self, state: ServingState) -> Iterator[ServingAction]:
        self.recent.extend((each.arrival_s, each) for each in state.arrived)
        while self.recent and self.recent[0][0] < state.now - self.choice.window:
            self.recent.popleft()
        if any(each.turning for each in state.instances):
            return
        roles, taken = self.roles(state), set[int]()
        while move := self.best_move(roles, state):
            movers = self.who_moves(state, move, taken)
            if len(movers) < move.taken:
                return
            taken |= {each.number for each in movers}
            self.moved |= dict.fromkeys((each.number for each in movers), state.now)
            for end, more in ((move.source, -move.taken), (move.target, move.given)):
                roles[end.stages] = end._replace(instances=roles[end.stages].instances + more)
            reason = f"{move.gain:.3g} s of waiting are gained and {move.cost:.3g} s lost"
            numbers = tuple(each.number for each in movers)
            terms = tuple(terms_of(move, roles, self.choice))
            yield ServingAction(numbers, move.target.stages, move.target.tp, reason, terms)

    def roles(self, state: ServingState) -> dict[Stages, Role]:
        """What instances there are, and what they have to do."""
        counts = Counter((each.stages, each.tp) for each in state.instances)
        return {
            stages: Role(stages, tp, count, self.load(stages, state.prices[tp], state))
            for (stages, tp), count in sorted(counts.items(), key=lambda each: "edp".index(each[0][0][-1]))
        }

    def load(self, stages: Stages, prices: StagePrices, state: ServingState) -> Load | DecodeLoad:
        """What a role has to do, at the prices of a degree."""
        span, price = max(1.0, min(self.choice.window, state.now)), prices.iteration
        answering = [number for each in state.instances for number in each.answering] + [*state.waiting["d"]]
        attended = sum(state.request(number).prompt_tokens + 1 for number in answering) / (len(answering) or 1)
        length = max(1.0, state.ended[1] / max(1, state.ended[0]))  # as if lengths were exponential
        tokens, limit, tpot = len(self.recent) / span * length, state.setup.answers, self.service.tpot_s
        decode = DecodeLoad(len(answering), tokens, limit, price.steps, price.cached_s, attended, tpot, length)
        if stages == "d":
            return decode
        queues = state.waiting["e"] if stages == "e" else (*state.waiting["e"], *state.waiting["p"])
        waits = sum(work_of(state.request(number), stages, prices) for number in queues)
        works = [work_of(each, stages, prices) for _, each in self.recent]
        busy = sum(each > 0.0 for each in works)
        rate, beyond = sum(works) / span, sum(works) / max(1, busy) - self.choice.use * self.service.ttft_s
        if "d" in stages:  # prompts in parts beside answers
            rate += tokens * decode.step(decode.limit) / decode.limit
        return Load(waits, rate, busy / span, max(0.0, beyond))

    def best_move(self, roles: Mapping[Stages, Role], state: ServingState) -> Move | None:
        """The move that is worth most; None: none is worth what it costs."""
        enough = self.choice.least * max(1.0, len(self.recent) / self.choice.window)
        early = state.ended[0] < KNOWN * len(self.recent)  # to know of answers
        moves = [
            move
            for source in roles.values()
            for move in (*self.to_others(source, roles, state), *self.to_degrees(source, state))
            if not (early and "d" in (source.stages, move.target.stages))
            and move.gain > enough
            and move.gain > self.choice.margin * move.cost
        ]
        return max(moves, key=lambda each: (each.gain - each.cost, each.source.stages == "d"), default=None)

    def to_others(self, source: Role, roles: Mapping[Stages, Role], state: ServingState) -> Iterator[Move]:
        """Yield the moves of a role's instances to others."""
        for target in roles.values():
            taken, given = max(1, target.tp // source.tp), max(1, source.tp // target.tp)
            if source.stages == target.stages or source.instances <= taken:
                continue
            other = state.prices[target.tp] if source.tp != target.tp else None
            gain = target.lack(0, self.choice) - target.lack(given, self.choice)
            lost = source.lack(-taken, self.choice) - source.lack(0, self.choice)
            held = source.load.answers / source.instances if isinstance(source.load, DecodeLoad) else 1.0
            yield Move(source, target, taken, given, gain, lost, state.setup.turn_seconds(other) * held * taken)

    def to_degrees(self, role: Role, state: ServingState) -> Iterator[Move]:
        """Yield the moves of a whole role to other degrees: all that it has, and all that comes, waits meanwhile."""
        gpus, lacks = role.instances * role.tp, role.lack(0, self.choice) > 0.0
        for tp, prices in state.prices.items():
            if not lacks or tp == role.tp or gpus % tp:
                continue
            delay = state.setup.turn_seconds(prices)
            horizon = max(self.choice.horizon, self.choice.patience * delay)
            target = Role(role.stages, tp, gpus // tp, self.load(role.stages, prices, state))
            now = role.load.lack(role.instances, self.choice, horizon)
            gain = now - target.load.lack(target.instances, self.choice, horizon)
            held = len(self.recent) / self.choice.window * delay / 2.0
            held += sum(len(each.answering) for each in state.instances if each.stages == role.stages)
            held += sum(len(state.waiting[stage]) for stage in role.stages)
            yield Move(role, target, role.instances, target.instances, gain, 0.0, delay * held)

    def who_moves(self, state: ServingState, move: Move, taken: set[int]) -> list[InstanceView]:
        """The instances of a role that have least to do, among those that have rested."""
        rested = [
            each
            for each in state.instances
            if each.stages == move.source.stages
            and each.number not in taken
            and state.now - self.moved.get(each.number, -self.choice.rest) >= self.choice.rest
        ]
        rested.sort(key=lambda each: (not each.idle, len(each.answering), each.kv_used, each.number))
        return rested[: move.taken]


def work_of(request: Request, stages: Stages, prices: StagePrices) -> float:
    """Seconds of encoding and of prefill of a request, as far as instances of these stages have them."""
    encodes = prices.encode if "e" in stages and request.images else None
    encode = encodes.seconds(request.images) if encodes else 0.0
    return encode + (prices.iteration.prefill_seconds(request.prompt_tokens) if "p" in stages else 0.0)


def terms_of(move: Move, roles: Mapping[Stages, Role], choice: ElasticChoice) -> Iterator[tuple[str, float]]:
    """Everything that was weighed, by its name; instances are those after the move."""
    yield from (("gain_s", move.gain), ("cost_s", move.cost), ("lost_s", move.lost), ("waited_s", move.waited))
    for role in roles.values():
        yield f"instances_{role.stages}", float(role.instances)
        yield f"lack_{role.stages}_s", role.lack(0, choice)
        for name, value in zip(role.load._fields, role.load, strict=True):
            if isinstance(value, int | float):
                yield f"{name}_{role.stages}", float(value)
