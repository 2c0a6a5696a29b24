"""Samples drawn from distributions: a share of them with images and sound, by measured quantiles.

Only quantiles are kept, no data. An image's aspect and its longer side are drawn independently of each other.
How many images a sample has was measured nowhere in public: the number a job says is its assumption.
"""

from typing import TYPE_CHECKING, NamedTuple

from planner.errors import InputError
from planner.specs.layers.resize import ImageSize
from planner.specs.workload.distributions import random_generator
from planner.specs.workload.length_sources import DrawnClips, DrawnImages, SampleMix
from planner.specs.workload.sample_records import Sample

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Points = tuple[tuple[float, float], ...]  # (share of all, value), both rising


class ImageQuantiles(NamedTuple):
    source: str
    aspect: Points  # width over height
    longer: Points  # pixels of the longer side


class ClipQuantiles(NamedTuple):
    source: str
    seconds: Points


IMAGES = {
    "coco": ImageQuantiles(
        "117,263 photographs of COCO's training and validation sets (lists of shapes of its YOLO conversion)",
        (
            *((0.0, 0.244), (0.001, 0.506), (0.01, 0.637), (0.05, 0.667), (0.10, 0.688), (0.15, 0.75), (0.22, 0.751)),
            *((0.25, 1.0), (0.28, 1.01), (0.30, 1.25), (0.35, 1.333), (0.58, 1.334), (0.60, 1.339), (0.70, 1.499)),
            *((0.90, 1.506), (0.95, 1.633), (0.99, 1.988), (0.999, 3.077), (1.0, 6.154)),
        ),
        (
            *((0.0, 72), (0.001, 300), (0.005, 424), (0.01, 500), (0.14, 500), (0.15, 612), (0.17, 612)),
            *((0.18, 640), (1.0, 640)),
        ),
    )
}
CLIPS = {
    "librispeech": ClipQuantiles(
        "1,544 utterances of LibriSpeech dev-clean (read sentences)",
        (
            *((0.0, 1.5), (0.01, 1.92), (0.05, 2.33), (0.10, 2.69), (0.25, 3.73), (0.40, 4.94), (0.50, 6.05)),
            *((0.60, 7.21), (0.75, 9.25), (0.85, 11.26), (0.90, 13.49), (0.95, 16.35), (0.99, 24.24), (1.0, 32.48)),
        ),
    ),
    "voxconverse": ClipQuantiles(
        "216 recordings of VoxConverse's development set, to the end of the last speech (talks and debates)",
        (
            *((0.0, 21.96), (0.01, 29.6), (0.05, 57.72), (0.10, 83.86), (0.25, 143.4), (0.40, 194.1), (0.50, 251.9)),
            *((0.60, 337.2), (0.75, 484.0), (0.85, 613.9), (0.90, 672.6), (0.95, 854.2), (0.99, 1015.4), (1.0, 1095.5)),
        ),
    ),
}


def draw_samples(mix: SampleMix, text: list[int], seed: int, first: int = 0) -> list[Sample]:
    """Samples from number `first` on, with these tokens of text, of which the mix's share has images and sound; the
    same seed draws the same, and more samples continue fewer. Raises InputError.
    """
    whole = mix.multimodal + mix.text_only
    if not whole > 0:
        fix = "multimodal: 9, text_only: 1 are nine with images or sound to one without"
        raise InputError("both shares of the mix are 0", where="workload.lengths.multimodal", fix=fix)
    if mix.multimodal and not mix.images and not mix.audio:
        fix = "images: {name: coco}, or audio: {name: librispeech}"
        raise InputError("multimodal samples have neither images nor sound", where="workload.lengths", fix=fix)
    span = (first, first + len(text))
    drawn = drawn_multimodal(mix, span[1], seed)[first:]
    images = draw_images(mix.images, span, seed) if mix.images else [()] * len(text)
    clips = draw_clips(mix.audio, span, seed) if mix.audio else [()] * len(text)
    return [
        Sample(tokens, images[at], (), clips[at]) if drawn[at] else Sample(tokens) for at, tokens in enumerate(text)
    ]


def drawn_multimodal(mix: SampleMix, count: int, seed: int) -> "NDArray[np.bool_]":
    """Which of the first `count` samples have images and sound."""
    whole = mix.multimodal + mix.text_only
    return random_generator(seed, jumps=2).random(count) * whole < mix.multimodal


def multimodal_before(mix: SampleMix, number: int, seed: int) -> int:
    """How many samples before this one have images and sound."""
    return int(drawn_multimodal(mix, number, seed).sum())


def draw_images(given: DrawnImages, span: tuple[int, int], seed: int) -> list[tuple[ImageSize, ...]]:
    """`each` images for each sample of a span. Raises InputError."""
    import numpy as np

    if given.sizes:
        return [tuple(ImageSize(*size) for size in given.sizes) * given.each] * (span[1] - span[0])
    if given.name not in IMAGES:
        raise unknown_name(given.name, "images", [*IMAGES])
    found = IMAGES[given.name]
    first, last = (end * given.each for end in span)
    aspects = drawn_values(found.aspect, last, seed, 3)[first:]
    longer = drawn_values(found.longer, last, seed, 4)[first:]
    widths = np.rint(longer * np.minimum(1.0, aspects)).astype(int).tolist()
    heights = np.rint(longer / np.maximum(1.0, aspects)).astype(int).tolist()
    sizes = [ImageSize(max(1, w), max(1, h)) for w, h in zip(widths, heights, strict=True)]
    return [tuple(sizes[at : at + given.each]) for at in range(0, last - first, given.each)]


def draw_clips(given: DrawnClips, span: tuple[int, int], seed: int) -> list[tuple[float, ...]]:
    """`each` clips for each sample of a span, in seconds. Raises InputError."""
    import numpy as np

    if given.seconds:
        return [given.seconds * given.each] * (span[1] - span[0])
    if given.name not in CLIPS:
        raise unknown_name(given.name, "audio", [*CLIPS])
    first, last = (end * given.each for end in span)
    seconds = np.round(drawn_values(CLIPS[given.name].seconds, last, seed, 5)[first:], 2).tolist()
    return [tuple(seconds[at : at + given.each]) for at in range(0, last - first, given.each)]


def drawn_values(points: Points, count: int, seed: int, jumps: int) -> "NDArray[np.float64]":
    """Independent draws, piecewise linear in the logarithm between quantiles."""
    import numpy as np

    shares, values = zip(*points, strict=True)
    return np.exp(np.interp(random_generator(seed, jumps).random(count), shares, np.log(values)))


def unknown_name(name: str, what: str, names: list[str]) -> InputError:
    where = f"workload.lengths.{what}.name"
    return InputError(
        f"there is no distribution `{name}` of {what}", where=where, fix=f"name one of {', '.join(names)}"
    )
