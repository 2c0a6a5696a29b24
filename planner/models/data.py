"""Synthetic items, the same on every rank, drawn block by block so that a rank draws only its own shard."""

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from planner.errors import InputError
from planner.models.batch import Batch
from planner.models.exchange import WHOLE, Exchange, Span
from planner.models.seeding import generator_for
from planner.models.vit import patch_width
from planner.specs.model import Decoder, Module, Vit

CPU = torch.device("cpu")
BLOCK = 256  # rows drawn at a time
SKEW = 3.0  # tokens are vocab * u^3: skewed like text, so that a model has something to learn


def packed_batch(
    spec: Module,
    documents: Sequence[tuple[int, int]],  # (item, its tokens), in the order of the group's batch
    seed: int,
    *,
    exchange: Exchange = WHOLE,
    device: torch.device = CPU,
) -> Batch:
    """This rank's shard of the packed documents. None of them: an idle rank's batch."""
    lengths = [length for _, length in documents]
    ends = list(accumulate(lengths, initial=0))
    held = exchange.held(lengths)
    check_batch(spec, documents, held)
    spans = [(documents[document][0], first, last) for document, first, last in held] or [(0, 0, 0)]
    parts = [item_tokens(spec, item, span, seed) for item, *span in spans]
    return Batch(
        inputs=torch.cat([inputs for inputs, _ in parts]).to(device),
        targets=torch.cat([targets for _, targets in parts]).to(device),
        positions=torch.cat([torch.arange(first, last) for _, first, last in spans]).to(device),
        cu_seqlens=torch.tensor(ends, dtype=torch.int32),
        exchange=exchange,
    )


def token_unit(spec: Module) -> int:
    """Shards and items are whole multiples of this many tokens: merged patches stay together."""
    return spec.merge**2 if isinstance(spec, Vit) else 1


def check_batch(spec: Module, documents: Sequence[tuple[int, int]], held: Sequence[Span] = ()) -> None:
    """Refuse what the model would get wrong or fail on without a word."""
    unit = token_unit(spec)
    for item, length in documents:
        if length < 1 or length % unit:
            raise InputError(f"item {item} has {length} tokens", fix=f"give it a positive multiple of {unit}")
        if isinstance(spec, Decoder) and spec.positions == "learned" and length > spec.max_positions:
            raise InputError(
                f"item {item} has {length} tokens, the model {spec.max_positions} learned positions",
                fix="drop the item, or raise max_positions",
            )
    for _, first, last in held:
        if first % unit or last % unit:
            raise InputError(
                f"a shard from patch {first} to {last} cuts through merged patches",
                fix=f"split the group's batch at multiples of {unit}",
            )


def item_tokens(spec: Module, item: int, span: Sequence[int], seed: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets of one item from token `first` to before `last`: tokens and the next, patches and vectors."""
    first, last = span
    if isinstance(spec, Decoder):
        drawn = uniform_rows(("tokens", seed, item), first, last + 1, 1)[:, 0]
        tokens = (spec.vocab * drawn.double() ** SKEW).long()  # u < 1 also in double, so always below vocab
        return tokens[:-1], tokens[1:]
    assert isinstance(spec, Vit)  # no other module can be built
    patches = uniform_rows(("patches", seed, item), first, last, patch_width(spec))
    unit = token_unit(spec)
    return 2 * patches - 1, uniform_rows(("targets", seed, item), first // unit, last // unit, spec.out)


def uniform_rows(names: tuple[str | int, ...], first: int, last: int, width: int) -> Tensor:
    """Rows `first` to before `last` of an endless table [.., width] of uniform numbers in [0, 1)."""
    begin, end = first // BLOCK, max(first // BLOCK + 1, -(-last // BLOCK))
    blocks = [torch.rand(BLOCK, width, generator=generator_for(CPU, *names, block)) for block in range(begin, end)]
    return torch.cat(blocks)[first - begin * BLOCK : last - begin * BLOCK]
