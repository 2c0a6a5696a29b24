"""What encoders have in common: they return vectors for another module, or the squared error to target vectors."""

from abc import abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor

from planner.models.batch import Batch
from planner.models.networks.network import Network


class EncoderNetwork(Network):
    """A network that returns vectors, or their squared error."""

    @abstractmethod
    def output_tokens(self, x: Tensor, batch: Batch) -> Tensor:
        """Map the last layer's output x `(local_tokens, hidden)` to this rank's output `(local_tokens / merged_tokens,
        out)`.
        """

    def output(self, x: Tensor, batch: Batch) -> Tensor:
        """The output vectors `(local_tokens / merged_tokens, out)` where another module reads them; else the summed
        loss (scalar).
        """
        tokens = self.output_tokens(x, batch)
        if self.feeds_module:
            return tokens
        return summed_squared_error(tokens, batch)


def summed_squared_error(tokens: Tensor, batch: Batch) -> Tensor:
    """The squared error (scalar) of output vectors `(local output tokens, out)` of a module that no other reads,
    summed by their weights, in float32 or better.
    """
    targets = batch.tensor_parallel.local_rows(batch.targets)
    wide = torch.promote_types(tokens.dtype, torch.float32)
    return batch.weighted_sum(F.mse_loss(tokens.to(wide), targets.to(wide), reduction="none").sum(1))
