"""Prices of an instance of a server: seconds of a pass over images, and of an iteration over prompts and answers.

    encode(images)               passes[Σ n] + pair_s · Σ n²                    n: tokens of features of an image
    iteration of b answers       steps[b] + cached_s · (tokens that they attend to)
    iteration with prompts       passes[b + Σ c] + pair_s · Σ c (p + c/2) + cached_s · (tokens that answers attend to)

of which each prompt has c tokens in this iteration and p in those before. What is not attention depends on the number
of tokens alone, and stands in a table, as it is no straight line: few tokens take as long as reading the weights.
"""

from collections.abc import Iterable
from dataclasses import dataclass

MOST_TABLED = 16384  # tokens; beyond, the table's last slope goes on
Table = tuple[float, ...]  # (MOST_TABLED + 1,) seconds, by tokens


def tabled(table: Table, tokens: int) -> float:
    """Seconds of so many tokens."""
    if tokens <= MOST_TABLED:
        return table[tokens]
    return table[-1] + (tokens - MOST_TABLED) * (table[-1] - table[MOST_TABLED // 2]) / (MOST_TABLED / 2)


def line_table(once: float, each: float) -> Table:
    """The table of a straight line; 0 s of no tokens."""
    return (0.0, *(once + each * tokens for tokens in range(1, MOST_TABLED + 1)))


@dataclass(frozen=True, slots=True)
class EncodePrices:
    """Of an instance that encodes images."""

    passes: Table
    pair_s: float

    def seconds(self, images: Iterable[int]) -> float:
        """Seconds in which these images are encoded together; 0 of none."""
        sizes = [*images]
        return tabled(self.passes, sum(sizes)) + self.pair_s * sum(size * size for size in sizes)


@dataclass(frozen=True, slots=True)
class IterationPrices:
    """Of an instance of the module that answers."""

    steps: Table  # without prompts
    passes: Table  # with prompts
    pair_s: float
    cached_s: float

    def prefill_seconds(self, tokens: int, before: int = 0) -> float:
        """Seconds of a prompt alone, after the first `before` tokens of it."""
        return tabled(self.passes, tokens) + self.pair_s * tokens * (before + tokens / 2.0)


@dataclass(frozen=True, slots=True)
class StagePrices:
    """Of an instance with a tensor-parallel degree: seconds, and what fits."""

    tp: int
    encode: EncodePrices | None  # None: the model reads no images
    iteration: IterationPrices
    kv_tokens: int  # of keys and values that fit beside the weights of the module that answers
    kv_tokens_encoding: int  # and beside those of the encoder too
    move_s: float  # once for each request whose keys and values move to another instance
    move_token_s: float  # and for each token
    load_s: float  # in which an instance gets other weights: those that it has not from another instance
    source: str
    spread: float  # half-width of the 80 % interval of seconds, over their value
