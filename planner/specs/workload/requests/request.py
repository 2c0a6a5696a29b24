"""A request to a model that is served, and its laws."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from planner.errors import InputError

PREFIX_BLOCK = 512  # tokens of a block of which prefix hashes are (Mooncake, arXiv 2407.00079)
MOST_TOKENS = 10**7  # of one request
MOST_SECONDS = 1e10  # of an arrival
Hash = str


class Request(NamedTuple):
    """What is asked: tokens of text and of images in front of them, and how many tokens answer it."""

    id: str
    arrival_s: float
    text_tokens: int
    output_tokens: int
    images: tuple[int, ...] = ()  # tokens of features that each image becomes
    image_hashes: tuple[Hash, ...] = ()  # of each image; (): all are different
    prefix: tuple[Hash, ...] = ()  # of its blocks of PREFIX_BLOCK tokens from the first on, each with all before it

    @property
    def prompt_tokens(self) -> int:
        """Tokens that are prefilled."""
        return self.text_tokens + sum(self.images)


def in_order(requests: Iterable[tuple[str, Request]]) -> tuple[Request, ...]:
    """Requests with their places, checked. Raises InputError for the first that is none, or comes before another."""
    found, before = list[Request](), 0.0
    for where, each in requests:
        fault = fault_of(each, before)
        if fault:
            raise InputError(fault[0], where=where, fix=fault[1])
        before = each.arrival_s
        found.append(each)
    if not found:
        raise InputError("it has no requests", where="--requests", fix="a file of at least one")
    return tuple(found)


def fault_of(request: Request, before: float) -> tuple[str, str] | None:
    """Why something is no request that comes after `before`, and what to do; None: it is one."""
    if not 0.0 <= request.arrival_s <= MOST_SECONDS:
        return f"it arrives at {request.arrival_s:.9g} s", f"seconds from 0 to {MOST_SECONDS:.0e}"
    if request.arrival_s < before:
        return f"arrivals go back, from {before:.9g} s to {request.arrival_s:.9g} s", "sort the file by arrival_s"
    if not 1 <= request.output_tokens <= MOST_TOKENS:
        return f"{request.output_tokens} tokens answer it", f"output_tokens from 1 to {MOST_TOKENS:,}"
    if request.text_tokens < 0 or any(tokens < 1 for tokens in request.images):
        return "a number of tokens is too small", "text_tokens from 0, and tokens of each image from 1"
    if not 1 <= request.prompt_tokens <= MOST_TOKENS:
        return f"it asks with {request.prompt_tokens} tokens", f"text and images of 1 to {MOST_TOKENS:,} tokens"
    if request.image_hashes and len(request.image_hashes) != len(request.images):
        told = f"{len(request.image_hashes)} hashes of {len(request.images)} images"
        return f"it has {told}", "as many image_hashes as images, or none"
    return None


def at_rate(requests: Sequence[Request], times: float) -> tuple[Request, ...]:
    """The same requests, coming so many times as fast."""
    return tuple(each._replace(arrival_s=each.arrival_s / times) for each in requests)


def rate_of(requests: Sequence[Request]) -> float:
    """Requests a second: from the first to the last, which is one interval less; of one, and of all at once, 0."""
    span = requests[-1].arrival_s - requests[0].arrival_s
    return (len(requests) - 1) / span if span > 0 else 0.0
