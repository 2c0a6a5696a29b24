"""Activations in flight on a pipeline rank: the share of a forward's that a backward in two keeps for its second part.

F allocates them and B frees them; I frees what W does not need, and W the rest. W needs the inputs of the linear layers
and the gradients of their outputs: 32 of the 34 bytes that each element of the hidden size keeps in a transformer layer
whose attention keeps no matrix (arXiv 2401.10241, table 2; the 34 in arXiv 2205.05198, section 4.1). That is counted
for a GPT layer: four linear layers, an MLP four times as wide. It is assumed of every model, though one with gates, few
key heads, or experts keeps another share from I to W.
"""

KEPT_FOR_WEIGHTS = 32 / 34  # share of a forward's activations that is kept from I to W: of a GPT layer, assumed of all
