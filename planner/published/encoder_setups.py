"""The setup of an encoder beside that of the module that it feeds, by where it is."""

from dataclasses import replace

import numpy as np

from planner.costs import LayoutColumns
from planner.costs.step import FeedingEncoder
from planner.published.published_case import CaseEncoder


def setup_in_stages(encoder: CaseEncoder, setup: LayoutColumns) -> LayoutColumns:
    """Its layers, which have no experts and read no outputs, in as many stages as the decoder's, on the same ranks."""
    return replace(
        setup,
        seq=encoder.seq,
        batch=setup.batch * setup.seq * encoder.per_token,
        micro_batch=setup.micro_batch * setup.seq * encoder.per_token,
        ep=1.0,
        etp=1.0,
        imbalance=0.0,
        cross_reads=0.0,
        cross_pairs=0.0,
        alike={},
    )


def feeding_encoder(encoder: CaseEncoder, setup: LayoutColumns) -> FeedingEncoder:
    """All of its layers on one stage: the decoder's first with its tp, as far as that divides its heads, or ranks of
    its own without. Ranks of one cp group repeat what its sequence reads, as in Megatron and verl; ranks of its own
    share what all replicas read of one micro-batch.
    """
    staged = replace(setup_in_stages(encoder, setup), pp=1.0, vpp=1.0, cp=1.0, ulysses=1.0, schedule="1f1b")
    if encoder.place == "apart":
        each = np.ceil(staged.micro_batch * setup.pipelines / encoder.ranks)  # sequences of its own ranks at once
        alone = replace(staged, ranks=encoder.ranks, tp=1.0, replica=1.0, micro_batch=each)
        return FeedingEncoder(
            encoder.module, replace(alone, batch=each * encoder.ranks * setup.micro_batches), encoder.flow, apart=True
        )
    ranks, repeated = setup.ranks / setup.pp, setup.cp
    tp = np.gcd(np.asarray(setup.tp, dtype=np.int64), encoder.module.heads) * 1.0
    at = replace(staged, ranks=ranks, tp=tp, batch=staged.batch * repeated)
    micro_batch = at.batch / (at.pipelines * setup.micro_batches)  # where tp is less, replicas share its items
    return FeedingEncoder(encoder.module, replace(at, micro_batch=micro_batch), encoder.flow)
