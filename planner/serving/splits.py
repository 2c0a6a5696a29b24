"""The declared space of static splits: which instances have which stages, how many GPUs each, and limits of batches.

    coupled   every instance does all; prompts are whole, and answers stand still meanwhile
    chunked   every instance does all; prompts in parts beside answers
    encoders  encoders apart; the others prefill and decode, in parts
    prefill   instances that encode and prefill, and others that decode
    split     encoders, prefill and decode apart: each of the three has instances of its own

Every division of the GPUs that leaves none idle is among them, each stage with a tensor-parallel degree of its own.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Literal, NamedTuple

from planner.simulate.serving import Stages
from planner.specs.serving_actions import Degree

Family = Literal["coupled", "chunked", "encoders", "prefill", "split"]
FAMILIES: dict[Family, tuple[Stages, ...]] = {
    "coupled": ("epd",),
    "chunked": ("epd",),
    "encoders": ("e", "pd"),
    "prefill": ("ep", "d"),
    "split": ("e", "p", "d"),
}
IN_PARTS: tuple[Family, ...] = ("chunked", "encoders")
OF_IMAGES: tuple[Family, ...] = ("encoders", "split")  # without images as chunked and prefill are
STAGE_WORDS = {"e": "encode", "p": "prefill", "d": "decode"}
DEGREES: tuple[Degree, ...] = (1, 2, 4, 8)
ANSWERS = (64, 128, 256, 512)  # at once on an instance
PARTS = (512, 2048, 8192)  # tokens of an iteration with prompts in parts
WHOLE = (8192,)  # tokens of an iteration with whole prompts


class Share(NamedTuple):
    """Instances with the same stages."""

    stages: Stages
    instances: int
    tp: int

    @property
    def gpus(self) -> int:
        return self.instances * self.tp

    @property
    def text(self) -> str:
        """`2 encode`, `3 prefill at tp 2`."""
        words = "+".join(STAGE_WORDS[each] for each in self.stages) if len(self.stages) < 3 else "all"
        return f"{self.instances} {words}{f' at tp {self.tp}' if self.tp > 1 else ''}"


class Split(NamedTuple):
    """A static split, with the limits of its instances."""

    family: Family
    shares: tuple[Share, ...]
    answers: int
    tokens: int

    @property
    def gpus(self) -> int:
        return sum(share.gpus for share in self.shares)

    @property
    def chunked(self) -> bool:
        return self.family in IN_PARTS

    @property
    def text(self) -> str:
        parts = f", {self.tokens} tokens at once" if self.chunked else ""
        return f"{', '.join(share.text for share in self.shares)}; {self.answers} answers{parts}"

    def times(self, count: int) -> "Split":
        """So many times as many of each."""
        shares = tuple(share._replace(instances=share.instances * count) for share in self.shares)
        return self._replace(shares=shares)


def every_split(family: Family, gpus: int, degrees: Sequence[int], answers: Sequence[int] = ANSWERS) -> Iterator[Split]:
    """Yield each split of a family that has exactly so many GPUs."""
    stages = FAMILIES[family]
    tokens = PARTS if family in IN_PARTS else WHOLE
    for parts in divisions(gpus, len(stages)):
        for tps in product(*([tp for tp in degrees if part % tp == 0] for part in parts)):
            shares = tuple(Share(own, part // tp, tp) for own, part, tp in zip(stages, parts, tps, strict=True))
            for most, budget in product(answers, tokens):
                yield Split(family, shares, most, budget)


def divisions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Yield each way in which so many parts of at least one are a total."""
    if parts == 1:
        yield (total,)
        return
    for first in range(1, total - parts + 2):
        for rest in divisions(total - first, parts - 1):
            yield (first, *rest)
