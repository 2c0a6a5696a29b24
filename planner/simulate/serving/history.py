"""What became of requests: when each was encoded, prefilled and answered, if that was in time, and who did what."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from planner.simulate.serving.serving_state import ServingAction
from planner.specs.service import Service
from planner.specs.workload.requests.request import Request

NEVER = -1.0


class Served(NamedTuple):
    """Seconds at which things happened to a request; NEVER: they did not."""

    request: Request
    encode: float  # its images began to be encoded
    encoded: float
    prefill: float  # its first tokens entered an iteration
    first: float  # first token of its answer
    joined: float  # its answer went on, perhaps on another instance
    done: float

    @property
    def ttft(self) -> float:
        """Seconds to the first token."""
        return self.first - self.request.arrival_s

    @property
    def tpot(self) -> float:
        """Seconds of each further token, in the mean."""
        further = self.request.output_tokens - 1
        return (self.done - self.first) / further if further else 0.0


@dataclass(slots=True)
class ServingHistory:
    """Times by request (numbers in order of arrival), and what was done by whom."""

    requests: Sequence[Request]
    encode: list[float]
    encoded: list[float]
    prefill: list[float]
    first: list[float]
    joined: list[float]
    done: list[float]
    decisions: list[tuple[float, tuple[ServingAction, ...]]] = field(default_factory=list)
    busy: list[tuple[int, int, float, float]] = field(default_factory=list)  # instance, doing, from, to
    # At, and requests that wait to be encoded, prefilled, moved
    queues: list[tuple[float, int, int, int]] = field(default_factory=list)
    hits: tuple[int, int] = (0, 0)  # images, blocks of prefixes
    misses: tuple[int, int] = (0, 0)
    stopped: bool = False  # too many were late, and the rest was not run

    @property
    def moves(self) -> int:
        """Changes of what instances do."""
        return sum(len(actions) for _, actions in self.decisions)

    def served(self, number: int) -> Served:
        times = (self.encode, self.encoded, self.prefill, self.first, self.joined, self.done)
        return Served(self.requests[number], *(each[number] for each in times))

    def met(self, service: Service) -> int:
        """Requests that were answered in time."""
        return sum(
            done >= 0.0
            and first - request.arrival_s <= service.ttft_s
            and done - first <= service.tpot_s * (request.output_tokens - 1)
            for request, first, done in zip(self.requests, self.first, self.done, strict=True)
        )


def empty_history(requests: Sequence[Request]) -> ServingHistory:
    """The history before anything happened."""
    encode, encoded, prefill, first, joined, done = ([NEVER] * len(requests) for _ in range(6))
    return ServingHistory(requests, encode, encoded, prefill, first, joined, done)
