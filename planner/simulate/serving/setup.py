"""What a simulated server is made of: instances with stages, limits of their batches, an order, and caches."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from planner.costs.serving import StagePrices
from planner.specs.workload.requests.request import Request

# Stages that an instance has: encodes images, prefills prompts, decodes answers.
Stages = Literal["e", "p", "d", "ep", "pd", "epd", ""]
STAGE_SETS: tuple[Stages, ...] = ("e", "p", "d", "ep", "pd", "epd")
GONE: Stages = ""  # of an instance that became part of another
QueueOrder = Literal["fifo", "shortest"]
BLOCK = 16  # tokens of a page of keys and values (PagedAttention, arXiv 2309.06180)
# Seconds of work that a second of waiting is worth, in the order that lets short work ahead: whoever came first comes
# before all that arrive later than 1/AGEING times its work: every wait ends.
AGEING = 0.05


class InstanceSpec(NamedTuple):
    """An instance as a run begins."""

    stages: Stages
    prices: StagePrices

    @property
    def kv_tokens(self) -> int:
        """Tokens of keys and values that fit, in whole pages."""
        beside_encoder = "e" in self.stages and self.stages != "e"
        room = self.prices.kv_tokens_encoding if beside_encoder else self.prices.kv_tokens
        return room // BLOCK * BLOCK


def pages(tokens: int) -> int:
    """Tokens in whole pages."""
    return -(-tokens // BLOCK) * BLOCK


def pages_of(request: Request) -> int:
    """Tokens of a request up to its last, in whole pages."""
    return pages(request.prompt_tokens + request.output_tokens)


@dataclass(frozen=True, slots=True)
class ServingSetup:
    """Limits of batches, as servers have them, and how queues and caches work; the same for all instances."""

    answers: int = 256  # at once on an instance
    tokens: int = 8192  # of prompts in an iteration, and with `chunked` of answers too
    chunked: bool = False  # prompts in parts beside answers, instead of whole before them (Sarathi, arXiv 2403.02310)
    order: QueueOrder = "fifo"
    ageing: float = AGEING
    prompts: int = 1024  # in an iteration
    encoder_cache: int = 0  # tokens of features that are kept, for images that come again; 0: none
    prefix_cache: int = 0  # tokens of keys and values that are kept, for prompts that begin alike; 0: none
    switch_s: float = 0.1  # in which an instance takes on other stages, once it is empty
    start_s: float = 10.0  # and beside loading its weights, another tensor-parallel degree; assumed
    blocking: bool = False  # a prompt holds its place in the queue, and those behind it, until its images are encoded

    def turn_seconds(self, other: StagePrices | None) -> float:
        """Seconds in which empty instances take on other stages; and another degree, of these prices."""
        return self.start_s + other.load_s if other else self.switch_s
