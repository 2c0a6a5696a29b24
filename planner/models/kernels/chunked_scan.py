"""The chunked scan of a state space over packed documents (SSD, arXiv 2405.21060, §6): matrix products within chunks,
and a recurrence from chunk to chunk.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class ScanInputs(NamedTuple):
    """Operands of a scan over `tokens`, in `groups` of `heads` with `channels` channels of `states` states each."""

    values: Tensor  # x (tokens, groups, heads, channels)
    inputs: Tensor  # B (tokens, groups, states)
    outputs: Tensor  # C (tokens, groups, states)
    steps: Tensor  # d (tokens, groups, heads)
    decays: Tensor  # A (groups, heads), negative


def state_space_scan(scanned: ScanInputs, lengths: list[int], chunk: int) -> Tensor:
    """The scan y `(tokens, groups, heads, channels)`: S_t = exp(d A) S_{t-1} + d x Bᵀ, y = S_t C.

    Each document starts with a zero state. The dtype is that of the steps.
    """
    if not sum(lengths):
        return scanned.values.to(scanned.steps.dtype) + 0 * sum(x.sum() for x in scanned)
    return chunked_scan(scanned, lengths, min(chunk, max(lengths)))


def chunked_scan(scanned: ScanInputs, lengths: list[int], chunk: int) -> Tensor:
    """The scan `(tokens, groups, heads, channels)`, with documents padded to whole chunks by steps of size zero."""
    chunks = [-(-length // chunk) for length in lengths]
    rows = chunked_row_indices(lengths, chunks, chunk).to(scanned.values.device)

    def in_chunk_rows(x: Tensor) -> Tensor:
        """Split x `(tokens, ...)` to `(chunks, chunk, ...)`."""
        padded = x.new_zeros(sum(chunks) * chunk, *x.shape[1:], dtype=scanned.steps.dtype)
        return torch.unflatten(padded.index_copy(0, rows, x.to(padded.dtype)), 0, (-1, chunk))

    values, inputs, outputs, steps = map(in_chunk_rows, scanned[:4])
    weighted_values = values * steps[..., None]
    log_decay = (steps * scanned.decays).cumsum(1)  # (chunks, chunk, groups, heads): log of decay since its start
    last = log_decay[:, -1]
    chunk_states = torch.einsum(
        "nmgs,nmgrd->ngrds", inputs, weighted_values * (last[:, None] - log_decay).exp()[..., None]
    )
    start_states = chunk_start_states(chunk_states, last.exp(), chunks)
    y = within_chunk_outputs(weighted_values, inputs, outputs, log_decay)
    y = y + torch.einsum("nlgs,ngrds->nlgrd", outputs, start_states) * log_decay.exp()[..., None]
    return y.flatten(0, 1)[rows]


def chunked_row_indices(lengths: list[int], chunks: list[int], chunk: int) -> Tensor:
    """The row `(tokens)` of each token when every document starts at a chunk boundary."""
    padded_starts = torch.tensor([0, *(count * chunk for count in chunks)]).cumsum(0)[:-1]
    packed_starts = torch.tensor([0, *lengths]).cumsum(0)[:-1]
    return torch.arange(sum(lengths)) + (padded_starts - packed_starts).repeat_interleave(torch.tensor(lengths))


def within_chunk_outputs(weighted_values: Tensor, inputs: Tensor, outputs: Tensor, log_decay: Tensor) -> Tensor:
    """Outputs `(chunks, chunk, groups, heads, channels)` from tokens of the same chunk: attention without softmax, with
    weights that decay with distance.

    `weighted_values` is `(chunks, chunk, groups, heads, channels)`, inputs and outputs are
    `(chunks, chunk, groups, states)`, `log_decay` is `(chunks, chunk, groups, heads)`.
    """
    by_head = log_decay.movedim(1, -1)  # (chunks, groups, heads, chunk)
    logs = by_head[..., :, None] - by_head[..., None, :]
    later = torch.ones(logs.shape[-2:], dtype=torch.bool, device=logs.device).triu(1)
    weights = logs.masked_fill(later, -torch.inf).exp()
    scores = torch.einsum("nlgs,nmgs->nglm", outputs, inputs)
    return torch.einsum("ngrlm,nmgrd->nlgrd", weights * scores[:, :, None], weighted_values)


def chunk_start_states(added_states: Tensor, kept_shares: Tensor, chunks: list[int]) -> Tensor:
    """The states `(chunks, groups, heads, channels, states)` at the start of each chunk, from what each chunk adds (of
    that shape) and the share of the previous state that it keeps, `(chunks, groups, heads)`.

    `chunks` holds the number of chunks of each document.
    """
    states = []
    pairs = iter(zip(added_states.unbind(), kept_shares.unbind(), strict=True))
    for count in chunks:
        state = torch.zeros_like(added_states[0])
        for _ in range(count):
            states.append(state)
            added, share = next(pairs)
            state = state * share[..., None, None] + added
    return torch.stack(states)
