"""Items of modules beside the samples, batch by batch, with their readers.

Samples come first, then the modules that they read, then those that these read: an item is in the batch of its readers.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from planner.errors import InputError
from planner.specs.model import Model
from planner.specs.workload.items import Size, item_outputs, item_tokens
from planner.specs.workload.length_sources import StreamFile, Workload
from planner.specs.workload.samples import ReadersByItem, SampleBatch
from planner.specs.workload.stream_sources import DrawnStream, StreamItem, read_stream_items, sample_count


@dataclass(frozen=True, slots=True)
class SourcePaths:
    """The files that errors refer to."""

    job: Path
    model: Path
    base: Path  # folder of the job's relative paths


def add_streams(
    batches: Sequence[SampleBatch], workload: Workload, model: Model, samples: str, seed: int, where: SourcePaths
) -> Iterator[SampleBatch]:
    """Yield the batches with the items that their samples read. Raises InputError."""
    if not workload.streams:
        yield from batches
        return
    streams = StreamReader(workload, model, samples, seed, where)
    for batch in batches:
        yield streams.add_to(batch)


class StreamReader:
    """The streams of a workload: files are read once, and found by reader; drawn sizes are kept for some batches."""

    def __init__(self, workload: Workload, model: Model, samples: str, seed: int, where: SourcePaths) -> None:
        self.model, self.samples = model, samples
        self.order = stream_order(workload, model, samples, where)
        self.files = {
            name: [*read_stream_items(stream, name, model, where.base)]
            for name, stream in workload.streams.items()
            if isinstance(stream, StreamFile)
        }
        counts = {samples: sample_count(workload, where.base)} | {name: len(each) for name, each in self.files.items()}
        for name, items in self.files.items():
            require_readers(items, name, counts)
        self.by_reader = {name: numbers_by_reader(items) for name, items in self.files.items()}
        self.drawn = {
            name: DrawnStream(stream, name, model, seed)
            for name, stream in workload.streams.items()
            if not isinstance(stream, StreamFile)
        }

    def add_to(self, batch: SampleBatch) -> SampleBatch:
        """Return the batch with the items that its samples read, themselves or over other modules. Raises
        InputError.
        """
        builder = BatchBuilder(self.model, self.samples, batch)
        for name in self.order:
            builder.add_stream(name, self.items(name, builder), from_file=name in self.files)
        return builder.batch()

    def items(self, name: str, builder: "BatchBuilder") -> list[StreamItem]:
        """Return the items of a stream that name a reader in the batch, or one that was left out of it."""
        near = [(target, reader) for target in self.model.targets(name) for reader in builder.near(target)]
        if name in self.drawn:
            highest = builder.highest(name)
            return self.drawn[name].items(sorted(reader for _, reader in near if reader <= highest))
        index = self.by_reader[name]
        return [self.files[name][number] for number in sorted({n for key in near for n in index.get(key, ())})]


def numbers_by_reader(items: Sequence[StreamItem]) -> dict[tuple[str, int], list[int]]:
    """Return, by module and number of a reader, the items that it reads."""
    numbers: dict[tuple[str, int], list[int]] = defaultdict(list)
    for item in items:
        for target, readers in item.readers.items():
            for reader in readers:
                numbers[target, reader].append(item.number)
    return numbers


def stream_order(workload: Workload, model: Model, samples: str, where: SourcePaths) -> list[str]:
    """Return the modules with streams, each after all modules that read it. Raises InputError unless every module but
    the samples' has a stream and feeds another, and no stream is of an unknown module.
    """
    for name in workload.streams:
        at = f"{where.job} (workload.streams.{name})"
        if name not in model.modules:
            raise InputError(f"the model has no module `{name}`", where=at, fix=f"one of {', '.join(model.modules)}")
        if name == samples:
            fix = "give its sizes under workload.lengths, or set another workload.module"
            raise InputError(f"the workload's samples are the items of `{name}` already", where=at, fix=fix)
    if model.targets(samples):
        message = f"samples are items of the module that ends in a loss, and `{samples}` feeds another"
        raise InputError(message, where=f"{where.job} (workload.module)", fix="name the one that feeds no other")
    order, waiting = [samples], [name for name in model.modules if name != samples]
    for name in waiting:
        if not model.targets(name):
            message = f"no module reads the outputs of `{name}`: no edge leads from it"
            raise InputError(message, where=f"{where.model} (edges)", fix="add the edge, or leave the module out")
        if name not in workload.streams:
            message = f"`{name}` has no items: the workload has no stream of it"
            fix = f"{name}: {{from: file, path: items.csv, column: {model.modules[name].input_unit}, reads: row}}"
            raise InputError(message, where=f"{where.job} (workload.streams)", fix=fix)
    while waiting:  # edges have no cycle, so some module is next
        name = next(name for name in waiting if set(model.targets(name)) <= set(order))
        waiting.remove(name)
        order.append(name)
    return order[1:]


def require_readers(items: Sequence[StreamItem], name: str, item_counts: Mapping[str, int | None]) -> None:
    """Raises InputError where an item names a reader that does not exist. `item_counts`: module → number of items."""
    for item in items:
        for target, readers in item.readers.items():
            count = item_counts.get(target)
            missing = [reader for reader in readers if count is not None and reader >= count]
            if missing:
                message = (
                    f"item {item.number} of `{name}` is read by item {missing[0]} of `{target}`, which has {count}"
                )
                raise InputError(message, where=item.where, fix=f"items are counted from 0: name one below {count}")


class BatchBuilder:
    """Collects the items of every module in one batch."""

    def __init__(self, model: Model, samples: str, batch: SampleBatch) -> None:
        self.model, self.samples, self.sample_batch = model, samples, batch
        self.kept: dict[str, dict[int, Size]] = {samples: dict(batch.items)}
        self.left_out: dict[str, set[int]] = {samples: set(batch.dropped)}
        self.feeds: dict[str, dict[str, ReadersByItem]] = {}
        # Module, item → tokens that outputs of encoders replace so far
        self.replaced_tokens: dict[tuple[str, int], int] = defaultdict(int)

    def near(self, target: str) -> set[int]:
        """Return the items of a module that are in the batch, or were left out of it."""
        return self.left_out[target].union(self.kept[target])

    def highest(self, name: str) -> int:
        """Return the highest number among the items that may read those of a module; -1: there are none."""
        return max((item for target in self.model.targets(name) for item in self.kept[target]), default=-1)

    def add_stream(self, name: str, items: Sequence[StreamItem], from_file: bool) -> None:
        """Add the items of a module that have readers in the batch. Where outputs are more than a reader's tokens, a
        drawn item is left out, and one from a file (`from_file`) is an error. Raises InputError.
        """
        self.kept[name], self.left_out[name] = {}, set()
        self.feeds[name] = {target: {} for target in self.model.targets(name)}
        for item in items:
            readers = self.readers(item)
            full = self.overflow(name, item, readers)
            if full and from_file:
                raise InputError(full, where=item.where, fix="count them into its tokens, or let it read less")
            if readers and not full:
                self.add_item(name, item, readers)
            elif full or self.reader_left_out(item):
                self.left_out[name].add(item.number)

    def reader_left_out(self, item: StreamItem) -> bool:
        """Whether a reader of the item was left out."""
        return any(reader in self.left_out[target] for target, of in item.readers.items() for reader in of)

    def readers(self, item: StreamItem) -> dict[str, tuple[int, ...]]:
        """Return an item's readers in the batch, by module."""
        found = {target: tuple(r for r in of if r in self.kept[target]) for target, of in item.readers.items()}
        return {target: readers for target, readers in found.items() if readers}

    def add_item(self, name: str, item: StreamItem, readers: Mapping[str, tuple[int, ...]]) -> None:
        """Add one item with its readers."""
        self.kept[name][item.number] = item.size
        for target, of in readers.items():
            self.feeds[name][target][item.number] = of
            for reader in of if self.replaces_tokens(name, target) else ():
                self.replaced_tokens[target, reader] += self.outputs(name, item)

    def overflow(self, name: str, item: StreamItem, readers: Mapping[str, tuple[int, ...]]) -> str:
        """Return which reader has fewer tokens than outputs, as text; empty: none."""
        for target, of in readers.items():
            for reader in of if self.replaces_tokens(name, target) else ():
                outputs = self.replaced_tokens[target, reader] + self.outputs(name, item)
                tokens = self.tokens(target, reader)
                if outputs > tokens:
                    has = f"item {reader} of `{target}` has {tokens} tokens"
                    return f"{has}, and {outputs} outputs of encoders stand for them"
        return ""

    def replaces_tokens(self, name: str, target: str) -> bool:
        """Whether outputs of a module replace tokens of `target`."""
        return any((e.source, e.target, e.by) == (name, target, "tokens") for e in self.model.edges)

    def outputs(self, name: str, item: StreamItem) -> int:
        """Return the number of outputs of an item."""
        return item_outputs(self.model.modules[name], item.size)

    def tokens(self, module: str, item: int) -> int:
        """Return the tokens of an item that was added."""
        return item_tokens(self.kept[module][item])

    def batch(self) -> SampleBatch:
        """Return the batch with all items that were added."""
        others = [name for name in self.kept if name != self.samples]
        return replace(
            self.sample_batch,
            streams={name: self.kept[name] for name in others},
            feeds=self.feeds,
            left_out={name: tuple(sorted(self.left_out[name])) for name in others if self.left_out[name]},
        )
