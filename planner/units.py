"""Units and their texts: SI inside (seconds, bytes), GiB and ms on screens and in files."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

KIB, MIB, GIB = 2**10, 2**20, 2**30
GB = 10**9
PERCENTAGE = re.compile(r"(\d{1,9}(?:\.\d+)?) ?%", re.ASCII)
MS, US, NS = 1e-3, 1e-6, 1e-9


def gib(count_bytes: float) -> float:
    """A number of bytes in GiB, rounded to four digits for a file or a table."""
    return round(count_bytes / GIB, 4)


def duration(seconds: float) -> str:
    """Seconds as text: `3.10 s`, `45.2 ms`, `12 µs`."""
    if abs(seconds) >= 1:
        return f"{seconds:.2f} s"
    if abs(seconds) >= 1e-3:
        return f"{seconds * 1e3:.1f} ms"
    return f"{seconds * 1e6:.0f} µs"


def parse_duration(text: str) -> float:
    """Seconds of a duration given as text: `90s`, `10m`, `1h30m`, `2d`; a number alone is seconds.

    Raises ValueError where the text is no duration.
    """
    units = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
    number = r"\d+(?:\.\d+)?"
    if re.fullmatch(number, text):
        return float(text)
    match = re.fullmatch("".join(f"(?:({number}){unit})?" for unit in units), text)
    if not match or not any(match.groups()):
        raise ValueError(f"`{text}` is no duration")
    return sum(float(each) * unit for each, unit in zip(match.groups(), units.values(), strict=True) if each)


def signed(seconds: float, least: float = 1e-9) -> str:
    """A difference of two times as text: `+3.10 s`, `−12 µs`; `0` where it is smaller than `least` seconds."""
    if abs(seconds) < least:
        return "0"
    return f"{'+' if seconds > 0 else '−'}{duration(abs(seconds))}"


def four_digits(value: float) -> float:
    """A number of four significant digits, as files have it: more than was measured."""
    return float(f"{float(value):.4g}")


def byte_size(count_bytes: float) -> str:
    """A number of bytes as text: `1.5 GiB`, `20.0 MiB`."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if abs(count_bytes) >= unit:
            return f"{count_bytes / unit:.1f} {name}"
    return f"{count_bytes:.0f} B"


SCALES = {"": 1.0, "k": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


def scaled(number: float) -> str:
    """A number in its largest unit: `15.6T`, `300B`."""
    unit = max((each for each, size in SCALES.items() if number >= size), key=SCALES.__getitem__, default="")
    return f"{number / SCALES[unit]:.4g}{unit}"


def parse_scaled(text: str) -> float:
    """A positive number of a text: `1T`, `2e6`, `2,000,000` or `$2M`. Raises ValueError: `what is wrong | the fix`."""
    plain = text.strip().removeprefix("$").replace(",", "").replace("_", "")
    match = re.fullmatch(r"(\d{1,18}(?:\.\d{0,18})?(?:[eE][+]?\d{1,2})?) ?([kKmMbBgGtT]?)", plain, re.ASCII)
    if not match or not float(match[1]):
        raise ValueError(f"`{text[:40]}` is no positive number | such as 2e6, 2M or 1T")
    return float(match[1]) * {unit.lower(): size for unit, size in SCALES.items()}[match[2].lower().replace("g", "b")]


def percent(share: float) -> str:
    """A share from 0 to 1 as text: `3.5 %`."""
    return f"{share * 100:.1f} %"


def parse_share(text: str) -> float:
    """A share of a text: `3%`, or `0.03`.

    Raises ValueError for any other text, and for more than the whole: `what is wrong | the fix`.
    """
    percentage = PERCENTAGE.fullmatch(text)
    if not percentage and not re.fullmatch(r"(\d{1,9}(\.\d*)?|\.\d+)", text, re.ASCII):
        raise ValueError(f"`{text}` is no share | {'0' if text == 'none' else 'such as 3%, or 0.03'}")
    share = float(percentage[1]) / 100 if percentage else float(text)
    if share > 1:
        fix = "100% at most" if percentage else f"{text}%, where percent are meant"
        raise ValueError(f"`{text}` is more than the whole | {fix}")
    return share


def listed(words: Sequence[str], last: str) -> str:
    """Words as one: `a, b or c`; `last`: the word in front of the last one."""
    return f" {last} ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def plural(count: int, word: str) -> str:
    """A count with its noun: `1 step`, `2 steps`, `2 batches`."""
    return f"{count:,} {word}{'' if count == 1 else 'es' if word.endswith(('ch', 'ss')) else 's'}"


def multiset_text(numbers: Iterable[int]) -> str:
    """Numbers with how often each stands among them, the largest first: `64, 8×3`."""
    counts = sorted(Counter(numbers).items(), reverse=True)
    return ", ".join(f"{number}×{count}" if count > 1 else str(number) for number, count in counts)


def first_few(names: Sequence[int | str]) -> str:
    """Return the first few of many numbers or names, and the last: `0, 1, 2, 3, 4, 5, 6, 7, … 131`."""
    shown = ", ".join(map(str, names[:8]))
    return f"{shown}, … {names[-1]}" if len(names) > 8 else shown
