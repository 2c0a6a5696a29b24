"""The gated delta rule over packed documents (arXiv 2412.06464, section 3.3): within chunks all states are found at
once by a triangular solution, and a recurrence goes from chunk to chunk.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from planner.models.kernels.chunked_scan import chunked_row_indices


class DeltaInputs(NamedTuple):
    """Operands of a scan over `tokens`."""

    queries: Tensor  # q (tokens, heads, keys)
    keys: Tensor  # k (tokens, heads, keys)
    values: Tensor  # v (tokens, heads, channels)
    steps: Tensor  # b (tokens, heads), from 0 to 1
    log_decays: Tensor  # log a (tokens, heads), at most 0


def gated_delta_rule(scanned: DeltaInputs, lengths: list[int], chunk: int) -> Tensor:
    """The scan y `(tokens, heads, channels)`: S_t = a_t S_{t-1} + b_t k_t (v_t - a_t S_{t-1}ᵀ k_t)ᵀ, y_t = S_tᵀ q_t.

    Each document starts with a zero state, and is padded to whole chunks by steps of size zero. The dtype is that of
    the decays.
    """
    if not sum(lengths):
        return scanned.values.to(scanned.log_decays.dtype) + 0 * sum(x.sum() for x in scanned)
    chunk = min(chunk, max(lengths))
    chunks = [-(-length // chunk) for length in lengths]
    rows = chunked_row_indices(lengths, chunks, chunk).to(scanned.values.device)

    def in_chunks(x: Tensor) -> Tensor:
        """Split x `(tokens, heads, ...)` to `(chunks, heads, chunk, ...)`."""
        padded = x.new_zeros(sum(chunks) * chunk, *x.shape[1:], dtype=scanned.log_decays.dtype)
        return torch.unflatten(padded.index_copy(0, rows, x.to(padded.dtype)), 0, (-1, chunk)).transpose(1, 2)

    q, k, v, steps, log_decays = map(in_chunks, scanned)
    decay = log_decays.cumsum(2)  # log of the decay since the chunk's start
    later = torch.ones(chunk, chunk, dtype=torch.bool, device=q.device).triu(1)
    between = (decay[..., :, None] - decay[..., None, :]).masked_fill(later, -torch.inf).exp()
    scores, weighted = (q @ k.transpose(-1, -2)) * between, k * steps[..., None]
    system = (weighted @ k.transpose(-1, -2)) * between
    both = torch.cat([v * steps[..., None], weighted * decay.exp()[..., None]], -1)
    solved = torch.linalg.solve_triangular(system, both, upper=False, unitriangular=True)
    new_values, read_keys = torch.split(solved, [v.shape[-1], k.shape[-1]], -1)
    q, last = q * decay.exp()[..., None], decay[..., -1:]
    k = (k * (last - decay).exp()[..., None]).transpose(-1, -2)
    outputs, at = [], 0
    for count in chunks:
        state = v.new_zeros(v.shape[1], q.shape[-1], v.shape[-1])
        for here in range(at, at + count):
            written = new_values[here] - read_keys[here] @ state
            outputs.append(q[here] @ state + scores[here] @ written)
            state = state * last[here].exp()[..., None] + k[here] @ written
        at += count
    return torch.stack(outputs).transpose(1, 2).flatten(0, 1)[rows]
