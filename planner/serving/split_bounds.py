"""How fast requests may come at most to a split, if they go on for ever: a bound from work alone, for either order.

Everybody is served, and nobody overtakes whoever came W/ageing seconds earlier, W the most work of a request. So where
work comes faster than instances do it, all wait longer and longer, and none is in time any more:

    rate · (work of a request in the mean)  ≤  instances that do it                       for each stage

Least work of a request, in seconds of one instance, is proven from its prices (costs/serving/stage_prices.py):

    encode    as it is priced; where features are kept, of images that no other request has
    prefill   pair·n²/2 + n·min passes[m]/m over the tokens m of an iteration; of blocks that no other request has
    decode    cached·(tokens that it attends to) + each·(tokens − 1), and `once` for each iteration: of a line
              once + each·b that is nowhere above steps[b]

There are no fewer iterations than tokens over the largest batch; nor, of G tokens of requests that are in time, than
G·each/(tpot − once): tpot bounds Σ g·(once + each·g) ≤ tpot·Σ g over iterations with g such tokens, and (Σ g)² ≤
count·Σ g² (Cauchy). G is at least what the requests of fewest tokens have that can be enough. Where prompts go beside
answers, a token of either takes the least that one takes in an iteration of as many as are allowed.
"""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from math import ceil, inf

import numpy as np
from numpy.typing import NDArray

from planner.costs.serving import MOST_TABLED, StagePrices
from planner.serving.goodput import Question
from planner.serving.splits import Share, Split
from planner.simulate.serving import BLOCK, pages_of
from planner.specs.workload.requests.request import PREFIX_BLOCK, Request

Floats = NDArray[np.float64]


class SplitBounds:
    """Bounds of splits for the same requests and service, each part of one computed once."""

    def __init__(self, question: Question) -> None:
        self.requests, self.service, self.prices = question.requests, question.service, question.prices
        requests, service, self.setup = question.requests, question.service, question.setup
        self.span = requests[-1].arrival_s * len(requests) / max(1, len(requests) - 1)  # until all come again
        self.prompts = np.array([each.prompt_tokens for each in requests], dtype=np.float64)
        self.outputs = np.array([each.output_tokens - 1 for each in requests], dtype=np.float64)
        self.shared = shared_tokens(requests) if self.setup.prefix_cache else np.zeros(len(requests))
        good = max(1, ceil(service.share * len(requests) - 1e-9))
        self.good_tokens = float(np.sort(self.outputs)[:good].sum())
        self.attended = float((self.outputs * (self.prompts + (self.outputs + 1.0) / 2.0)).sum())
        self.largest = max(map(pages_of, requests))
        self.longest = max(each.prompt_tokens for each in requests) + BLOCK
        self.known: dict[tuple[str, int, int, int], float] = {}

    def bound(self, split: Split) -> float:
        """Times the rate of the requests that a split sustains at most; 0 where one has no room on it."""
        return min(self.share_bound(share, split) for share in split.shares)

    def pooled(self, split: Split) -> float:
        """The bound of whoever gives instances other stages as often as they like: by all work, on all instances."""
        work = sum(self.least_work(share, split) for share in split.shares)
        return self.span * sum(share.instances for share in split.shares) / work

    def share_bound(self, share: Share, split: Split) -> float:
        """The bound by the instances of some stages alone."""
        prices = self.prices[share.tp]
        room = prices.kv_tokens_encoding if "e" in share.stages else prices.kv_tokens
        needed = self.largest if "d" in share.stages else self.longest
        if share.stages != "e" and needed > room:
            return 0.0
        key = share.stages, share.tp, split.answers, split.tokens if split.chunked else 0
        if key not in self.known:
            self.known[key] = self.least_work(share, split)
        work = self.known[key]
        return self.span * share.instances / work if work else inf

    def least_work(self, share: Share, split: Split) -> float:
        """Seconds of one instance for all requests."""
        prices, total = self.prices[share.tp], 0.0
        price = prices.iteration
        parts = split.chunked and "p" in share.stages
        each = least_slope(price.passes, max(split.tokens, split.answers + 1) if parts else MOST_TABLED)
        if "e" in share.stages and prices.encode:
            total += self.encode_work(prices)
        if "p" in share.stages:
            fresh = self.prompts - self.shared
            total += float((fresh * (each + price.pair_s * (self.shared + fresh / 2.0))).sum())
        if "d" in share.stages:
            total += price.cached_s * self.attended
            tokens = float(self.outputs.sum())
            if parts:
                return total + tokens * min(each, least_slope(price.steps, split.answers))
            once, line = below(price.steps, split.answers)
            count = tokens / split.answers
            if line > 0.0:
                count = max(count, self.good_tokens / max(1.0, (self.service.tpot_s - once) / line))
            total += tokens * line + once * count
        return total

    def encode_work(self, prices: StagePrices) -> float:
        """Seconds of encoding all images."""
        encode = prices.encode
        assert encode
        if not self.setup.encoder_cache:
            return sum(encode.seconds(distinct_images(each)) for each in self.requests if each.images)
        slope = least_slope(encode.passes, MOST_TABLED)
        own = (tokens for images in unshared_images(self.requests) for tokens in images)
        return sum(slope * tokens + encode.pair_s * tokens * tokens for tokens in own)


@lru_cache(maxsize=64)
def least_slope(table: tuple[float, ...], most: int) -> float:
    """Seconds of a token at least, in iterations of up to `most`; beyond a whole table its last slope goes on."""
    seconds = np.array(table[1 : most + 1])
    least = float((seconds / np.arange(1, len(seconds) + 1)).min())
    if most < MOST_TABLED:
        return least
    return min(least, float(seconds[-1] - seconds[MOST_TABLED // 2 - 1]) / (MOST_TABLED / 2))


@lru_cache(maxsize=256)
def below(table: tuple[float, ...], most: int) -> tuple[float, float]:
    """A straight line, once + each·batch, that is nowhere above a table from 1 to `most`, and equal at 1."""
    rise = (np.array(table[2 : most + 1]) - table[1]) / np.arange(1, most)
    each = max(0.0, float(rise.min())) if most > 1 else 0.0
    return (table[1] - each if each else float(np.array(table[1 : most + 1]).min())), each


def distinct_images(request: Request) -> tuple[int, ...]:
    """Tokens of the images of a request, of those that it has twice once."""
    if not request.image_hashes:
        return request.images
    return tuple(dict(zip(request.image_hashes, request.images, strict=True)).values())


def unshared_images(requests: Sequence[Request]) -> list[tuple[int, ...]]:
    """Tokens of each request's images that no other request has."""
    seen = Counter(image for each in requests for image in {*each.image_hashes})
    return [
        tuple(n for image, n in zip(each.image_hashes, each.images, strict=True) if seen[image] == 1)
        if each.image_hashes
        else each.images
        for each in requests
    ]


def shared_tokens(requests: Sequence[Request]) -> Floats:
    """Tokens of each request in blocks that another request begins with too (requests,)."""
    seen = Counter(block for each in requests for block in each.prefix)
    shared = [sum(seen[block] > 1 for block in each.prefix) * PREFIX_BLOCK for each in requests]
    return np.array([min(tokens, each.prompt_tokens - 1) for tokens, each in zip(shared, requests, strict=True)], float)
