"""Items of modules beside the samples, batch by batch: who reads them, and what of them a batch has.

Samples come first, then the modules that they read, then what those read: an item is in a batch with what reads it.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from planner.errors import InputError
from planner.specs.items import Size, tokens_of
from planner.specs.lengths import Batch, Readers
from planner.specs.model import Model
from planner.specs.stream_rows import Item, drawn, read_items, rows_there
from planner.specs.workload import StreamFile, Workload


@dataclass(frozen=True, slots=True)
class Places:
    """Where errors are."""

    job: Path
    model: Path
    base: Path  # that paths in the job are from


def with_streams(
    batches: Sequence[Batch], workload: Workload, model: Model, samples: str, seed: int, where: Places
) -> Iterator[Batch]:
    """The batches with the items that their samples read. Raises InputError."""
    if not workload.streams:
        yield from batches
        return
    order = readers_first(workload, model, samples, where)
    files = {
        name: [*read_items(stream, name, model, where.base)]
        for name, stream in workload.streams.items()
        if isinstance(stream, StreamFile)
    }
    there = {samples: rows_there(workload, where.base), **{name: len(items) for name, items in files.items()}}
    for name, items in files.items():
        require_readers(items, name, there)
    for batch in batches:
        made = Streams(model, samples, batch)
        for name in order:
            items = (
                files[name] if name in files else drawn(workload.streams[name], name, model, made.highest(name), seed)
            )
            made.take(name, items, said=name in files)
        yield made.batch()


def readers_first(workload: Workload, model: Model, samples: str, where: Places) -> list[str]:
    """The modules with streams, each behind all that read it. Raises InputError where streams are not of the model's
    modules, one for each beside the samples', and all of them read.
    """
    for name in workload.streams:
        at = f"{where.job} (workload.streams.{name})"
        if name not in model.modules:
            raise InputError(f"the model has no module `{name}`", where=at, fix=f"one of {', '.join(model.modules)}")
        if name == samples:
            fix = "say its rows under workload.lengths, or another workload.module"
            raise InputError(f"the workload's rows are the items of `{name}` already", where=at, fix=fix)
    if model.targets(samples):
        message = f"rows are samples of the module that ends in a loss, and `{samples}` feeds another"
        raise InputError(message, where=f"{where.job} (workload.module)", fix="name the one that feeds none")
    order, waiting = [samples], [name for name in model.modules if name != samples]
    for name in waiting:
        if not model.targets(name):
            message = f"nobody reads what `{name}` gives: no edge leads from it"
            raise InputError(message, where=f"{where.model} (edges)", fix="add the edge, or leave the module out")
        if name not in workload.streams:
            message = f"`{name}` has no items: the workload has no stream of it"
            fix = f"{name}: {{from: file, path: items.csv, column: {model.modules[name].reads}, reads: row}}"
            raise InputError(message, where=f"{where.job} (workload.streams)", fix=fix)
    while waiting:  # edges lead in no circle: some module is next
        name = next(name for name in waiting if set(model.targets(name)) <= set(order))
        waiting.remove(name)
        order.append(name)
    return order[1:]


def require_readers(items: Sequence[Item], name: str, there: Mapping[str, int | None]) -> None:
    """Who is named as a reader is there. Raises InputError."""
    for item in items:
        for target, readers in item.readers.items():
            count = there.get(target)
            missing = [reader for reader in readers if count is not None and reader >= count]
            if missing:
                message = (
                    f"item {item.number} of `{name}` is read by item {missing[0]} of `{target}`, which has {count}"
                )
                raise InputError(message, where=item.where, fix=f"items are counted from 0: name one below {count}")


class Streams:
    """What one batch has of every module, as it comes together."""

    def __init__(self, model: Model, samples: str, batch: Batch) -> None:
        self.model, self.samples, self.of = model, samples, batch
        self.kept: dict[str, dict[int, Size]] = {samples: dict(batch.items)}
        self.left_out: dict[str, set[int]] = {samples: set(batch.dropped)}
        self.feeds: dict[str, dict[str, Readers]] = {}
        self.made: dict[tuple[str, int], int] = defaultdict(int)  # outputs that stand for tokens of an item

    def highest(self, name: str) -> int:
        """Of the items that read a module's, the last one's number."""
        return max((item for target in self.model.targets(name) for item in self.kept[target]), default=-1)

    def take(self, name: str, items: Sequence[Item], said: bool) -> None:
        """Those that something in the batch reads. Where what they give is more than the tokens of a reader, one that
        is only drawn is left out; one that a file says is wrong: InputError.
        """
        self.kept[name], self.left_out[name] = {}, set()
        self.feeds[name] = {target: {} for target in self.model.targets(name)}
        for item in items:
            readers = self.readers(item)
            full = self.full(name, item, readers)
            if full and said:
                raise InputError(full, where=item.where, fix="count them into its tokens, or let it read less")
            if readers and not full:
                self.keep(name, item, readers)
            elif full or self.lost(item):
                self.left_out[name].add(item.number)

    def lost(self, item: Item) -> bool:
        """Whether somebody who reads it was left out."""
        return any(reader in self.left_out[target] for target, of in item.readers.items() for reader in of)

    def readers(self, item: Item) -> dict[str, tuple[int, ...]]:
        """Of an item, those in the batch."""
        found = {target: tuple(r for r in of if r in self.kept[target]) for target, of in item.readers.items()}
        return {target: readers for target, readers in found.items() if readers}

    def keep(self, name: str, item: Item, readers: Mapping[str, tuple[int, ...]]) -> None:
        self.kept[name][item.number] = item.size
        for target, of in readers.items():
            self.feeds[name][target][item.number] = of
            for reader in of if self.stands(name, target) else ():
                self.made[target, reader] += self.outputs(name, item)

    def full(self, name: str, item: Item, readers: Mapping[str, tuple[int, ...]]) -> str:
        """Who has no room for what an item gives; empty: all have."""
        for target, of in readers.items():
            for reader in of if self.stands(name, target) else ():
                outputs, tokens = self.made[target, reader] + self.outputs(name, item), self.tokens(target, reader)
                if outputs > tokens:
                    has = f"item {reader} of `{target}` has {tokens} tokens"
                    return f"{has}, and {outputs} outputs of encoders stand for them"
        return ""

    def stands(self, name: str, target: str) -> bool:
        """Whether outputs stand in place of tokens."""
        return any((e.source, e.target, e.by) == (name, target, "tokens") for e in self.model.edges)

    def outputs(self, name: str, item: Item) -> int:
        return tokens_of(item.size) // self.model.modules[name].merged

    def tokens(self, module: str, item: int) -> int:
        return tokens_of(self.kept[module][item])

    def batch(self) -> Batch:
        others = [name for name in self.kept if name != self.samples]
        return replace(
            self.of,
            streams={name: self.kept[name] for name in others},
            feeds=self.feeds,
            left_out={name: tuple(sorted(self.left_out[name])) for name in others if self.left_out[name]},
        )
