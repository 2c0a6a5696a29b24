"""What servers keep for requests that bring the same again: features of images by hash, and prefixes of prompts.

Both are one pool for all instances (ElasticMM, arXiv 2507.10069, section 3.3), from which the least recently used goes
first. Of prefixes a block counts only with all before it; a chain is used from its end, so that the end goes first.
"""

from collections import OrderedDict
from collections.abc import Sequence

from planner.specs.workload.requests.request import PREFIX_BLOCK, Hash


class FeatureCache:
    """Features of images, so many tokens of them."""

    def __init__(self, tokens: int) -> None:
        self.room, self.used = tokens, 0
        self.kept: OrderedDict[Hash, int] = OrderedDict()
        self.hits = self.misses = 0

    def has(self, image: Hash) -> bool:
        """Whether an image is there, which counts as a use."""
        if image in self.kept:
            self.kept.move_to_end(image)
            self.hits += 1
            return True
        self.misses += 1
        return False

    def keep(self, image: Hash, tokens: int) -> None:
        """Keep the features of an image; not of one that is larger than the cache."""
        if image in self.kept or tokens > self.room:
            return
        self.kept[image] = tokens
        self.used += tokens
        while self.used > self.room:
            self.used -= self.kept.popitem(last=False)[1]


class PrefixCache:
    """Keys and values of the blocks with which prompts begin."""

    def __init__(self, tokens: int) -> None:
        self.room = tokens // PREFIX_BLOCK
        self.kept: OrderedDict[Hash, None] = OrderedDict()
        self.hits = self.misses = 0

    def matched(self, prefix: Sequence[Hash]) -> int:
        """Tokens of a prompt that need no prefill."""
        count = 0
        for block in prefix:
            if block not in self.kept:
                break
            count += 1
        for block in reversed(prefix[:count]):
            self.kept.move_to_end(block)
        self.hits += count
        self.misses += len(prefix) - count
        return count * PREFIX_BLOCK

    def keep(self, prefix: Sequence[Hash]) -> None:
        """Keep the blocks of a prompt, as many from its beginning as fit."""
        for block in reversed(prefix[: self.room]):
            self.kept[block] = None
            self.kept.move_to_end(block)
        while len(self.kept) > self.room:
            self.kept.popitem(last=False)
