"""Sources of samples, and the packed batches made of them."""

from planner.models.inputs.click_source import ClickSource
from planner.models.inputs.folder_source import SampleFolderSource, fed_source, sample_source
from planner.models.inputs.token_places import ItemGrids
from planner.models.inputs.token_source import TokenFolder
from planner.models.inputs.training_items import (
    HeldSpan,
    PackedContents,
    PlannedItems,
    SampleSource,
    batch_of_documents,
    check_batch,
    held_spans,
    packed_contents,
    synthetic_batch,
)
