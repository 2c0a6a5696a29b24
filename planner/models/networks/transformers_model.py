"""A causal language model of the transformers library, run over packed documents and over the ranks of a
sequence-parallel group.

Its layers work per token except for attention, which transformers lets others implement by name. The implementation
here calls the batch's sequence-parallel group, as the networks here do. Its layers must not be recomputed in backward.
"""

import math
from contextvars import ContextVar
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from planner.errors import InputError
from planner.models.batch import IGNORED, Batch
from planner.models.kernels.attention_tiles import Masking

ATTENTION_NAME = "planner"  # under which transformers finds this attention
REMOVE_OPTION = "leave it out of the model's config"
current_batch: ContextVar[Batch] = ContextVar("current_batch")


class TransformersModel(nn.Module):
    """A model of transformers whose call with a batch gives the loss, summed over this rank's own targets."""

    def __init__(self, model: Any) -> None:
        """`model` is a causal language model of transformers. Raises InputError where that is not installed."""
        super().__init__()
        register_attention()
        model.set_attn_implementation(ATTENTION_NAME)
        self.model = model

    def logits(self, batch: Batch) -> Tensor:
        """Logits `(tokens, vocab)` of this rank's tokens."""
        token = current_batch.set(batch)
        try:
            inputs, positions = batch.inputs[None], batch.positions[None]
            logits: Tensor = self.model(input_ids=inputs, position_ids=positions, use_cache=False).logits[0]
            return logits
        finally:
            current_batch.reset(token)

    def forward(self, batch: Batch) -> Tensor:
        """The summed loss (scalar)."""
        logits = self.logits(batch)
        wide_logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        losses = F.cross_entropy(wide_logits, batch.targets, ignore_index=IGNORED, reduction="none")
        return batch.weighted_sum(losses)


@cache
def register_attention() -> None:
    """Register this attention with transformers, without a mask: document boundaries say who attends to whom."""
    try:
        from transformers import AttentionInterface
        from transformers.masking_utils import AttentionMaskInterface
    except ImportError as error:
        message = f"a model of transformers needs that package: {error}"
        raise InputError(message, fix="pip install transformers, or use one of `planner list models`") from error
    AttentionInterface.register(ATTENTION_NAME, transformers_attention)
    AttentionMaskInterface.register(ATTENTION_NAME, lambda *unused, **options: None)


def transformers_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """Attention of query `(1, heads, tokens, head_dim)`, key `(1, kv_heads, tokens, head_dim)` and value `(1, kv_heads,
    tokens, value_dim)`, giving `(1, tokens, heads, value_dim)`. Raises InputError for options that are not supported.
    """
    for option in ("dropout", "softcap"):
        if options.get(option):
            raise InputError(f"attention with {option} is not supported", where=option, fix=REMOVE_OPTION)
    batch, scale = current_batch.get(), options.get("scaling")
    q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
    if scale is not None:
        q = q * (scale * math.sqrt(q.shape[-1]))  # scores here are divided by that root
    masking = Masking(causal=getattr(module, "is_causal", True), window=options.get("sliding_window"))
    out = batch.sequence_parallel.attend(q, k, v, batch.cu_seqlens, masking, options.get("s_aux"))
    return out[None], None
