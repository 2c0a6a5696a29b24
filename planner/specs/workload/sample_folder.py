"""A folder of samples with images and sound: a folder of tokens (token_folder.py), which are the text, and beside it

    pixels.npy   (pixels, channels): all images one after another, each row by row from its top left
    images.npy   (images, 4) int64: sample, height, width, and which pixel is the image's first
    frames.npy   (frames, mels): mel frames of all clips one after another, 100 a second
    clips.npy    (clips, 3) int64: sample, frames, and which frame is the clip's first

Images and clips are in the order of their samples; either pair of files may be left out, and a sample that has an image
or a clip may have no text. All arrays are mapped into memory: only what is used is read.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.errors import InputError
from planner.specs.layers.audio import FRAMES_PER_SECOND
from planner.specs.layers.resize import MAX_PIXELS, ImageSize
from planner.specs.layers.stack import ModuleStack
from planner.specs.workload.sample_records import Sample
from planner.specs.workload.token_folder import HOW_TO_MAKE, open_array, open_offsets, sample_range

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FLOATS = ("float16", "float32", "float64")
SAME_FOLDER = "give the folder that the plan was made from"


@dataclass(frozen=True, slots=True)
class MediaFiles:
    """Where images or clips lie, and what they consist of."""

    noun: str
    index: str  # file with a row for each: sample, sizes, first value
    values: str  # file with the values of all
    unit: str  # of values, in which sizes are counted: one row of the values
    width: str  # what a value has several of
    sizes: tuple[str, ...]
    types: tuple[str, ...]


IMAGES = MediaFiles("image", "images.npy", "pixels.npy", "pixels", "channels", ("height", "width"), ("uint8", *FLOATS))
CLIPS = MediaFiles("clip", "clips.npy", "frames.npy", "frames", "mel bins", ("frames",), FLOATS)


@dataclass(frozen=True, slots=True)
class Media:
    """All images, or all clips, of a folder."""

    folder: Path
    files: MediaFiles
    index: "NDArray[np.int64]"
    values: "NDArray[Any]"

    def __len__(self) -> int:
        return len(self.index)

    def of_sample(self, sample: int) -> range:
        """The numbers of a sample's images or clips."""
        return range(*(int(end) for end in self.index[:, 0].searchsorted([sample, sample + 1])))

    def sizes(self, number: int) -> tuple[int, ...]:
        """Height and width of an image, frames of a clip. Raises InputError where there is none of this number."""
        if number >= len(self):
            what = f"there is no {self.files.noun} {number}: the folder has {len(self)}"
            raise InputError(what, where=str(self.folder / self.files.index), fix=SAME_FOLDER)
        return tuple(int(size) for size in self.index[number, 1:-1])

    def read(self, number: int) -> "NDArray[Any]":
        """The values of an image `(height, width, channels)`, or of a clip `(frames, mels)`. Raises InputError."""
        sizes, first = self.sizes(number), int(self.index[number, -1])
        count = sizes[0] * sizes[-1] if len(sizes) > 1 else sizes[0]
        return self.values[first : first + count].reshape(*sizes, -1)

    def require_width(self, width: int, module: str) -> None:
        """Raises InputError unless a pixel has as many channels, a frame as many mel bins, as a module reads."""
        found = self.values.shape[1]
        if found != width:
            what = f"{self.files.unit} have {found} {self.files.width}, `{module}` reads {width}"
            fix = f"make {self.files.values} with {width}, or name a model that reads {found}"
            raise InputError(what, where=str(self.folder / self.files.values), fix=fix)


@dataclass(frozen=True, slots=True)
class SampleFolder:
    """An open folder of samples."""

    path: Path
    offsets: "NDArray[np.int64]"
    images: Media | None
    clips: Media | None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def sample(self, number: int) -> Sample:
        """Tokens of text and sizes of images and clips of a sample. Raises InputError."""
        pictures = self.images.of_sample(number) if self.images else ()
        sounds = self.clips.of_sample(number) if self.clips else ()
        begin, end = sample_range(self.offsets, self.path, number, bool(pictures or sounds))
        sizes = [self.images.sizes(each) for each in pictures] if self.images else []
        seconds = [self.clips.sizes(each)[0] / FRAMES_PER_SECOND for each in sounds] if self.clips else []
        return Sample(end - begin, tuple(ImageSize(width, height) for height, width in sizes), (), tuple(seconds))


def media_files(folder: Path) -> tuple[str, ...]:
    """The names of the files of images and clips that a folder has; a folder that cannot be read has none."""
    names = (name for of in (IMAGES, CLIPS) for name in (of.index, of.values))
    return tuple(name for name in names if os.path.exists(folder / name))


def has_media(folder: Path) -> bool:
    """Whether a folder has images or sound beside its tokens."""
    return any(media_files(folder))


def open_sample_folder(folder: Path) -> SampleFolder:
    """Open a folder; the whole index of images and clips is checked. Raises InputError."""
    offsets = open_offsets(folder)
    images, clips = (open_media(folder, files, len(offsets) - 1) for files in (IMAGES, CLIPS))
    return SampleFolder(folder, offsets, images, clips)


def require_widths(folder: SampleFolder, modules: Mapping[str, ModuleStack]) -> None:
    """Raises InputError unless pixels have the channels, and frames the mel bins, that the modules read."""
    for name, module in modules.items():
        media = {"patches": folder.images, "frames": folder.clips}.get(module.input_unit)
        if media:
            media.require_width(module.input_width, name)


def open_media(folder: Path, files: MediaFiles, samples: int) -> Media | None:
    """Open images or clips; None where the folder has neither their index nor their values. Raises InputError."""
    if not {files.index, files.values} & {*media_files(folder)}:
        return None
    index = open_array(folder / files.index, ("int64",), f"index of {files.noun}s", 2)
    values = open_array(folder / files.values, files.types, files.unit, 2)
    columns = ("sample", *files.sizes, "first")
    if index.shape[1] != len(columns):
        what = f"the index has {index.shape[1]} columns, not {', '.join(columns)}"
        raise InputError(what, where=str(folder / files.index), fix=HOW_TO_MAKE)
    media = Media(folder, files, index, values)
    require_index(media, samples)
    return media


def require_index(media: Media, samples: int) -> None:
    """Raises InputError for an image or clip that is of no sample, has no size, or lies outside the values."""
    import numpy as np

    if not len(media):
        return
    sample, sizes, first = media.index[:, 0], media.index[:, 1:-1], media.index[:, -1]
    counts = np.clip(sizes, 0, MAX_PIXELS).prod(axis=1)
    stored, unit, highest = len(media.values), media.files.unit, np.maximum.accumulate(sample)
    faults = {
        "is of sample {sample}, and samples are 0 to {last}": (sample < 0) | (sample >= samples),
        "is of sample {sample}, behind one of sample {highest}": sample < highest,
        "has {sizes} {unit}": ((sizes < 1) | (sizes > MAX_PIXELS)).any(axis=1),
        "is {count} {unit} from {first} on, and there are {stored}": (first < 0)
        | (first > stored)
        | (counts > stored - np.clip(first, 0, stored)),
    }
    for says, wrong in faults.items():
        if not wrong.any():
            continue
        at = int(wrong.argmax())
        what = says.format(
            sample=sample[at],
            last=samples - 1,
            highest=highest[at],
            sizes=" x ".join(map(str, sizes[at])),
            unit=unit,
            count=counts[at],
            first=first[at],
            stored=stored,
        )
        message = f"{media.files.noun} {at} {what}"
        raise InputError(message, where=str(media.folder / media.files.index), fix=HOW_TO_MAKE)
