"""What encoders have in common: they end in vectors for a reader, or in the squared error to vectors."""

from abc import abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor

from planner.models.batch import Batch
from planner.models.network import Network


class EncoderNetwork(Network):
    @abstractmethod
    def tokens(self, x: Tensor, batch: Batch) -> Tensor:
        """From the output of the last layer to the output tokens of this rank, [s / merged_tokens, out]."""

    def finish(self, x: Tensor, batch: Batch) -> Tensor:
        tokens = self.tokens(x, batch)
        if self.feeds:
            return tokens
        return squared_error(tokens, batch)


def squared_error(tokens: Tensor, batch: Batch) -> Tensor:
    """Of a module that nobody reads, over this rank's output tokens; in float32 or better."""
    targets = batch.tensor.mine(batch.targets)
    kept = torch.promote_types(tokens.dtype, torch.float32)
    return F.mse_loss(tokens.to(kept), targets.to(kept), reduction="sum")
