"""Measures a data loader on this machine: seconds of an item stage by stage on one core, and of the whole loader with
none, one and more worker processes, as `planner run --data` starts them.

Whole loaders are timed from the batch at which all workers are at work, so that their start counts nothing. The fit of
a / c + d through the timings has no hold-out where there are two of them, as on two cores.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import gcd, sqrt
from multiprocessing.reduction import ForkingPickler
from statistics import fmean, pstdev
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from planner.callbacks import OnProgress, silent
from planner.costs import CORES, fitted, item_seconds
from planner.errors import InputError, PlannerError
from planner.launch import contents_ahead, usable_cores
from planner.plan.task import NAME_CHARS
from planner.specs.base import with_fields
from planner.specs.loader import LoaderFile, LoaderPool, LoaderSettings, LoaderStage, LoaderTiming

INTERVAL = 1.2816  # of a normal distribution: standard deviations on each side of 80 %
LEAST_BATCHES = 6  # that are timed, for each worker
STAGE_S, LOADER_S = 1.0, 2.0  # seconds that measuring the stages, and each number of workers, takes about
HAND_OVER = "hand-over"  # what workers add: batches through shared memory


@dataclass(frozen=True, slots=True)
class MeasuredLoader:
    """A loader to measure: the stages of an item, of which the first takes its number, and how items become a batch."""

    name: str
    count: int
    stages: Mapping[str, Callable[[Any], Any]]
    pack: Callable[[list[Any]], Any]
    batch: int = 16

    def item(self, number: int) -> Any:
        """An item through all of its stages. Raises InputError that names it."""
        value: Any = number
        for stage, apply in self.stages.items():
            value = self.applied(stage, apply, value, number)
        return value

    def applied(self, stage: str, apply: Callable[[Any], Any], value: Any, number: int) -> Any:
        """What a stage makes of an item. Raises InputError that names both."""
        try:
            return apply(value)
        except PlannerError:
            raise
        except (Exception, SystemExit) as error:
            message = f"item {number} raises in the stage `{stage}`: {type(error).__name__}: {error}"
            raise InputError(message, where=self.name, fix="leave the item out, or mend it") from error


@dataclass(frozen=True, slots=True)
class Batches(Dataset[Any]):
    """The packed batches of a loader, over and over; an error that a batch raises takes its place."""

    loader: MeasuredLoader

    def __getitem__(self, number: int) -> Any:
        first = number * self.loader.batch
        try:
            items = [self.loader.item((first + at) % self.loader.count) for at in range(self.loader.batch)]
            return self.loader.pack(items)
        except PlannerError as error:
            return error


def measure_loader(measured: MeasuredLoader, seconds: float = 1.0, on_progress: OnProgress = silent) -> LoaderFile:
    """The stages of a loader and its timings on this machine; `seconds`: times as long as usual. Raises InputError."""
    cores = usable_cores()
    tried = [0, *sorted({*(2**power for power in range(cores.bit_length()) if 2**power <= cores), cores})]
    on_progress(0, len(tried), "stages")
    require_handed_over(measured)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as workers have
    stages, items, spread = stage_times(measured, seconds * STAGE_S)
    torch.set_num_threads(threads)
    timings = []
    for at, workers in enumerate(tried):
        on_progress(at, len(tried), f"{workers} workers")
        rate = items_per_second(measured, workers, 2, seconds * LOADER_S)
        timings.append(LoaderTiming(workers=workers, seconds=1.0 / rate))
    on_progress(len(tried), len(tried), "")
    slope, constant = fitted([(each.workers, each.seconds) for each in timings if each.workers])
    added = max(0.0, slope - sum(stage.seconds for stage in stages))
    if added + constant > 0:
        stages.append(LoaderStage(name=HAND_OVER, pool=CORES, seconds=added, constant=constant))
    if torch.cuda.is_available():
        stages.append(copy_stage(measured))
    found = LoaderFile(
        format=LoaderFile.FORMAT,
        name=measured.name,
        source="measured",
        machine=f"{usable_cores()} cores, torch {torch.__version__}",
        items=items,
        pools={CORES: LoaderPool(units=cores, shared=True)},
        stages=tuple(stages),
        timings=tuple(timings),
    )
    return with_fields(found, settings=best_alone(found, spread / sqrt(measured.batch)))


def copy_stage(measured: MeasuredLoader) -> LoaderStage:
    """Batches to the GPU from page-locked memory, an item's part of one."""
    packed = measured.pack([measured.item(number) for number in range(measured.batch)])
    held = byte_count(packed)
    pinned, there = torch.empty(max(1, held), dtype=torch.uint8).pin_memory(), []
    for _ in range(LEAST_BATCHES):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        pinned.to("cuda", non_blocking=True)
        torch.cuda.synchronize()
        there.append((time.perf_counter() - begun) / measured.batch)
    each, spread = fmean(there[1:]), relative_spread(there[1:])
    return LoaderStage(name="copy", constant=each, spread=spread, bytes=held / measured.batch)


def best_alone(loader: LoaderFile, spread: float) -> LoaderSettings:
    """The settings of a loader that has the machine to itself: the quickest number of workers, of equal ones the
    fewest; and more batches ready where their seconds are spread more widely.
    """
    cores = loader.pools[CORES].units
    workers = min(range(cores + 1), key=lambda count: (item_seconds(loader, count), count))
    return LoaderSettings(workers=workers, prefetch=2 if spread < 0.5 else 4)


def stage_times(measured: MeasuredLoader, seconds: float) -> tuple[list[LoaderStage], int, float]:
    """Each stage on one core, packing too, over items that are spread over the whole; their number; and the spread of
    all stages together. The first item warms up.
    """
    measured.pack([measured.item(0)])
    times: dict[str, list[float]] = {name: [] for name in measured.stages}
    held = dict.fromkeys([*times, "pack"], 0)
    packed: list[float] = []
    begun, batch = time.perf_counter(), list[Any]()
    for number in spread_out(measured.count):
        value: Any = number
        for name, apply in measured.stages.items():
            start = time.perf_counter()
            value = measured.applied(name, apply, value, number)
            times[name].append(time.perf_counter() - start)
            held[name] += byte_count(value)
        batch.append(value)
        if len(batch) == measured.batch or len(batch) == measured.count:
            start = time.perf_counter()
            whole = measured.pack(batch)
            packed += [(time.perf_counter() - start) / len(batch)] * len(batch)
            held["pack"] += byte_count(whole)
            batch = []
            if time.perf_counter() - begun > seconds:
                break
    items = len(packed)
    found = {**times, "pack": packed}
    every = [sum(each) for each in zip(*(each[:items] for each in found.values()), strict=True)]
    stages = [
        LoaderStage(
            name=name, pool=CORES, seconds=fmean(each), spread=relative_spread(each), bytes=held[name] / len(each)
        )
        for name, each in found.items()
        if sum(each) > 0
    ]
    return stages, items, relative_spread(every)


def relative_spread(times: Sequence[float]) -> float:
    """Half the width of the 80 % interval over the mean."""
    return INTERVAL * pstdev(times) / fmean(times)


def spread_out(count: int) -> Iterator[int]:
    """The numbers of all items once, neighbours far apart, so that any part stands for the whole."""
    stride = next(step for step in range(max(1, round(count * 0.618)), count + 1) if gcd(step, count) == 1)
    return (at * stride % count for at in range(count))


def items_per_second(measured: MeasuredLoader, workers: int, prefetch: int, seconds: float) -> float:
    """Items a second that a consumer is given which does nothing else. Raises InputError for an item that raises."""
    most = 10**6
    ready = checked(contents_ahead(Batches(measured), range(most), workers, prefetch), measured.name)
    for _ in range(max(1, workers)):
        next(ready)
    begun, done = time.perf_counter(), 0
    while done < LEAST_BATCHES * max(1, workers) or time.perf_counter() - begun < seconds:
        next(ready)
        done += 1
    return done * measured.batch / (time.perf_counter() - begun)


def checked(batches: Iterable[Any], where: str) -> Iterator[Any]:
    """Batches as they come. Raises the error that one is, and InputError where a worker is gone."""
    try:
        for batch in batches:
            if isinstance(batch, PlannerError):
                raise batch
            yield batch
    except RuntimeError as error:  # torch's, of a worker that is gone
        message = f"a worker process ended before its batch was there: {error}"
        raise InputError(message, where=where, fix="a dataset that loads in a process of torch's DataLoader") from error


def require_handed_over(measured: MeasuredLoader) -> None:
    """Raises InputError where no process can hand a batch to another: torch would wait for it forever."""
    items = [measured.item(number) for number in range(min(measured.batch, measured.count))]
    try:
        packed = measured.pack(items)
    except Exception as error:
        message = f"{len(items)} items make no batch: {type(error).__name__}: {error}"
        fix = "items of one size, or a `collate_fn` of the dataset that packs them"
        raise InputError(message, where=measured.name, fix=fix) from error
    try:
        ForkingPickler.dumps(packed)
    except Exception as error:
        message = f"a worker cannot hand over its batches, which cannot be pickled: {error}"
        fix = "return tensors, arrays, numbers or text, and no open files, generators or local functions"
        raise InputError(message, where=measured.name, fix=fix) from error


def byte_count(value: Any) -> int:
    """Bytes of the tensors and arrays in a value."""
    if isinstance(value, Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, Mapping):
        return sum(map(byte_count, value.values()))
    if isinstance(value, bytes | str):
        return len(value)
    if isinstance(value, list | tuple):
        return sum(map(byte_count, value))
    return int(getattr(value, "nbytes", 0))


def loader_of_object(reference: str, batch: int) -> MeasuredLoader:
    """The loader of a map-style dataset, `module:object`. Its stages are the functions of its attribute `stages`, a
    mapping by name, each of which takes what the one before it returned, the first an item's number; else one stage.
    Raises InputError.
    """
    from importlib import import_module

    module, _, name = reference.partition(":")
    try:
        found = getattr(import_module(module), name)
        found = found() if isinstance(found, type) else found
        count = len(found)
    except (Exception, SystemExit) as error:
        message = f"there is no dataset: {type(error).__name__}: {error}"
        fix = "MODULE:OBJECT, a torch.utils.data.Dataset with __len__ and __getitem__, importable from this folder"
        raise InputError(message, where=reference, fix=fix) from error
    if count < 1:
        raise InputError("the dataset has no items", where=reference, fix="give it some")
    stages = getattr(found, "stages", None) or {"item": found.__getitem__}
    named = isinstance(stages, Mapping) and all(
        isinstance(each, str) and re.fullmatch(NAME_CHARS, each) for each in stages
    )
    if not named or not all(map(callable, stages.values())):
        fix = "a mapping of functions by names of letters, digits and any of _ . + -"
        raise InputError("its `stages` are no functions by name", where=reference, fix=fix)
    pack = getattr(found, "collate_fn", None) or torch.utils.data.default_collate
    return MeasuredLoader(reference, count, dict(stages), pack, min(batch, count))
