"""Requests drawn as ServeGen describes clients (arXiv 2505.09999): rates and lengths of each, window by window.

Two tables stand beside each other: `NAME_arrivals.csv`, a client's rate and the distribution of the time between two of
its requests (Gamma or Weibull, of which the shape is p1; the scale is as the rate wants it); and `NAME_lengths.csv`,
the distribution of each length. Fields are drawn independently, as the tables have them.
"""

from bisect import bisect_left
from collections import defaultdict
from itertools import accumulate
from math import gamma
from pathlib import Path
from random import Random
from typing import NamedTuple

from planner import files
from planner.errors import InputError
from planner.specs.workload.requests.request import Request, in_order

ARRIVALS = "client, window_start_s, rate_rps, iat_dist, p1"
LENGTHS = "client, window_start_s, field, value, prob"
WINDOW = 600.0  # seconds
MOST_IMAGES = 256  # of one request
MOST = 10**6  # requests


class Window(NamedTuple):
    """What is drawn: seconds of a day, of all clients or some; `repeated`: of a client's images, those that are among
    the last `RECENT` of it, an assumption, as the tables do not say it.
    """

    start_s: float = 0.0
    seconds: float = WINDOW
    clients: tuple[str, ...] = ()
    seed: int = 0
    repeated: float = 0.0


RECENT = 64


class Client(NamedTuple):
    """A client within one window: its rate, the time between requests, and each length's values with rising shares."""

    rate: float
    dist: str
    shape: float
    fields: dict[str, tuple[list[float], list[float]]]  # field → values, and the share at or below each


def is_servegen(path: Path) -> bool:
    """Whether a table is ServeGen's of arrivals."""
    return "_arrivals.csv" in path.name and files.read_head(path, 6) == b"client"


def sampled(path: Path, window: Window) -> tuple[Request, ...]:
    """Requests of these clients in these seconds, counted from the first second, by the seed. Raises InputError."""
    lengths = path.with_name(path.name.replace("_arrivals.csv", "_lengths.csv"))
    clients = read_clients(path, lengths, window)
    found: list[Request] = []
    for (name, start), client in sorted(clients.items()):
        random = Random(f"{window.seed} {name} {start}")
        found += drawn(client, name, max(start, window.start_s), min(start + WINDOW, window.start_s + window.seconds),
                       window, random)  # fmt: skip
        if len(found) > MOST:
            raise InputError(f"over {MOST:,} requests", where=str(path), fix="fewer clients, or seconds")
    found.sort(key=lambda each: (each.arrival_s, each.id))
    if not found:
        fix = "another --client, or --from and --seconds of a busier part of the day"
        raise InputError("nobody asks in these seconds", where=str(path), fix=fix)
    named = (each._replace(id=str(number)) for number, each in enumerate(found))
    return in_order((str(path), each) for each in named)


def read_clients(path: Path, lengths: Path, window: Window) -> dict[tuple[str, float], Client]:
    """The clients that ask within the window, by name and start. Raises InputError."""
    end, rates = window.start_s + window.seconds, dict[tuple[str, float], Client]()
    for where, cells in files.read_records(path, ARRIVALS, {}):
        try:
            key, rate = (cells["client"], float(cells["window_start_s"])), float(cells["rate_rps"])
            shape = float(cells["p1"])
        except (KeyError, ValueError) as error:
            raise InputError("this is no client's rate", where=where, fix=f"columns {ARRIVALS}") from error
        wanted = not window.clients or key[0] in window.clients
        if wanted and rate > 0 and shape > 0 and window.start_s < key[1] + WINDOW and key[1] < end:
            rates[key] = Client(rate, cells["iat_dist"], shape, {})
    shares: dict[tuple[tuple[str, float], str], list[tuple[float, float]]] = defaultdict(list)
    for where, cells in files.read_records(lengths, LENGTHS, {}):
        try:
            key = cells["client"], float(cells["window_start_s"])
            value = float(cells["value"]), float(cells["prob"])
        except (KeyError, ValueError) as error:
            raise InputError("this is no length", where=where, fix=f"columns {LENGTHS}") from error
        shares[(key[0], hourly(key[1])), cells["field"]].append(value)
    for (key, name), values in shares.items():
        known = [own for own in rates if own[0] == key[0] and hourly(own[1]) == key[1]]
        for own in known:
            values.sort()
            rates[own].fields[name] = [each for each, _ in values], [*accumulate(prob for _, prob in values)]
    return {key: client for key, client in rates.items() if "output_tokens" in client.fields}


def hourly(start: float) -> float:
    """The start of the hours whose lengths a window has: they are known for six at a time."""
    return start // LENGTH_WINDOW * LENGTH_WINDOW


LENGTH_WINDOW = 21600.0


def drawn(client: Client, name: str, start: float, end: float, window: Window, random: Random) -> list[Request]:
    """The requests of one client from `start` to `end`."""
    found, at, recent, seen = list[Request](), start, list[tuple[str, int]](), 0
    while len(found) <= MOST:
        at += interval(client, random)
        if at >= end:
            return found
        count = min(MOST_IMAGES, round(value(client, "image_count", random)))
        images = list[tuple[str, int]]()  # hash, tokens
        for _ in range(count):
            if recent and random.random() < window.repeated:
                images.append(recent[random.randrange(len(recent))])
                continue
            seen += 1
            images.append((f"{name}.{start:g}.{seen}", max(1, round(value(client, "image_tokens", random)))))
            recent = [*recent[1 - RECENT :], images[-1]]
        text = value(client, "text_tokens", random) or value(client, "input_tokens", random)
        outputs = max(1, round(value(client, "output_tokens", random)))
        hashes, tokens = tuple(each for each, _ in images), tuple(each for _, each in images)
        found.append(Request(name, at - window.start_s, max(1, round(text)), outputs, tokens, hashes))
    return found


def interval(client: Client, random: Random) -> float:
    """Seconds to a client's next request: of its distribution, and its rate in the mean."""
    mean = 1.0 / client.rate
    if client.dist == "Weibull":
        return random.weibullvariate(mean / gamma(1.0 + 1.0 / client.shape), client.shape)
    return random.gammavariate(client.shape, mean / client.shape)


def value(client: Client, field: str, random: Random) -> float:
    """A drawn length; 0 of a field that the client does not have."""
    if field not in client.fields:
        return 0.0
    values, shares = client.fields[field]
    return values[min(len(values) - 1, bisect_left(shares, random.random() * shares[-1]))]
