"""What is sent between ranks, by what it is sent for: the kinds of traffic that runs count."""

from typing import Literal

# tp: rows around sharded matrices, and what a sharded vocabulary exchanges. ulysses, ring: tokens for heads; keys and
# values around a ring. ep: tokens to experts and back, also along etp, with their counts. pp: activations between
# stages. edge: outputs of encoders to their readers, or features to a loss that compares them. dp: parameters gathered
# and gradients summed, those of parameters that tp or the two ends of a pipeline replicate too. tables: lookups of
# embedding tables, their sums and gradients. Both directions of each.
TrafficKind = Literal["tp", "ulysses", "ring", "ep", "pp", "edge", "dp", "tables"]
SentBytes = dict[TrafficKind, int]  # bytes that a rank sends to other ranks
