"""The scan of a state space over packed documents, in chunks (SSD, arXiv 2405.21060, §6): within a chunk by products of
matrices, from chunk to chunk by a recurrence.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Scanned(NamedTuple):
    """Of t tokens, G groups of R heads each that have D channels with S numbers."""

    values: Tensor  # x [t, G, R, D]
    inputs: Tensor  # B [t, G, S]
    outputs: Tensor  # C [t, G, S]
    steps: Tensor  # d [t, G, R]
    decays: Tensor  # A [G, R], below zero


def scan(scanned: Scanned, lengths: list[int], chunk: int) -> Tensor:
    """y [t, G, R, D] of S_t = exp(d A) S_{t-1} + d x Bᵀ, y = S_t C, without a state in front of each document. In the
    dtype of the steps.
    """
    if not sum(lengths):
        return scanned.values.to(scanned.steps.dtype) + 0 * sum(x.sum() for x in scanned)
    return in_chunks(scanned, lengths, min(chunk, max(lengths)))


def in_chunks(scanned: Scanned, lengths: list[int], chunk: int) -> Tensor:
    """Chunks [n, l] of one document each, its last filled up with steps of size zero, which leave a state as it is."""
    chunks = [-(-length // chunk) for length in lengths]
    rows = rows_in_chunks(lengths, chunks, chunk).to(scanned.values.device)

    def parted(x: Tensor) -> Tensor:
        filled = x.new_zeros(sum(chunks) * chunk, *x.shape[1:], dtype=scanned.steps.dtype)
        return torch.unflatten(filled.index_copy(0, rows, x.to(filled.dtype)), 0, (-1, chunk))

    values, inputs, outputs, steps = map(parted, scanned[:4])
    moved = values * steps[..., None]
    reached = (steps * scanned.decays).cumsum(1)  # [n, l, G, R]: log of what is left of the state before the chunk
    last = reached[:, -1]
    left = torch.einsum("nmgs,nmgrd->ngrds", inputs, moved * (last[:, None] - reached).exp()[..., None])
    before = states_before(left, last.exp(), chunks)
    y = within(moved, inputs, outputs, reached)
    y = y + torch.einsum("nlgs,ngrds->nlgrd", outputs, before) * reached.exp()[..., None]
    return y.flatten(0, 1)[rows]


def rows_in_chunks(lengths: list[int], chunks: list[int], chunk: int) -> Tensor:
    """Where each token lies when every document begins with a chunk."""
    filled = torch.tensor([0, *(count * chunk for count in chunks)]).cumsum(0)[:-1]
    packed = torch.tensor([0, *lengths]).cumsum(0)[:-1]
    return torch.arange(sum(lengths)) + (filled - packed).repeat_interleave(torch.tensor(lengths))


def within(moved: Tensor, inputs: Tensor, outputs: Tensor, reached: Tensor) -> Tensor:
    """What tokens hand on within their chunk: attention without softmax, whose weights decay with distance."""
    by_head = reached.movedim(1, -1)  # [n, G, R, l]
    logs = by_head[..., :, None] - by_head[..., None, :]
    later = torch.ones(logs.shape[-2:], dtype=torch.bool, device=logs.device).triu(1)
    weights = logs.masked_fill(later, -torch.inf).exp()
    scores = torch.einsum("nlgs,nmgs->nglm", outputs, inputs)
    return torch.einsum("ngrlm,nmgrd->nlgrd", weights * scores[:, :, None], moved)


def states_before(left: Tensor, kept: Tensor, chunks: list[int]) -> Tensor:
    """States [n, G, R, D, S] in front of the chunks, of what each leaves and what it keeps of an earlier one [n, G, R].

    `chunks`: how many there are of each document.
    """
    found = []
    pairs = iter(zip(left.unbind(), kept.unbind(), strict=True))
    for count in chunks:
        state = torch.zeros_like(left[0])
        for _ in range(count):
            found.append(state)
            added, share = next(pairs)
            state = state * share[..., None, None] + added
    return torch.stack(found)
