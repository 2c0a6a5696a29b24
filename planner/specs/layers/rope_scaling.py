"""Rules that change the frequencies of rotary positions, so that a model reads longer documents than it was made for.

Pair i of D / 2 rotates by f_i = base^(-2i/D) per token; its wavelength is 2π / f_i tokens.
"""

from planner.specs.base import Count, Positive, Spec


class LinearScaling(Spec, tag_field="rule", tag="linear"):
    """Every frequency divided by `factor` (position interpolation, arXiv 2306.15595)."""

    factor: Positive


class Llama3Scaling(Spec, tag_field="rule", tag="llama3", kw_only=True):
    """Frequencies of wavelengths above original / low are divided by `factor`, those below original / high are kept,
    and those between are interpolated (Llama 3.1, arXiv 2407.21783).
    """

    factor: Positive
    low: Positive = 1.0
    high: Positive = 4.0
    original: Count  # tokens of the documents before

    def __post_init__(self) -> None:
        if self.high < self.low:
            raise ValueError(f"rope_scaling.high {self.high:g} is below low {self.low:g} | such as 4, and 1")


class YarnScaling(Spec, tag_field="rule", tag="yarn", kw_only=True):
    """Pairs that rotate more than `fast` times in a document are kept, those that rotate less than `slow` times have
    their frequency divided by `factor`, between them is a ramp over pairs (YaRN, arXiv 2309.00071).
    """

    factor: Positive
    fast: Positive = 32.0
    slow: Positive = 1.0
    original: Count  # tokens of the documents before
    attention: Positive | None = None  # factor of rotated queries, and of keys; None: 0.1·ln(factor) + 1
    truncate: bool = True  # the ramp begins and ends at whole pairs


RopeScaling = LinearScaling | Llama3Scaling | YarnScaling
