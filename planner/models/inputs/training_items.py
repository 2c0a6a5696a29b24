"""Items as a rank's shard of a packed batch, from any source.

Synthetic items are the same on every rank, and drawn in blocks, so that a rank draws only its own shard.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from types import MappingProxyType
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from planner.errors import InputError
from planner.models.batch import Batch
from planner.models.build import named_generator
from planner.models.inputs.token_places import ItemGrids, token_places
from planner.models.networks.audio_network import FRAMES_SEEN, frames_within_clip
from planner.models.networks.vision_network import patch_width
from planner.models.sequence_parallel import NO_SEQUENCE_PARALLEL, SequenceParallel
from planner.specs.layers import Audio, Module, Vit
from planner.specs.layers.audio import FRAMES_PER_TOKEN
from planner.specs.sequence_sharding import Span
from planner.specs.workload.items import Document

CPU = torch.device("cpu")
ROWS_PER_DRAW = 256  # rows drawn at a time
TOKEN_SKEW = 3.0  # token ids are vocab * u^3: skewed like text, so that a model has something to learn

Items = Sequence[tuple[int, int]]  # (item, number of tokens)
Documents = Sequence[tuple[int, int] | Document]  # whole items or parts of them, in the order of a group's batch


class SampleSource(Protocol):
    """A source of the contents of items."""

    def check(self, spec: Module, items: Items) -> None:
        """Raises InputError where an item does not exist, or has not the number of tokens that the plan states."""

    def item(self, spec: Module, item: int, span: tuple[int, int]) -> tuple[Tensor, Tensor]:
        """Inputs and targets, as in `Batch`, of an item's tokens `span[0]` to `span[1]` (exclusive), in host memory."""

    def target_count(self, spec: Module, item: int, tokens: int) -> int:
        """The number of an item's targets, over which the loss is summed."""


HeldSpan = tuple[Document, tuple[int, int]]  # of an item's part: its first token, and the one after its last


class PackedContents(NamedTuple):
    """Inputs and targets of spans, one after another, with the shapes of `Batch`; and how many targets each has."""

    inputs: Tensor
    targets: Tensor
    counts: list[int]


class PlannedItems(NamedTuple):
    """What a plan says of the items of a module, besides their tokens; and their contents, where they are loaded."""

    weights: Mapping[int, float] | None = None  # of each of an item's targets in the loss; None: all are 1
    grids: ItemGrids = MappingProxyType({})  # of items whose tokens are places of images
    loaded: PackedContents | None = None  # of what the rank holds of them; None: they are read as a batch is made


AS_THEY_ARE = PlannedItems()


class SyntheticSamples:
    """Random items, drawn by seed and item number: every token has a next token as target."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def check(self, spec: Module, items: Items) -> None:
        """Nothing to check: any item exists, with any number of tokens."""

    def item(self, spec: Module, item: int, span: tuple[int, int]) -> tuple[Tensor, Tensor]:
        """Inputs and targets of the tokens `span`, with the shapes of `Batch.inputs` and `Batch.targets`."""
        return synthetic_item(spec, item, span, self.seed)

    def target_count(self, spec: Module, item: int, tokens: int) -> int:
        """Every token of an item has a target; where tokens are merged, every output."""
        return tokens // spec.tokens_per_output


def synthetic_batch(
    spec: Module,
    documents: Documents,
    seed: int,
    *,
    sequence_parallel: SequenceParallel = NO_SEQUENCE_PARALLEL,
    device: torch.device = CPU,
) -> Batch:
    """This rank's batch of synthetic items."""
    return batch_of_documents(
        SyntheticSamples(seed), spec, documents, sequence_parallel=sequence_parallel, device=device
    )


def batch_of_documents(
    source: SampleSource,
    spec: Module,
    documents: Documents,
    *,
    sequence_parallel: SequenceParallel = NO_SEQUENCE_PARALLEL,
    device: torch.device = CPU,
    planned: PlannedItems = AS_THEY_ARE,
) -> Batch:
    """This rank's shard of the packed documents. Without documents: the batch of an idle rank. Raises InputError."""
    packed = [Document(*each) for each in documents]
    source.check(spec, [(document.item, document.tokens) for document in packed])
    lengths = [document.tokens for document in packed]
    ends = list(accumulate(lengths, initial=0))
    local = sequence_parallel.local_spans(lengths)
    check_batch(spec, packed, local)
    spans = held_spans(packed, local)
    inputs, targets, counts = planned.loaded or packed_contents(source, spec, spans)
    weights = planned.weights
    each = None if weights is None else target_weights(weights, spans, counts)
    return Batch(
        inputs=inputs.to(device, non_blocking=inputs.is_pinned()),
        targets=targets.to(device, non_blocking=targets.is_pinned()),
        positions=torch.cat([torch.arange(*span) for _, span in spans]).to(device),
        cu_seqlens=torch.tensor(ends, dtype=torch.int32),
        sequence_parallel=sequence_parallel,
        weights=each if each is None else each.to(device),
        **token_places(spec, packed, spans, planned.grids, device),
    )


def held_spans(documents: Sequence[Document], local: Sequence[Span]) -> list[HeldSpan]:
    """The parts of packed documents that a rank holds; of an idle one an empty part of the first item."""
    return [(documents[document], (first, last)) for document, first, last in local] or [(Document(0, 0), (0, 0))]


def packed_contents(
    source: SampleSource, spec: Module, spans: Sequence[HeldSpan], as_stored: bool = False
) -> PackedContents:
    """The contents of spans in host memory; `as_stored`: read by rising item, as items lie in files."""
    order = sorted(range(len(spans)), key=lambda at: (spans[at][0].item, spans[at][1]) if as_stored else at)
    read = {at: document_contents(source, spec, *spans[at]) for at in order}
    inputs, targets = zip(*(read[at] for at in range(len(spans))), strict=True)
    return PackedContents(torch.cat(inputs), torch.cat(targets), [len(each) for each in targets])


def target_weights(weights: Mapping[int, float], spans: Sequence[HeldSpan], targets: Sequence[int]) -> Tensor:
    """The weight of each target `(all of these)`, in float64: `targets` are in each of the spans."""
    each = [weights.get(document.item, 0.0) for document, _ in spans]
    return torch.tensor(each, dtype=torch.float64).repeat_interleave(torch.tensor(targets))


def document_contents(
    source: SampleSource, spec: Module, document: Document, span: tuple[int, int]
) -> tuple[Tensor, Tensor]:
    """Inputs and targets of the tokens `span` of a document, with the shapes of `Batch.inputs` and `Batch.targets`."""
    item, tokens, begin = document
    inputs, targets = source.item(spec, item, (begin + span[0], begin + span[1]))
    return (frames_within_clip(inputs, span, tokens) if spec.input_unit == "frames" else inputs), targets


def check_batch(spec: Module, documents: Documents, held: Sequence[Span] = ()) -> None:
    """Raises InputError for documents and shards with which the model would compute something else, or fail."""
    unit = spec.tokens_per_output
    for item, length, *_ in documents:
        if length < 1 or length % unit:
            raise InputError(f"item {item} has {length} tokens", fix=f"give it a positive multiple of {unit}")
        if spec.max_item_tokens is not None and length > spec.max_item_tokens:
            raise InputError(
                f"item {item} has {length} tokens, the model {spec.max_item_tokens} learned positions",
                fix="drop the item, or raise max_positions",
            )
    for _, first, last in held:
        if first % unit or last % unit:
            raise InputError(
                f"a shard from token {first} to {last} cuts through tokens that are merged",
                fix=f"split the group's batch at multiples of {unit}",
            )


def synthetic_item(spec: Module, item: int, span: Sequence[int], seed: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets of one synthetic item's tokens `span`: token ids `(n)` and the next ones `(n)`, or patches
    `(n, width)` or mel frames `(n, 5, mels)` with target vectors `(n / merged_tokens, out)`.
    """
    first, last = span
    if spec.input_unit == "tokens":
        drawn = uniform_rows(("tokens", seed, item), first, last + 1, 1)[:, 0]
        words = spec.output_vocabulary or spec.input_vocabulary
        tokens = (words * drawn.double() ** TOKEN_SKEW).long()  # u < 1 also in double, so always below `words`
        return tokens[:-1], tokens[1:] if spec.output_vocabulary else synthetic_target_vectors(spec, item, span, seed)
    return 2 * SYNTHETIC_INPUTS[spec.input_unit](spec, item, first, last, seed) - 1, synthetic_target_vectors(
        spec, item, span, seed
    )


def synthetic_target_vectors(spec: Module, item: int, span: Sequence[int], seed: int) -> Tensor:
    """Target vectors `(n / merged_tokens, out)` of a module that returns vectors."""
    first, last = (end // spec.tokens_per_output for end in span)
    return uniform_rows(("targets", seed, item), first, last, spec.sent_width)


def synthetic_patches(spec: Vit, item: int, first: int, last: int, seed: int) -> Tensor:
    """Flattened patches `(last - first, width)`."""
    return uniform_rows(("patches", seed, item), first, last, patch_width(spec))


def synthetic_frames(spec: Audio, item: int, first: int, last: int, seed: int) -> Tensor:
    """Mel frames `(last - first, 5, mels)` of an endless clip; some more are drawn, so that one window is complete."""
    frames = uniform_rows(
        ("frames", seed, item), FRAMES_PER_TOKEN * first, FRAMES_PER_TOKEN * last + FRAMES_SEEN, spec.mels
    )
    return frames.unfold(0, FRAMES_SEEN, FRAMES_PER_TOKEN)[: last - first].transpose(1, 2)


SYNTHETIC_INPUTS: dict[str, Callable[..., Tensor]] = {"patches": synthetic_patches, "frames": synthetic_frames}


def uniform_rows(names: tuple[str | int, ...], first: int, last: int, width: int) -> Tensor:
    """Rows `first` to `last` (exclusive) of an endless table `(rows, width)` of uniform numbers in [0, 1)."""
    begin, end = first // ROWS_PER_DRAW, max(first // ROWS_PER_DRAW + 1, -(-last // ROWS_PER_DRAW))
    blocks = [
        torch.rand(ROWS_PER_DRAW, width, generator=named_generator(CPU, *names, block)) for block in range(begin, end)
    ]
    return torch.cat(blocks)[first - begin * ROWS_PER_DRAW : last - begin * ROWS_PER_DRAW]
