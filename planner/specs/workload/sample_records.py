"""Samples as people have them: text tokens, images in pixels, videos, seconds of sound; read from CSV or JSON lines."""

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from planner.errors import InputError
from planner.specs.base import Amount, Spec
from planner.specs.layers.resize import ImageSize
from planner.specs.workload.samples import read_text_file

JSON_ENDINGS = (".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz", ".json", ".json.gz")
COLUMNS = ("text", "images", "videos", "audio")
EXAMPLE = '{"text": 512, "images": [[1280, 960]], "audio": [7.2]}'
SIZE = re.compile(r"(\d{1,9})x(\d{1,9})")


class Video(NamedTuple):
    width: int  # pixels
    height: int
    seconds: float


class Sample(NamedTuple):
    """One sample; images, videos and clips in the order in which the text has them."""

    text: int  # tokens of words, and of signs around images
    images: tuple[ImageSize, ...] = ()
    videos: tuple[Video, ...] = ()
    audio: tuple[float, ...] = ()  # seconds of each clip

    @property
    def is_multimodal(self) -> bool:
        return bool(self.images or self.videos or self.audio)


class SampleLine(Spec):
    """A line of a JSON file."""

    text: int = 0
    images: tuple[tuple[int, int], ...] = ()
    videos: tuple[tuple[int, int, float], ...] = ()
    audio: tuple[Amount, ...] = ()


def read_sample_file(path: Path) -> Iterator[tuple[Sample, str]]:
    """Each sample of a file with its place, for errors. Raises InputError."""
    text = read_text_file(path, "samples")
    samples = json_samples(text, path) if path.name.endswith(JSON_ENDINGS) else csv_samples(text, path)
    for sample, where in samples:
        fault = sample_fault(sample)
        if fault:
            raise InputError(fault, where=where, fix=f"write it like {EXAMPLE}")
        yield sample, where


def json_samples(text: str, path: Path) -> Iterator[tuple[Sample, str]]:
    """Each line of JSON as a sample. Raises InputError."""
    decoder = msgspec.json.Decoder(SampleLine)
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            found = decoder.decode(line)
        except msgspec.DecodeError as error:
            message = f"this is no sample: {str(error)[:1].lower()}{str(error)[1:]}"
            raise InputError(message, where=where, fix=f"write it like {EXAMPLE}") from error
        images, videos = (ImageSize(*each) for each in found.images), (Video(*each) for each in found.videos)
        yield Sample(found.text, tuple(images), tuple(videos), found.audio), where


def csv_samples(text: str, path: Path) -> Iterator[tuple[Sample, str]]:
    """Each record of a CSV as a sample: `1280x960+640x480` is two images, `1280x720x60` a video of 60 s, `7.2+3` two
    clips. Raises InputError.
    """
    records = csv.DictReader(io.StringIO(text))
    unknown = [name for name in records.fieldnames or () if name not in COLUMNS]
    if unknown or not records.fieldnames:
        named = f"there is no column `{unknown[0]}` of samples" if unknown else "the file is empty"
        raise InputError(named, where=f"{path}:1", fix=f"columns are any of {', '.join(COLUMNS)}")
    for record in records:
        where = f"{path}:{records.line_num}"
        try:
            yield csv_sample(record), where
        except (ValueError, TypeError) as error:
            fix = "text: 512, images: 1280x960+640x480, videos: 1280x720x60, audio: 7.2+3"
            raise InputError(f"this is no sample: {error}", where=where, fix=fix) from error


def csv_sample(record: dict[str, Any]) -> Sample:
    """A sample from a record's cells. Raises ValueError."""
    parts = {name: [each for each in (record.get(name) or "").split("+") if each.strip()] for name in COLUMNS}
    images = []
    for each in parts["images"]:
        found = SIZE.fullmatch(each.strip())
        if not found:
            raise ValueError(f"`{each[:40]}` is no width x height")
        images.append(ImageSize(int(found[1]), int(found[2])))
    videos = [Video(int(w), int(h), float(s)) for w, h, s in (each.split("x") for each in parts["videos"])]
    return Sample(int(record.get("text") or 0), tuple(images), tuple(videos), tuple(map(float, parts["audio"])))


def sample_fault(sample: Sample) -> str:
    """What no sample can have; empty: nothing."""
    if sample.text < 0:
        return f"{sample.text} tokens of text"
    for seconds in (*sample.audio, *(video.seconds for video in sample.videos)):
        if not 0 < seconds < 1e7:
            return f"{seconds:g} seconds are no length of a clip"
    return "" if sample.text or sample.is_multimodal else "the sample is empty"
