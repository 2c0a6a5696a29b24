"""Items as a rank's shard of a packed batch, from wherever they come.

Synthetic ones are the same on every rank, and drawn block by block so that a rank draws only its own shard.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Protocol

import torch
from torch import Tensor

from planner.errors import InputError
from planner.models.audio import SEEN, within_clip
from planner.models.batch import Batch
from planner.models.exchange import WHOLE, Exchange
from planner.models.seeding import generator_for
from planner.models.vit import patch_width
from planner.specs.dealing import Span
from planner.specs.items import Document
from planner.specs.layers import Audio, Module, Vit
from planner.specs.layers.audio import STRIDE

CPU = torch.device("cpu")
BLOCK = 256  # rows drawn at a time
SKEW = 3.0  # tokens are vocab * u^3: skewed like text, so that a model has something to learn
IGNORED = -100  # the target of a token after which none comes; torch's cross entropy passes over it

Items = Sequence[tuple[int, int]]  # (item, its tokens)
Documents = Sequence[tuple[int, int] | Document]  # whole items or parts of them, in the order of a group's batch


class Source(Protocol):
    """Where the contents of items come from."""

    def check(self, spec: Module, items: Items) -> None:
        """Raises InputError where an item is not there, or is not as long as the plan says."""

    def item(self, spec: Module, item: int, span: tuple[int, int]) -> tuple[Tensor, Tensor]:
        """Inputs and targets of an item from token `first` to before `last`: see Batch. In host memory."""

    def targets(self, spec: Module, item: int, tokens: int) -> int:
        """Over how many tokens of an item the loss is summed."""


class Synthetic:
    """Drawn by seed and item: every token is followed by one more."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def check(self, spec: Module, items: Items) -> None:
        """Whatever a plan asks for is there."""

    def item(self, spec: Module, item: int, span: tuple[int, int]) -> tuple[Tensor, Tensor]:
        return item_tokens(spec, item, span, self.seed)

    def targets(self, spec: Module, item: int, tokens: int) -> int:
        return tokens


def packed_batch(
    spec: Module, documents: Documents, seed: int, *, exchange: Exchange = WHOLE, device: torch.device = CPU
) -> Batch:
    """Of synthetic items."""
    return batch_from(Synthetic(seed), spec, documents, exchange=exchange, device=device)


def batch_from(
    source: Source, spec: Module, documents: Documents, *, exchange: Exchange = WHOLE, device: torch.device = CPU
) -> Batch:
    """This rank's shard of the packed documents. None of them: an idle rank's batch."""
    packed = [Document(*each) for each in documents]
    source.check(spec, [(document.item, document.tokens) for document in packed])
    lengths = [document.tokens for document in packed]
    ends = list(accumulate(lengths, initial=0))
    held = exchange.held(lengths)
    check_batch(spec, packed, held)
    spans = [(packed[document], (first, last)) for document, first, last in held] or [(Document(0, 0), (0, 0))]
    parts = [contents(source, spec, *span) for span in spans]
    return Batch(
        inputs=torch.cat([inputs for inputs, _ in parts]).to(device),
        targets=torch.cat([targets for _, targets in parts]).to(device),
        positions=torch.cat([torch.arange(*span) for _, span in spans]).to(device),
        cu_seqlens=torch.tensor(ends, dtype=torch.int32),
        exchange=exchange,
    )


def contents(source: Source, spec: Module, document: Document, span: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Inputs and targets of part of a document."""
    item, tokens, begin = document
    inputs, targets = source.item(spec, item, (begin + span[0], begin + span[1]))
    return (within_clip(inputs, span, tokens) if spec.reads == "frames" else inputs), targets


def check_batch(spec: Module, documents: Documents, held: Sequence[Span] = ()) -> None:
    """Refuse what the model would get wrong or fail on without a word."""
    unit = spec.merged
    for item, length, *_ in documents:
        if length < 1 or length % unit:
            raise InputError(f"item {item} has {length} tokens", fix=f"give it a positive multiple of {unit}")
        if spec.longest is not None and length > spec.longest:
            raise InputError(
                f"item {item} has {length} tokens, the model {spec.longest} learned positions",
                fix="drop the item, or raise max_positions",
            )
    for _, first, last in held:
        if first % unit or last % unit:
            raise InputError(
                f"a shard from token {first} to {last} cuts through tokens that are merged",
                fix=f"split the group's batch at multiples of {unit}",
            )


def item_tokens(spec: Module, item: int, span: Sequence[int], seed: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets of one item from token `first` to before `last`: tokens and the next, or patches, or each
    token's mel frames [n, 5, mels], and vectors.
    """
    first, last = span
    if spec.reads == "tokens":
        drawn = uniform_rows(("tokens", seed, item), first, last + 1, 1)[:, 0]
        tokens = (spec.words * drawn.double() ** SKEW).long()  # u < 1 also in double, so always below it
        return tokens[:-1], tokens[1:] if spec.vocabulary else vectors(spec, item, span, seed)
    return 2 * DRAWN[spec.reads](spec, item, first, last, seed) - 1, vectors(spec, item, span, seed)


def vectors(spec: Module, item: int, span: Sequence[int], seed: int) -> Tensor:
    """Targets of what gives vectors, one for each output."""
    first, last = (end // spec.merged for end in span)
    return uniform_rows(("targets", seed, item), first, last, spec.gives)


def drawn_patches(spec: Vit, item: int, first: int, last: int, seed: int) -> Tensor:
    """Flattened ones [last - first, width]."""
    return uniform_rows(("patches", seed, item), first, last, patch_width(spec))


def drawn_frames(spec: Audio, item: int, first: int, last: int, seed: int) -> Tensor:
    """Of a sound without begin or end; SEEN more, so that there is one whole token's [last - first, 5, mels]."""
    frames = uniform_rows(("frames", seed, item), STRIDE * first, STRIDE * last + SEEN, spec.mels)
    return frames.unfold(0, SEEN, STRIDE)[: last - first].transpose(1, 2)


DRAWN: dict[str, Callable[..., Tensor]] = {"patches": drawn_patches, "frames": drawn_frames}


def uniform_rows(names: tuple[str | int, ...], first: int, last: int, width: int) -> Tensor:
    """Rows `first` to before `last` of an endless table [.., width] of uniform numbers in [0, 1)."""
    begin, end = first // BLOCK, max(first // BLOCK + 1, -(-last // BLOCK))
    blocks = [torch.rand(BLOCK, width, generator=generator_for(CPU, *names, block)) for block in range(begin, end)]
    return torch.cat(blocks)[first - begin * BLOCK : last - begin * BLOCK]
