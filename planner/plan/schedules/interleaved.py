"""Interleaved 1F1B: a rank has several chunks of layers, and fills the pipeline with these shorter stages.

Megatron-LM's order (arXiv 2104.04473, section 2.2): micro-batches go in rounds of as many as there are ranks, each
round through one chunk of a rank after the other. A rank warms up with two chunks for each rank behind it, and a round
for each of its chunks but one; then it alternates. At its peak rank s of p holds min(2(p − s − 1) + (v − 1)p + 1, v·m)
of its v chunks, each a v-th of its layers (Megatron-LM's count; arXiv 2205.05198, section 4.2.3).
"""


def slots(ranks: int, rank: int, micro_batches: int, chunks: int) -> list[tuple[str, int, int]]:
    """Return phase, micro-batch and chunk of each slot of a rank. `micro_batches` is a multiple of `ranks`."""
    total = micro_batches * chunks
    warm_up = min((ranks - rank - 1) * 2 + (chunks - 1) * ranks, total)
    forwards = [("F", *forward_at(number, ranks, chunks)) for number in range(total)]
    backwards = [("B", micro_batch, chunks - 1 - chunk) for _, micro_batch, chunk in forwards]
    order = forwards[:warm_up]
    for forward, backward in zip(forwards[warm_up:], backwards, strict=False):
        order += [forward, backward]
    return order + backwards[total - warm_up :]


def forward_at(number: int, ranks: int, chunks: int) -> tuple[int, int]:
    """Return micro-batch and chunk of a rank's forward pass of this number."""
    rounds, within = divmod(number, ranks * chunks)
    return rounds * ranks + within % ranks, within // ranks
