"""Samples as people have them: text tokens, images in pixels, videos, seconds of sound; read from CSV or JSON lines."""

import csv
import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from planner.errors import InputError
from planner.files import printable
from planner.specs.base import Amount, Spec
from planner.specs.layers.resize import ImageSize
from planner.specs.workload.samples import MAX_LENGTH, read_text_file

JSON_ENDINGS = (".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz", ".json", ".json.gz")
COLUMNS = ("text", "images", "videos", "audio")
EXAMPLE = '{"text": 512, "images": [[1280, 960]], "audio": [7.2]}'
TOKENS, SECONDS = re.compile(r"-?[0-9]{1,18}"), re.compile(r"-?[0-9]{1,9}(?:\.[0-9]*)?")
SIZE = re.compile(r"([0-9]{1,9})x([0-9]{1,9})")
VIDEO = re.compile(rf"{SIZE.pattern}x({SECONDS.pattern})")


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
    """Each line of JSON, or each entry of one list, as a sample. Raises InputError."""
    if text.lstrip().startswith("["):
        entries: Sequence[tuple[bytes, str]] = [(bytes(each), f"{path} ([{n}])") for n, each in json_list(text, path)]
    else:
        numbered = enumerate(text.splitlines(), 1)
        entries = [(line.encode(), f"{path}:{number}") for number, line in numbered if line.strip()]
    decoder = msgspec.json.Decoder(SampleLine)
    for entry, where in entries:
        try:
            found = decoder.decode(entry)
        except msgspec.DecodeError as error:
            message = f"this is no sample: {decoding_fault(error)}"
            raise InputError(message, where=where, fix=f"write it like {EXAMPLE}") from error
        images, videos = (ImageSize(*each) for each in found.images), (Video(*each) for each in found.videos)
        yield Sample(found.text, tuple(images), tuple(videos), found.audio), where


def decoding_fault(error: msgspec.DecodeError) -> str:
    """What is wrong with a text that is no JSON, or not as it should be, to go on a sentence with."""
    text = str(error)
    return text if text.startswith("JSON") else f"{text[:1].lower()}{text[1:]}"


def json_list(text: str, path: Path) -> Iterator[tuple[int, msgspec.Raw]]:
    """The entries of a JSON list, counted from 0. Raises InputError."""
    try:
        yield from enumerate(msgspec.json.decode(text, type=list[msgspec.Raw]))
    except msgspec.DecodeError as error:
        message = f"this is no list of samples: {decoding_fault(error)}"
        raise InputError(message, where=str(path), fix="write a sample a line, or one whole list") from error


def csv_samples(text: str, path: Path) -> Iterator[tuple[Sample, str]]:
    """Each record of a CSV as a sample; a `+` is between several in a cell. Raises InputError."""
    records = csv.DictReader(io.StringIO(text))
    try:
        unknown = [name for name in records.fieldnames or () if name not in COLUMNS]
        if unknown or not records.fieldnames:
            named = f"there is no column `{printable(unknown[0])[:40]}` of samples" if unknown else "the file is empty"
            raise InputError(named, where=f"{path}:1", fix=f"columns are any of {', '.join(COLUMNS)}")
        for record in records:
            yield csv_sample(record), f"{path}:{records.line_num}"
    except (ValueError, csv.Error) as error:
        fix = "text: 512, images: 1280x960+640x480, videos: 1280x720x60, audio: 7.2+3"
        where = f"{path}:{records.line_num}"
        raise InputError(f"this is no sample: {printable(str(error))}", where=where, fix=fix) from error


def csv_sample(record: dict[str, Any]) -> Sample:
    """A sample from a record's cells. Raises ValueError."""
    parts = {name: [each.strip() for each in (record.get(name) or "").split("+") if each.strip()] for name in COLUMNS}
    text = parts["text"] or ["0"]
    if len(text) > 1 or not TOKENS.fullmatch(text[0]):
        raise ValueError(f"`{'+'.join(text)[:40]}` is no number of tokens")
    images = [ImageSize(int(found[1]), int(found[2])) for found in matches(SIZE, parts["images"], "width x height")]
    videos = [
        Video(int(found[1]), int(found[2]), float(found[3]))
        for found in matches(VIDEO, parts["videos"], "width x height x seconds")
    ]
    audio = [float(found[0]) for found in matches(SECONDS, parts["audio"], "number of seconds")]
    return Sample(int(text[0]), tuple(images), tuple(videos), tuple(audio))


def matches(pattern: re.Pattern[str], cells: Sequence[str], what: str) -> Iterator[re.Match[str]]:
    """Each cell as a pattern reads it. Raises ValueError."""
    for cell in cells:
        found = pattern.fullmatch(cell)
        if not found:
            raise ValueError(f"`{cell[:40]}` is no {what}")
        yield found


def sample_fault(sample: Sample) -> str:
    """What no sample can have; empty: nothing."""
    if not 0 <= sample.text <= MAX_LENGTH:
        return f"{sample.text} tokens of text are no sample"
    for seconds in (*sample.audio, *(video.seconds for video in sample.videos)):
        if not 0 < seconds < 1e7:
            return f"{seconds:g} seconds are no length of a clip"
    return "" if sample.text or sample.is_multimodal else "the sample is empty"
