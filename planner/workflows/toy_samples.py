"""A toy data set that can be learned: coloured squares and tones, whose names are the words that follow.

What stands before a word in its text says little about it: of a sample with one image any of four colours may follow.
A model whose loss falls below `text_entropy` has looked, or listened.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from planner.files import require_folder
from planner.specs.workload.distributions import random_generator
from planner.specs.workload.sample_folder import CLIPS, IMAGES, MediaFiles
from planner.specs.workload.token_folder import OFFSETS, TOKENS

if TYPE_CHECKING:
    import numpy as np
    from numpy.random import Generator
    from numpy.typing import NDArray

BEGIN, END, FIRST_COLOUR = 0, 1, 2  # words
COLOURS = ((230, 40, 40), (40, 200, 60), (50, 70, 230), (230, 210, 50))  # red, green, blue, yellow
FIRST_PITCH = FIRST_COLOUR + len(COLOURS)
PITCHES, BAND = 4, 4  # tones, and mel bins of each
SIDES, FRAMES = (24, 49), (20, 61)  # pixels on a side, and frames of a clip: from, to before
KINDS = ((1, 0),) * 4 + ((0, 1),) * 3 + ((1, 1), (2, 0), (0, 0))  # images and clips of a sample, each as likely


class ToySample(NamedTuple):
    """A sample: its words, its images `(height, width, 3)` of bytes, and its clips `(frames, mels)`."""

    words: list[int]
    images: list["NDArray[np.uint8]"]
    clips: list["NDArray[np.float32]"]


def toy_samples(count: int, seed: int = 0) -> list[ToySample]:
    """Samples by seed; more of them continue fewer."""
    random = random_generator(seed, jumps=6)
    return [toy_sample(random) for _ in range(count)]


def toy_sample(random: "Generator") -> ToySample:
    """A sample with images, clips, both or neither: one word for each, in their order, between begin and end."""
    images, clips = KINDS[random.integers(len(KINDS))]
    colours = [int(random.integers(len(COLOURS))) for _ in range(images)]
    pitches = [int(random.integers(PITCHES)) for _ in range(clips)]
    words = [FIRST_COLOUR + colour for colour in colours] + [FIRST_PITCH + pitch for pitch in pitches]
    return ToySample(
        [BEGIN, *words, END],
        [coloured_square(random, colour) for colour in colours],
        [tone(random, pitch) for pitch in pitches],
    )


def coloured_square(random: "Generator", colour: int) -> "NDArray[np.uint8]":
    """A square of a colour, at least half as wide as the image, somewhere on noise."""
    height, width = (int(side) for side in random.integers(*SIDES, size=2))
    image = random.integers(0, 256, (height, width, 3)).astype("uint8")
    side = int(random.integers(min(height, width) // 2, min(height, width) + 1))
    top, left = int(random.integers(height - side + 1)), int(random.integers(width - side + 1))
    image[top : top + side, left : left + side] = COLOURS[colour]
    return image


def tone(random: "Generator", pitch: int) -> "NDArray[np.float32]":
    """Noise, in which one band of mel bins is louder."""
    frames = random.random((int(random.integers(*FRAMES)), PITCHES * BAND)) - 0.5
    frames[:, pitch * BAND : (pitch + 1) * BAND] += 1.0
    return frames.astype("float32")


def write_samples(folder: Path, samples: Sequence[ToySample]) -> None:
    """Write samples as a folder to train on. Raises InputError."""
    import numpy as np

    require_folder(folder, str(folder))
    np.save(folder / TOKENS, np.concatenate([each.words for each in samples]).astype("uint16"))
    np.save(folder / OFFSETS, np.cumsum([0, *(len(each.words) for each in samples)], dtype="int64"))
    write_media(folder, IMAGES, [each.images for each in samples])
    write_media(folder, CLIPS, [each.clips for each in samples])


def write_media(folder: Path, files: MediaFiles, of_samples: "Sequence[Sequence[NDArray[Any]]]") -> None:
    """Write the images or the clips of each sample, if there are any: their values in one array, and the index."""
    import numpy as np

    arrays = [(number, array) for number, of in enumerate(of_samples) for array in of]
    values = [array.reshape(-1, array.shape[-1]) for _, array in arrays]
    firsts = np.cumsum([0, *map(len, values)])
    index = [(number, *array.shape[:-1], first) for (number, array), first in zip(arrays, firsts, strict=False)]
    if index:
        np.save(folder / files.values, np.concatenate(values))
        np.save(folder / files.index, np.array(index, dtype="int64"))


def text_entropy(texts: Sequence[Sequence[int]]) -> float:
    """Mean over all predicted words of what is left to guess of each, in nats, by whoever knows the texts by heart but
    sees no image and hears no sound: no model of the text alone has a smaller loss on them.
    """
    followers: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
    for text in texts:
        for at in range(1, len(text)):
            followers[tuple(text[:at])][text[at]] += 1
    counted = [(count, of.total()) for of in followers.values() for count in of.values()]
    return sum(count * math.log(total / count) for count, total in counted) / sum(count for count, _ in counted)
