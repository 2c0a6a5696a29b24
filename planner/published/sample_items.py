"""What encoders read of a record's samples, as items of the sizes that a job's samples have.

An image's tiles are sequences of the encoder, as attention stays within each. For unequal ones stand equal ones that
have as many tokens and as many pairs of tokens.
"""

from collections.abc import Mapping
from typing import NamedTuple

from planner.errors import InputError
from planner.published.record_files import UnusableRecord
from planner.published.stated_samples import StatedSamples
from planner.specs.layers import Module
from planner.specs.layers.resize import ImageSize
from planner.specs.model import Model
from planner.specs.workload.items import Size, item_outputs, part_lengths
from planner.specs.workload.sample_records import Sample
from planner.specs.workload.sample_sizes import SampleReaders, sample_readers, sized_sample

NOT_STATED = "images of a sample not stated"
ONE_IMAGE = 1.0  # of a sample, where only its size is stated: visual instruction tuning's (arXiv 2310.03744)


class EncoderItems(NamedTuple):
    """Items of one encoder in a sample."""

    sizes: tuple[Size, ...]
    times: float  # so many of each, in the mean

    def equal_parts(self) -> tuple[float, float]:
        """Tokens of equal sequences, and their number, that have as many tokens and pairs as the parts of all items."""
        lengths = [length for size in self.sizes for length in part_lengths(size)]
        tokens, pairs = sum(lengths), sum(length * length for length in lengths)
        return pairs / tokens, self.times * tokens * tokens / pairs

    def outputs(self, module: Module) -> float:
        """Outputs of all items."""
        return self.times * sum(item_outputs(module, size) for size in self.sizes)


def items_by_encoder(model: Model, loss: str, stated: StatedSamples) -> Mapping[str, EncoderItems]:
    """What the encoders of a model read of each sample. Raises UnusableRecord."""
    found: dict[str, EncoderItems] = {}
    try:
        readers = sample_readers(model, loss, "model")
        if readers.patches and stated.has_images:
            found[readers.patches] = EncoderItems(image_sizes(readers, stated), stated.images or ONE_IMAGE)
        if readers.frames and stated.sound is not None:
            heard = sized_sample(readers, Sample(1, audio=(stated.sound,)), "model").items
            found |= {name: EncoderItems(sizes, 1.0) for name, sizes in heard.items()}
    except InputError as error:
        raise UnusableRecord("layers of a kind that is not described", f"{model.name}: {error.message}") from error
    if not found:
        raise UnusableRecord(NOT_STATED, f"what encoders of {model.name} read")
    return found


def image_sizes(readers: SampleReaders, stated: StatedSamples) -> tuple[Size, ...]:
    """The items that one image becomes. Raises UnusableRecord, and InputError for one that the model cannot read."""
    module = readers.model.modules[readers.patches]
    square = fixed_square(module)
    if stated.outputs is not None:
        tile = module.image_parts(square)[0] if square else 0
        outputs = item_outputs(module, tile) if tile else stated.outputs
        patches = tile or outputs * module.tokens_per_output + module.class_tokens
        return (patches,) * max(1, round(stated.outputs / outputs))
    if stated.size:
        return sized_sample(readers, Sample(1, images=(stated.size,)), "model").items[readers.patches]
    if square and len({module.image_parts(ImageSize(*sides)) for sides in ((100, 100), (100, 3000))}) == 1:
        return (module.image_parts(square)[0],)
    raise UnusableRecord(NOT_STATED, "of how many pixels or tokens they are")


def fixed_square(module: Module) -> ImageSize | None:
    """Pixels of what images, or their tiles, are resized to; None where they keep about their own."""
    side = getattr(getattr(module, "resize", None), "pixels", None)
    return ImageSize(side, side) if side else None
