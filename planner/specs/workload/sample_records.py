"""Samples as people have them: text tokens, images in pixels, videos, seconds of sound; read from CSV or JSON lines."""

import codecs
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from planner.errors import InputError
from planner.files import SAMPLES, open_bytes, read_csv, too_many_records
from planner.specs.base import Amount, Spec
from planner.specs.layers.resize import ImageSize
from planner.specs.workload.samples import MAX_LENGTH

JSON_ENDINGS = (".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz", ".json", ".json.gz")
COLUMNS = ("text", "images", "videos", "audio")
MOST_COMMAS = 2**22  # of a list that is read whole
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
    """A sample as a line of a JSON file says it."""

    text: int = 0
    images: tuple[tuple[int, int], ...] = ()
    videos: tuple[tuple[int, int, float], ...] = ()
    audio: tuple[Amount, ...] = ()


def read_sample_file(path: Path) -> Iterator[tuple[Sample, str]]:
    """Each sample of a file with its place, for errors. Raises InputError."""
    samples = json_samples(path) if path.name.endswith(JSON_ENDINGS) else csv_samples(path)
    for sample, where in samples:
        fault = sample_fault(sample)
        if fault:
            raise InputError(fault, where=where, fix=f"write it like {EXAMPLE}")
        yield sample, where


def json_samples(path: Path) -> Iterator[tuple[Sample, str]]:
    """Each line of JSON, or each entry of one list, as a sample. Raises InputError."""
    decoder = msgspec.json.Decoder(SampleLine)
    for entry, where in json_entries(path):
        try:
            found = decoder.decode(entry)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            message = f"this is no sample: {decoding_fault(error)}"
            raise InputError(message, where=where, fix=f"write it like {EXAMPLE}") from error
        images, videos = (ImageSize(*each) for each in found.images), (Video(*each) for each in found.videos)
        yield Sample(found.text, tuple(images), tuple(videos), found.audio), where


def json_entries(path: Path) -> Iterator[tuple[bytes | msgspec.Raw, str]]:
    """The text of each sample with its place. Raises InputError."""
    with open_bytes(path, SAMPLES) as file:
        for number, line in enumerate(file, 1):
            if number > SAMPLES.records:
                raise too_many_records(SAMPLES, path, number)
            line = line.removeprefix(codecs.BOM_UTF8)
            if number == 1 and line.lstrip().startswith(b"["):
                yield from json_list(line + file.read(), path)
            elif line.strip():
                yield line, f"{path}:{number}"


def decoding_fault(error: Exception) -> str:
    """What is wrong with a text that is no JSON, or not as it should be, to go on a sentence with."""
    text = str(error)
    return text if text.startswith("JSON") else f"{text[:1].lower()}{text[1:]}"


def json_list(text: bytes, path: Path) -> Iterator[tuple[msgspec.Raw, str]]:
    """The entries of a JSON list, counted from 0, with their places. Raises InputError."""
    fix = "write a sample a line, or one whole list"
    if text.count(b",") > MOST_COMMAS:
        raise InputError("this list is too long to be read whole", where=str(path), fix="write a sample a line")
    try:
        entries = msgspec.json.decode(text, type=list[msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = f"this is no list of samples: {decoding_fault(error)}"
        raise InputError(message, where=str(path), fix=fix) from error
    if len(entries) > SAMPLES.records:
        raise too_many_records(SAMPLES, path, 1)
    yield from ((each, f"{path} ([{number}])") for number, each in enumerate(entries))


def csv_samples(path: Path) -> Iterator[tuple[Sample, str]]:
    """Each record of a CSV as a sample; a `+` is between several in a cell. Raises InputError."""
    records = read_csv(path, SAMPLES)
    _, header = next(records, (0, []))
    unknown = [name for name in header if name not in COLUMNS]
    if unknown or not header:
        named = f"there is no column `{unknown[0][:40]}` of samples" if unknown else "the file is empty"
        raise InputError(named, where=f"{path}:1", fix=f"columns are any of {', '.join(COLUMNS)}")
    for line, cells in records:
        try:
            if cells:
                yield csv_sample(dict(zip(header, cells, strict=False))), f"{path}:{line}"
        except ValueError as error:
            fix = "text: 512, images: 1280x960+640x480, videos: 1280x720x60, audio: 7.2+3"
            raise InputError(f"this is no sample: {error}", where=f"{path}:{line}", fix=fix) from error


def csv_sample(record: dict[str, str]) -> Sample:
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
