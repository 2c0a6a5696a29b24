"""The stages of a data loader: what an item takes in each, which cores and links they divide, and how.

A stage that is given c whole units of its pool takes seconds / c + constant for an item (f(c) = a/c + d of BGL, NSDI
2023); one without a pool takes what it takes.
"""

from typing import Annotated, ClassVar, Literal

import msgspec

from planner.specs.base import Amount, Count, Index, Name, Positive, SampleCount, Source, Spec

UnitCount = Annotated[int, msgspec.Meta(ge=1, le=10_000)]


class LoaderPool(Spec, kw_only=True):
    """Cores of a machine, or parts of a link, that stages divide in whole units."""

    units: UnitCount
    machines: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 1  # each has these units, and works on items of its own
    # Whether each unit takes an item through all stages of the pool, as workers of torch's DataLoader do
    shared: bool = False


class LoaderStage(Spec, kw_only=True):
    """One stage, and what an item takes in it."""

    name: Name
    pool: Name | None = None  # whose units it is given; None: it has what it needs, whatever others are given
    seconds: Amount = 0.0  # of an item on one unit, divided by the units that it is given
    constant: Amount = 0.0  # seconds of an item that no unit shortens
    spread: Amount = 0.0  # half-width of the 80 % interval of items over their mean
    bytes: Amount = 0.0  # of an item behind the stage

    def __post_init__(self) -> None:
        if self.seconds + self.constant <= 0:
            raise ValueError(f"the stage `{self.name}` takes 0 s | leave it out, or measure it over more items")


class LoaderTiming(Spec, kw_only=True):
    """Measured seconds of an item when the whole loader runs with so many worker processes."""

    workers: Index  # 0: the process that trains loads by itself
    seconds: Positive


class LoaderSettings(Spec, kw_only=True):
    """How a process that trains is given its batches."""

    workers: Annotated[int, msgspec.Meta(ge=0, le=1024)]  # processes that load; 0: it loads by itself
    prefetch: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 2  # steps that each of them has ready
    pinned: bool = False  # whether batches are copied to the GPU from page-locked memory, beside compute
    order: Literal["plan", "stored"] = "stored"  # in which a worker reads the items of a step: as they lie in the files


class LoaderShares(Spec, kw_only=True):
    """How the units of all pools are divided, and what comes of it."""

    units: dict[Name, Count]  # by stage; stages that share all units of a pool have them all
    seconds: Amount  # of an item in the slowest stage, the trainer aside
    slowest: str
    equal_seconds: Amount  # where each pool is split equally


class LoaderFile(Spec, kw_only=True):
    """A file of loader stages, `planner.loader/1`."""

    FORMAT: ClassVar[str] = "planner.loader/1"
    format: str
    name: str
    source: Source
    machine: str = ""  # on which it was measured, or what published it
    items: SampleCount = 1  # that were measured
    trainer_seconds: Amount = 0.0  # of an item, of who trains on it; 0: not known
    pools: dict[Name, LoaderPool] = {}
    stages: Annotated[tuple[LoaderStage, ...], msgspec.Meta(min_length=1, max_length=64)]
    timings: tuple[LoaderTiming, ...] = ()
    settings: LoaderSettings | None = None  # of a loader that has the machine to itself
    shares: LoaderShares | None = None  # that were decided

    def __post_init__(self) -> None:
        names = [stage.name for stage in self.stages]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice:
            raise ValueError(f"two stages are called `{twice}` | give each a name of its own")
        lost = next((stage for stage in self.stages if stage.pool is not None and stage.pool not in self.pools), None)
        if lost:
            raise ValueError(f"the stage `{lost.name}` names no pool of the file | name one of `pools`, or add it")
        if len({timing.workers for timing in self.timings}) < len(self.timings):
            raise ValueError("two timings are of as many workers | keep one of each")
