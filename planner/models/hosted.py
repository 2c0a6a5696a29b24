"""A causal model of transformers as it is, over packed documents and over the ranks of a group.

Its layers work token by token but for attention; transformers lets others compute that by name. Ours goes through the
batch's exchange, as the zoo's does, so a model that is not in the zoo trains over sequence groups all the same. Its
layers must not be run again in the backward pass.
"""

import math
from contextvars import ContextVar
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from planner.errors import InputError
from planner.models.batch import Batch
from planner.models.data import IGNORED
from planner.models.pieces import Masking

NAME = "planner"  # of our attention, among those that transformers knows
FIX = "leave it out of the model's config"
batch_of_pass: ContextVar[Batch] = ContextVar("batch_of_pass")


class Hosted(nn.Module):
    """`Hosted(model)(batch)` is the loss summed over this rank's own targets."""

    def __init__(self, model: Any) -> None:
        """`model`: one of transformers' causal language models. Raises InputError where they are not installed."""
        super().__init__()
        register()
        model.set_attn_implementation(NAME)
        self.model = model

    def logits(self, batch: Batch) -> Tensor:
        """[t, vocab]."""
        token = batch_of_pass.set(batch)
        try:
            inputs, places = batch.inputs[None], batch.positions[None]
            found: Tensor = self.model(input_ids=inputs, position_ids=places, use_cache=False).logits[0]
            return found
        finally:
            batch_of_pass.reset(token)

    def forward(self, batch: Batch) -> Tensor:
        logits = self.logits(batch)
        wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return F.cross_entropy(wide, batch.targets, ignore_index=IGNORED, reduction="sum")


@cache
def register() -> None:
    """Make our attention known, with no mask: documents say who sees whom."""
    try:
        from transformers import AttentionInterface
        from transformers.masking_utils import AttentionMaskInterface
    except ImportError as error:
        message = f"a model of transformers needs that package: {error}"
        raise InputError(message, fix="pip install transformers, or take a model of the zoo") from error
    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, lambda *unused, **options: None)


def attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """q [1, H, t, D], k [1, Hkv, t, D] and v [1, Hkv, t, Dv] to [1, t, H, Dv]. Raises InputError for what it lacks."""
    for wish in ("dropout", "softcap"):
        if options.get(wish):
            raise InputError(f"attention with {wish} is not computed here", where=wish, fix=FIX)
    batch, scale = batch_of_pass.get(), options.get("scaling")
    q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
    if scale is not None:
        q = q * (scale * math.sqrt(q.shape[-1]))  # our scores are divided by that root
    masking = Masking(causal=getattr(module, "is_causal", True), window=options.get("sliding_window"))
    out = batch.exchange.attend(q, k, v, batch.cu_seqlens, masking, options.get("s_aux"))
    return out[None], None
