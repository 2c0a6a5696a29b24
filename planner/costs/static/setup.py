"""One static strategy: how a model is spread over equal ranks, and what one step trains.

Every number may be an array of many strategies at once: what prices a setup is arithmetic that broadcasts, so that one
strategy is priced from Python as a million of them are.
"""

from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Number = Any  # int, float or an array of these; all arrays of a setup have one shape
Precision = Literal["bf16", "fp8", "fp16", "float32"]
Scheme = Literal["gpipe", "1f1b", "interleaved", "zero_bubble", "zb_h2"]  # zero_bubble: ZB-H1, as most mean by it
# What selective recomputation makes again in backward: attention's matrix, norms, the MLP's inner activations, experts.
Again = Literal["attention", "norm", "mlp", "moe"]
# A token goes to its experts once for each of them, or once to each node that has any (DeepEP, HybridEP); or every rank
# gathers all tokens and takes those of its experts (MegaScale-MoE).
Dispatch = Literal["copies", "nodes", "tokens"]
Exchange = Literal["tp", "ep"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Ranks are numbered with tp fastest, then cp (and ep over dp·cp), then dp, then pp slowest, as Megatron does."""

    ranks: Number
    seq: Number  # tokens of one sequence
    batch: Number  # sequences in a step, over all ranks
    micro_batch: Number = 1  # sequences that one pipeline works on at once
    tp: Number = 1
    cp: Number = 1
    pp: Number = 1
    vpp: Number = 1  # chunks of layers on one rank
    ep: Number = 1  # ranks over which a layer's experts are spread
    etp: Number = 1  # ranks over which one expert's matrices are split
    zero: Number = 0
    shard: Number = 0  # replicas over which ZeRO shards; 0: all of them
    sequence_parallel: Number = True  # norms and residuals are split over tp's ranks too; of no effect without tp
    full: Number = 0.0  # share of the layers that are recomputed whole
    again: frozenset[Again] = frozenset()
    precision: Precision = "bf16"
    scheme: Scheme = "1f1b"
    dispatch: Dispatch = "copies"
    compressed: bool = False  # gradients are cast to bf16, exchanged by all-to-all, and summed in float32
    hides: frozenset[Exchange] = frozenset()  # exchanges that are made to run beside compute
    balanced: bool = True  # every expert has as many tokens as any other
    adapters: bool = False  # only low-rank adapters are trained: no gradients of the other weights

    @property
    def dp(self) -> Number:
        """Replicas of the dense part."""
        return self.ranks / (self.tp * self.cp * self.pp)

    @property
    def edp(self) -> Number:
        """Replicas of the experts, on the ranks of one pipeline stage."""
        return self.ranks / (self.pp * self.ep * self.etp)

    @property
    def micro_batches(self) -> Number:
        """In one step of one pipeline."""
        return self.batch / (self.dp * self.micro_batch)

    @property
    def element(self) -> float:
        """Bytes of an element of activations and of gathered weights."""
        return 4.0 if self.precision == "float32" else 2.0

    @property
    def tokens(self) -> Number:
        """Of one micro-batch, on one rank, where only cp splits the sequence."""
        return self.micro_batch * self.seq / self.cp


KINDS = (
    "again",
    "precision",
    "scheme",
    "dispatch",
    "compressed",
    "hides",
    "balanced",
    "adapters",
)  # what no array can hold


def arrays(setups: list[Setup]) -> Setup:
    """Many setups as one. They agree in what is no number."""
    first = setups[0]
    numbers: dict[str, Any] = {
        field.name: column(setups, field.name) for field in fields(Setup) if field.name not in KINDS
    }
    return replace(first, **numbers)


def column(setups: list[Setup], name: str) -> NDArray[np.float64]:
    return np.array([getattr(setup, name) for setup in setups], dtype=np.float64)
