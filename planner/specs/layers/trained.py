"""Which weights of a module are trained: all, none, its projector, or low-rank adapters beside frozen matrices.

What is frozen has no gradients and no optimizer states, and its products no gradients of weights; where something below
is trained it still passes gradients on (plan/gradient_flow.py).
"""

from typing import Annotated, Literal, get_args

import msgspec

from planner.specs.base import Count, Spec

# Matrices that have adapters: to queries, keys and values (or into a state space); attention's output; those of the
# dense MLP and of shared experts. Routed experts have none.
AdaptedPart = Literal["qkv", "output", "mlp"]
ADAPTED_PARTS: tuple[AdaptedPart, ...] = get_args(AdaptedPart)


class Lora(Spec, kw_only=True):
    """Low-rank adapters (arXiv 2106.09685): beside a frozen matrix (outputs, inputs) two trained ones, (rank, inputs)
    and (outputs, rank). Embedding, norms and head stay frozen.
    """

    rank: Count = msgspec.field(name="lora")
    parts: Annotated[tuple[AdaptedPart, ...], msgspec.Meta(min_length=1)] = ADAPTED_PARTS

    def __post_init__(self) -> None:
        named = tuple(part for part in ADAPTED_PARTS if part in self.parts)  # each once, in the order of a layer
        msgspec.structs.force_setattr(self, "parts", named)


Trained = Literal["all", "none", "projector"] | Lora  # projector: what is behind the last layer's norm, alone
