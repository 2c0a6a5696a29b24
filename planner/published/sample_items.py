"""Images and sound of a record's samples, as its settings state them, and what encoders read of these.

These are items of the sizes that a job's samples have. An image's tiles are sequences of the encoder, as attention
stays within each. For unequal ones stand equal ones that have as many tokens and as many pairs of tokens.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from planner.errors import InputError
from planner.published.record_files import PublishedRecord, UnusableRecord
from planner.published.record_setup import settings_text
from planner.specs.layers import Module
from planner.specs.layers.resize import ImageSize
from planner.specs.model import Model
from planner.specs.workload.items import Size, item_outputs, part_lengths
from planner.specs.workload.sample_records import Sample
from planner.specs.workload.sample_sizes import SampleReaders, sample_readers, sized_sample

NOT_STATED = "images of a sample not stated"
ONE_IMAGE = 1.0  # of a sample, where only its size is stated: visual instruction tuning's (arXiv 2310.03744)
SAMPLE = r"(?:sample|sequence|example|conversation)"
NUMBER = r"(\d{1,5}(?:\.\d+)?)"
COUNTS = (
    re.compile(rf"{NUMBER} ?images? ?(?:per|an?|/|in an?|in each|each) ?{SAMPLE}"),
    re.compile(rf"images?[ _-]?(?:per|a|/)[ _-]?{SAMPLE} ?[=:]? ?{NUMBER}"),
    re.compile(rf"\b(?:num|number of)[ _-]images ?[=:]? ?{NUMBER}"),
)
SINGLE_IMAGE = re.compile(r"\b(?:one|an|a single|single)[ -]images?\b(?! ?tokens?)")
PIXELS = r"(\d{2,5})"
SEEN = r"(?:visual|vision|image)"
SIZE = re.compile(r"(?<![\d.x×])(\d{3,5}) ?[x×] ?(\d{3,5})(?![\d.]| ?[x×]| ?(?:gpus?|nodes?|gb|[abhmv]\d))")
SIDES = re.compile(
    rf"img[-_]w ?= ?{PIXELS}\b.*?img[-_]h ?= ?{PIXELS}\b|img[-_]h ?= ?{PIXELS}\b.*?img[-_]w ?= ?{PIXELS}\b"
)
SQUARE = re.compile(rf"(?:image|img)[ _-]?(?:size|resolution) ?[=:]? ?{PIXELS}\b(?! ?[x×])|{PIXELS} ?(?:px|pixels?)\b")
OUTPUTS = (
    re.compile(rf"(?P<count>\d{{1,6}}) ?{SEEN}[ -]?tokens?(?: ?(?:per|an?|/|each) ?(?P<of>image|{SAMPLE}))?"),
    re.compile(rf"{SEEN}[ _-]tokens?(?:[ _-](?:per|an?)[ _-](?P<of>image|{SAMPLE}))? ?[=:] ?(?P<count>\d{{1,6}})"),
)
SOUND = re.compile(
    rf"{NUMBER} ?(?:s|sec|seconds?) (?:of )?(?:audio|sound|speech)|(?:audio|sound|speech) ?[=:]? ?{NUMBER} ?s\b"
)


class StatedSamples(NamedTuple):
    """What a sample has beside its text; None: not stated."""

    images: float | None = None  # of a sample, in the mean
    size: ImageSize | None = None  # of an image, in pixels
    outputs: int | None = None  # tokens of the LLM that an image becomes
    sound: float | None = None  # seconds of a sample

    @property
    def has_images(self) -> bool:
        """Whether anything of images is stated."""
        return any(value is not None for value in (self.images, self.size, self.outputs))

    def __bool__(self) -> bool:
        return self.has_images or self.sound is not None


def stated_samples(record: PublishedRecord) -> StatedSamples:
    """What a record's texts state of its samples. Raises UnusableRecord for an image without pixels."""
    text = settings_text(record)
    outputs, per_sample = stated_outputs(text)
    sound = next((float(found[1] or found[2]) for found in SOUND.finditer(text)), None)
    counts = (float(found[1]) for words in COUNTS for found in words.finditer(text))
    images = 1.0 if per_sample else next(counts, 1.0 if SINGLE_IMAGE.search(text) else None)
    return StatedSamples(images, stated_size(text), outputs, sound)


def stated_size(text: str) -> ImageSize | None:
    """Pixels of an image, by its sides, or of a square one by one of them. Raises UnusableRecord."""
    found = SIDES.search(text) or SIZE.search(text) or SQUARE.search(text)
    if not found:
        return None
    numbers = [int(each) for each in found.groups() if each]
    if found.re is SIDES and found[3]:
        numbers.reverse()
    size = ImageSize(numbers[0], numbers[-1])
    if not all(size):
        raise UnusableRecord("impossible figures", f"images of {size.width} x {size.height} pixels")
    return size


def stated_outputs(text: str) -> tuple[int | None, bool]:
    """Tokens that an image becomes, and whether they are said of all images of a sample together."""
    found = next(filter(None, (words.search(text) for words in OUTPUTS)), None)
    if not found:
        return None, False
    return int(found["count"]), found["of"] not in (None, "image")


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
