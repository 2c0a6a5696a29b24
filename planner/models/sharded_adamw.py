"""AdamW (arXiv 1711.05101) over shards of parameters.

An update is elementwise, so each rank updates its part of every DTensor as a plain tensor, all of them in one fused
kernel. DTensor itself would work out for each operation on each parameter how the result is sharded.
"""

from typing import Any

import torch
from torch import Tensor
from torch.optim import AdamW

from planner.models.tensor_region import held_values


class ShardedAdamW(AdamW):
    """AdamW whose parameters may be DTensors; the moments among its states are sharded like them."""

    def __init__(self, parameters: Any, **options: Any) -> None:
        super().__init__(parameters, fused=True, **options)

    def _init_group(self, group: dict[str, Any], *updated: list[Tensor]) -> Any:
        """Lists what the update of a group reads and writes, as torch's own does: of each tensor this rank's part."""
        has_complex = super()._init_group(group, *updated)  # type: ignore[no-untyped-call]
        for tensors in updated:
            tensors[:] = map(held_values, tensors)
        return has_complex

    @torch.no_grad()
    def forget(self) -> None:
        """Sets all states back to those before the first update."""
        for state in self.state.values():
            for value in state.values():
                held_values(value).zero_()
