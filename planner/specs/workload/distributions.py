"""Named length distributions: inverse CDFs, piecewise linear in log length through published or measured quantiles.

Only quantiles are kept, no data: drawn lengths have their distribution and nothing else of the texts. Their mean is at
most 3 % above the measured one, since between two quantiles a heavy tail is below the straight line.

`byted` is fitted to published percentages instead, of samples and of the tokens that they hold; between these its
quantiles are chosen.
"""

from typing import TYPE_CHECKING, NamedTuple

from planner.errors import InputError
from planner.specs.workload.length_sources import LogNormal

if TYPE_CHECKING:
    import numpy as np
    from numpy.random import Generator
    from numpy.typing import NDArray

MAX_TOKENS = 10**9  # no drawn length is longer; the tail of a wide log-normal is unbounded


class Quantiles(NamedTuple):
    """Shares of all samples, rising from 0 to 1, and the length in tokens that each share is at or below."""

    source: str
    points: tuple[tuple[float, int], ...]  # (share, tokens)


DISTRIBUTIONS: dict[str, Quantiles] = {
    "wikipedia": Quantiles(
        "token lengths of 1,000,000 Wikipedia articles released with FlexSP (arXiv 2412.01523, "
        "PKU-DAIR/Hetu-Galvatron branch flexsp); the shares 0.01, 0.05, 0.4, 0.6, 0.85, 0.97, 0.9975, 0.9995 and "
        "0.99999 are of its first half",
        (
            *((0.0, 1), (0.01, 39), (0.05, 67), (0.10, 87), (0.25, 146), (0.40, 242), (0.50, 347), (0.60, 471)),
            *((0.75, 862), (0.788, 1024), (0.85, 1461), (0.896, 2048), (0.90, 2112), (0.95, 3721), (0.956, 4096)),
            *((0.97, 5364), (0.984, 8192), (0.99, 10921), (0.9952, 16384), (0.9975, 23290), (0.9987, 32768)),
            *((0.999, 37367), (0.9995, 51908), (0.9999, 102060), (0.99999, 264109), (1.0, 1823777)),
        ),
    ),
    "github": Quantiles(
        "measured over 23,544 unique text and code files of 29 Python source distributions, cl100k_base tokenizer",
        (
            *((0.0, 3), (0.01, 17), (0.05, 54), (0.10, 109), (0.25, 311), (0.40, 654), (0.50, 981), (0.60, 1444)),
            *((0.75, 2772), (0.85, 4859), (0.90, 7130), (0.95, 13100), (0.97, 19593), (0.98, 26898), (0.99, 48144)),
            *((0.995, 93155), (0.9975, 174946), (0.999, 385920), (0.9995, 598320), (0.9999, 1364420), (1.0, 1616397)),
        ),
    ),
    "web": Quantiles(
        "measured over 50,000 unique tag-stripped HTML pages of 8 open documentation packages, cl100k_base tokenizer",
        (
            *((0.0, 10), (0.01, 17), (0.05, 21), (0.10, 23), (0.25, 100), (0.40, 139), (0.50, 186), (0.60, 231)),
            *((0.75, 623), (0.85, 1388), (0.90, 2458), (0.95, 4852), (0.97, 7092), (0.98, 9984), (0.99, 21966)),
            *((0.995, 29335), (0.9975, 37399), (0.999, 72671), (0.9995, 110580), (0.9999, 281059), (1.0, 518611)),
        ),
    ),
    # K = 1024. 0.05 % of samples with 12.1 % of tokens put the mean at 8666; then the share 0.993345 and the lengths
    # 334180 and 22027 follow from the tokens above 128K, above 256K and below 128K. What lies below 4096 was chosen.
    "byted": Quantiles(
        "fitted to percentages published with ByteScale (arXiv 2502.21231): 80 % of samples have at most 4K tokens, "
        "1 % have 128K or more and hold 44.3 % of all tokens, those above 256K hold 37 %, and the 0.05 % that reach "
        "2M hold 12.1 %",
        (
            *((0.0, 16), (0.25, 256), (0.50, 900), (0.80, 4096), (0.95, 22027), (0.99, 131072)),
            *((0.993345, 262144), (0.999, 334180), (0.9995, 2097151), (1.0, 2097152)),
        ),
    ),
}


def draw_lengths(name: str, count: int, seed: int) -> list[int]:
    """Draw `count` independent lengths of the distribution `name`; the same seed draws the same lengths.

    Raises InputError for an unknown name.
    """
    if name not in DISTRIBUTIONS:
        raise InputError(f"there is no distribution `{name}`", fix=f"name one of {', '.join(DISTRIBUTIONS)}")
    return [int(length) for length in lengths_at(name, random_generator(seed).random(count))]


def lengths_at(name: str, shares: "NDArray[np.float64]") -> "NDArray[np.float64]":
    """The length of the distribution `name` that each of these shares of samples is at or below, in whole tokens."""
    import numpy as np

    known, tokens = zip(*DISTRIBUTIONS[name].points, strict=True)
    lengths: NDArray[np.float64] = np.rint(np.exp(np.interp(shares, known, np.log(tokens))))
    return lengths


def draw_mixture(parts: tuple[LogNormal, ...], count: int, seed: int) -> list[int]:
    """Draw `count` independent lengths of a mixture of log-normals, each between 1 and MAX_TOKENS.

    Raises InputError where no part has a weight, or a median is below 1.
    """
    import numpy as np

    weights = np.array([part.weight for part in parts])
    if not weights.sum() > 0:
        raise InputError("the weights of the mix add up to nothing", fix="give one part a weight above 0")
    if any(part.median < 1 for part in parts):
        raise InputError("a part of the mix has a median below 1 token", fix="give it a median of 1 or more")
    bounds = np.cumsum(weights / weights.sum())
    chosen = np.minimum(np.searchsorted(bounds, random_generator(seed).random(count), side="right"), len(parts) - 1)
    log_medians = np.log([part.median for part in parts])[chosen]
    sigmas = np.array([part.sigma for part in parts])[chosen]
    # A stream of its own, so that more draws continue fewer
    normals = random_generator(seed, jumps=1).standard_normal(count)
    logs = np.clip(log_medians + sigmas * normals, 0.0, np.log(MAX_TOKENS))
    return [int(length) for length in np.rint(np.exp(logs))]


def random_generator(seed: int, jumps: int = 0) -> "Generator":
    """Return a random generator with the same stream in every version of numpy; other `jumps` give other streams."""
    from numpy.random import PCG64, Generator

    if seed < 0:
        raise InputError(f"the seed {seed} is negative", fix="give 0 or more")
    return Generator(PCG64(seed).jumped(jumps) if jumps else PCG64(seed))
