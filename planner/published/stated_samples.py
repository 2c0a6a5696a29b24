"""Images and sound of a sample, as a published record's settings state them."""

import re
from typing import NamedTuple

from planner.published.record_files import PublishedRecord, UnusableRecord
from planner.published.record_setup import settings_text
from planner.specs.layers.resize import ImageSize

SAMPLE = r"(?:sample|sequence|example|conversation)"
NUMBER = r"(\d{1,5}(?:\.\d+)?)"
COUNTS = (
    re.compile(rf"{NUMBER} ?images? ?(?:per|an?|/|in an?|in each|each) ?{SAMPLE}"),
    re.compile(rf"images?[ _-]?(?:per|a|/)[ _-]?{SAMPLE} ?[=:]? ?{NUMBER}"),
    re.compile(rf"\b(?:num|number of)[ _-]images ?[=:]? ?{NUMBER}"),
)
ONE_IMAGE = re.compile(r"\b(?:one|an|a single|single)[ -]images?\b(?! ?tokens?)")
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
    """From a record's texts. Raises UnusableRecord for an image without pixels."""
    text = settings_text(record)
    outputs, per_sample = stated_outputs(text)
    sound = next((float(found[1] or found[2]) for found in SOUND.finditer(text)), None)
    images = 1.0 if per_sample else stated_images(text)
    return StatedSamples(images, stated_size(text), outputs, sound)


def stated_images(text: str) -> float | None:
    """Images of a sample."""
    counts = (float(found[1]) for words in COUNTS for found in words.finditer(text))
    return next(counts, 1.0 if ONE_IMAGE.search(text) else None)


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
