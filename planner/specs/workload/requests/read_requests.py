"""Files of requests: planner's own, as CSV or JSON lines, and those of others, told apart by what they hold.

CSV         arrival_s, text_tokens, output_tokens, images or image_tokens, image_hashes, prefix_hashes, id
JSON lines  the same names; or Mooncake's timestamp, input_length, output_length, hash_ids (arXiv 2407.00079)
Azure       CSV of arrival_s (or TIMESTAMP), input_tokens, output_tokens, whatever their capitals
vLLM        JSON that `vllm bench serve --save-result --save-detailed` writes
ServeGen    CSV of clients' rates, beside one of their lengths (requests/servegen.py).
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from planner import files
from planner.errors import InputError
from planner.specs.workload.requests.request import PREFIX_BLOCK, Request, in_order
from planner.specs.workload.requests.servegen import Window, is_servegen, sampled

COLUMNS = "arrival_s, text_tokens, output_tokens"
ALIASES = {
    **dict.fromkeys(("input_tokens", "ContextTokens", "input_length", "prompt_len"), "text_tokens"),
    **dict.fromkeys(("GeneratedTokens", "output_length", "output_len"), "output_tokens"),
    **dict.fromkeys(("TIMESTAMP",), "arrival_s"),
    "hash_ids": "prefix_hashes",
}
MS = 1e-3  # of Mooncake's timestamps
ImageTokens = Callable[[int, int], int]  # width and height in pixels → tokens of features


class Reading(NamedTuple):
    """How a file of requests is read: tokens of images given in pixels, and what of ServeGen's clients is drawn."""

    image_tokens: ImageTokens
    window: Window = Window()


def read_requests(path: Path, reading: Reading) -> tuple[Request, ...]:
    """The requests of a file, in order of arrival, from 0 s on. Raises InputError."""
    head = files.read_head(path, 1)
    if head == b"{" and ".jsonl" not in path.name:
        text = files.read_text(path, kind=files.SAMPLES)
        if "\n{" not in text.strip():
            return from_zero(in_order(vllm_requests(parsed(text, str(path)), str(path))))
    if head == b"{":
        return from_zero(in_order(line_requests(path, reading)))
    if is_servegen(path):
        return sampled(path, reading.window)
    records = files.read_records(path, COLUMNS, ALIASES)
    return from_zero(in_order(cell_request(number, *record, reading) for number, record in enumerate(records)))


def from_zero(requests: Sequence[Request]) -> tuple[Request, ...]:
    """Requests with arrivals counted from the first."""
    start = requests[0].arrival_s
    return tuple(each._replace(arrival_s=each.arrival_s - start) for each in requests)


def line_requests(path: Path, reading: Reading) -> Iterator[tuple[str, Request]]:
    """The requests of a file of JSON lines. Raises InputError."""
    lines = files.read_text(path, kind=files.SAMPLES).splitlines()
    for number, text in enumerate(line for line in lines if line.strip()):
        where = f"{path}:{number + 1}"
        found = parsed(text, where)
        cells = {ALIASES.get(name, name): value for name, value in found.items()}
        if "timestamp" in cells:
            cells["arrival_s"] = float(cells.pop("timestamp")) * MS
        joined = {
            name: "+".join(map(str, value)) if isinstance(value, list) else value for name, value in cells.items()
        }
        yield cell_request(number, where, joined, reading)


def parsed(text: str, where: str) -> dict[str, Any]:
    """An object of JSON. Raises InputError."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError("this is no JSON", where=where, fix="an object of JSON on each line") from error
    if not isinstance(found, dict):
        raise InputError("this is no object of JSON", where=where, fix=f"an object with {COLUMNS}")
    return found


def cell_request(number: int, where: str, cells: Mapping[str, Any], reading: Reading) -> tuple[str, Request]:
    """The request of a line. Raises InputError."""
    for column in ("arrival_s", "text_tokens", "output_tokens"):
        if cells.get(column) in (None, ""):
            fix = f"columns {COLUMNS}, and images or image_tokens"
            raise InputError(f"there is no {column}", where=f"{where} ({column})", fix=fix)
    if cells.get("images") and cells.get("image_tokens"):
        raise InputError("images are given twice", where=where, fix="one of images and image_tokens")
    images = tuple(whole(each, f"{where} (image_tokens)") for each in parts(cells.get("image_tokens")))
    if cells.get("images"):
        images = tuple(pixels(each, reading.image_tokens, f"{where} (images)") for each in parts(cells["images"]))
    text, prefix = whole(cells["text_tokens"], f"{where} (text_tokens)"), parts(cells.get("prefix_hashes"))
    whole_blocks = (text + sum(images)) // PREFIX_BLOCK
    return where, Request(
        id=str(cells.get("id") or number),
        arrival_s=moment(cells["arrival_s"], f"{where} (arrival_s)"),
        text_tokens=text,
        output_tokens=whole(cells["output_tokens"], f"{where} (output_tokens)"),
        images=images,
        image_hashes=parts(cells.get("image_hashes")),
        prefix=prefix[:whole_blocks],
    )


def parts(cell: Any) -> tuple[str, ...]:
    """The values of a cell, `256+1024`."""
    return tuple(str(cell).split("+")) if cell not in (None, "") else ()


def whole(cell: Any, where: str) -> int:
    """A whole number. Raises InputError."""
    try:
        value = float(cell)
        if value == int(value):
            return int(value)
    except (TypeError, ValueError, OverflowError):
        pass
    raise InputError(f"`{str(cell)[:40]}` is no whole number", where=where, fix="such as 1024")


def pixels(cell: str, image_tokens: ImageTokens, where: str) -> int:
    """Tokens of an image, `1024x768`. Raises InputError."""
    width, _, height = cell.partition("x")
    if not (width.isdigit() and height.isdigit() and 0 < int(width) < 10**6 and 0 < int(height) < 10**6):
        raise InputError(f"`{cell[:40]}` is no image", where=where, fix="width and height in pixels, 1024x768")
    try:
        return image_tokens(int(width), int(height))
    except ValueError as error:
        what, _, fix = str(error).partition(" | ")
        raise InputError(what, where=where, fix=fix or "image_tokens in place of images") from error


def moment(cell: Any, where: str) -> float:
    """Seconds, or those of a date. Raises InputError."""
    try:
        return float(cell)
    except (TypeError, ValueError):
        pass
    try:
        return datetime.fromisoformat(str(cell)[:26]).timestamp()
    except ValueError as error:
        raise InputError(f"`{str(cell)[:40]}` is no time", where=where, fix="seconds, such as 12.5") from error


def vllm_requests(found: Mapping[str, Any], where: str) -> Iterator[tuple[str, Request]]:
    """The requests of a benchmark of vLLM, as they were sent. Raises InputError."""
    needed = ("start_times", "input_lens", "output_lens")
    lists = [found.get(name) for name in needed]
    missing = next((name for name, each in zip(needed, lists, strict=True) if not isinstance(each, list)), None)
    if missing:
        fix = "vllm bench serve --save-result --save-detailed writes it; or a table of requests"
        raise InputError(f"there is no list `{missing}`", where=where, fix=fix)
    rows = sorted(zip(*(each for each in lists if each is not None), strict=False), key=lambda row: float(row[0]))
    for number, (start, inputs, outputs) in enumerate(rows):
        place = f"{where} ({number})"
        if outputs:  # what failed has no answer
            sizes = whole(inputs, place), whole(outputs, place)
            yield place, Request(str(number), moment(start, place) - float(rows[0][0]), *sizes)
