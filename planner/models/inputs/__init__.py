"""Sources of samples, and the packed batches made of them."""

from planner.models.inputs.encoder_fed import EncoderFedSource
from planner.models.inputs.token_source import TokenFolder, sample_source
from planner.models.inputs.training_items import SampleSource, batch_of_documents, check_batch, synthetic_batch

__all__ = [
    "EncoderFedSource",
    "SampleSource",
    "TokenFolder",
    "batch_of_documents",
    "check_batch",
    "sample_source",
    "synthetic_batch",
]
