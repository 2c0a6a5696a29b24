"""An instance of a simulated server, and the closed form by which its answers go on.

While no answer begins or ends, every iteration has the same batch, and each answer attends to one token more than in
the last one: k iterations of n answers take k·step + cached·(k·kv + n·k(k − 1)/2) seconds, where kv are the tokens that
they attend to in the first. So time passes from one change of the batch to the next, and not iteration by iteration.
"""

from dataclasses import dataclass, field
from math import ceil, sqrt

from planner.costs.serving import MOST_TABLED, StagePrices, tabled
from planner.simulate.serving.setup import GONE, InstanceSpec, Stages

IDLE, ANSWERS, PROMPTS, IMAGES, SWITCH = range(5)  # what an instance is doing


@dataclass(slots=True)
class Turning:
    """Instances that become others together, as soon as all are empty: as many of one kind as their GPUs make."""

    instances: "list[Instance]"
    spec: InstanceSpec


@dataclass(slots=True, eq=False)
class Instance:
    """What an instance has and does. Iterations are counted from its first; requests are numbers."""

    number: int
    prices: StagePrices
    stages: Stages = GONE
    kv_room: int = 0  # tokens
    kv_used: int = 0
    doing: int = IDLE
    version: int = 0  # of the event that ends what it is doing; others are past
    since: float = 0.0
    iteration: int = 0  # iterations that have ended
    segment: int = 0  # iterations of those that run
    answers: list[tuple[int, int]] = field(default_factory=list)  # heap: the iteration after which one ends, request
    answers_kv: int = 0  # tokens that all answers attend to in the next iteration
    joining: list[int] = field(default_factory=list)  # requests that go on here from the next iteration on
    incoming: int = 0  # requests with room kept whose keys and values are on the way
    prompts: list[list[int]] = field(default_factory=list)  # request, tokens left, done, and of this iteration
    encoding: int = -1  # the request whose images are encoded
    turning: Turning | None = None

    def become(self, spec: InstanceSpec) -> None:
        """Take on stages, empty."""
        self.stages, self.prices, self.kv_room = spec.stages, spec.prices, spec.kv_tokens
        self.doing, self.turning = IDLE, None

    @property
    def load(self) -> int:
        """Requests that it answers, or will."""
        return len(self.answers) + len(self.joining) + self.incoming

    def answers_seconds(self, count: int) -> float:
        """Seconds of `count` iterations of the answers that there are."""
        price, batch = self.prices.iteration, len(self.answers)
        step = price.steps[batch] if batch <= MOST_TABLED else tabled(price.steps, batch)
        return count * step + price.cached_s * (count * self.answers_kv + batch * count * (count - 1) * 0.5)

    def iterations_by(self, seconds: float) -> int:
        """Iterations after whose last a time has passed: the first end that is not before it, at least one."""
        price, batch = self.prices.iteration, len(self.answers)
        half = price.cached_s * batch * 0.5
        line = tabled(price.steps, batch) + price.cached_s * self.answers_kv - half
        root = (sqrt(line * line + 4.0 * half * seconds) - line) / (2.0 * half) if half > 0.0 else seconds / line
        count = max(1, ceil(root - 1e-9))
        while self.answers_seconds(count) < seconds:  # rounding
            count += 1
        return count
