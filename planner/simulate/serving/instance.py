"""An instance of a simulated server, and the closed form by which its answers go on.

While no answer begins or ends, every iteration has the same batch, and each answer attends to one token more than in
the last one: k iterations of n answers take k·step + cached·(k·kv + n·k(k − 1)/2) seconds, where kv are the tokens that
they attend to in the first. So time passes from one change of the batch to the next, and not iteration by iteration.
"""

from math import ceil, sqrt

from planner.costs.serving import MOST_TABLED, tabled
from planner.simulate.serving.setup import InstanceSpec, Stages

IDLE, ANSWERS, PROMPTS, IMAGES, SWITCH = range(5)  # what an instance is doing


class Instance:
    """What an instance has and does. Iterations are counted from its first; requests are numbers."""

    __slots__ = (
        "answers",
        "answers_kv",
        "doing",
        "encoding",
        "group",
        "incoming",
        "iteration",
        "joining",
        "kv_room",
        "kv_used",
        "number",
        "prices",
        "prompts",
        "segment",
        "since",
        "stages",
        "turning",
        "until",
        "version",
    )

    def __init__(self, number: int, spec: InstanceSpec) -> None:
        self.number, self.stages, self.prices, self.group = number, spec.stages, spec.prices, spec.group
        self.kv_room, self.kv_used = spec.kv_tokens, 0
        self.doing, self.version, self.since, self.until = IDLE, 0, 0.0, 0.0
        self.iteration, self.segment = 0, 0  # iterations that have ended; that the running segment has
        self.answers: list[tuple[int, int]] = []  # heap of the iteration after which an answer ends, and its request
        self.answers_kv = 0  # tokens that all answers attend to in the next iteration
        self.joining: list[int] = []  # requests that go on here from the next iteration on
        self.incoming = 0  # requests with room kept whose keys and values are on the way
        self.prompts: list[list[int]] = []  # request, tokens left, tokens done, tokens of this iteration
        self.encoding: list[int] = []  # the request whose images are encoded
        self.turning: Stages | None = None  # stages that it takes on as soon as it is empty

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
