"""Mixes of a job's data over a run: `1:9=2000,5:5=500` are 2,000 steps at one share of multimodal samples, then 500 at
another.
"""

from collections.abc import Sequence

from planner.errors import InputError
from planner.specs.base import Share, Spec
from planner.specs.workload.sample_batches import MIX

WHERE = "--mixes"
SHARE_DIGITS = 12  # mixes whose shares agree in these are the same
FEWEST_BETWEEN = 8  # steps of share over a range of mixes, at least
SHARE_PERCENTS = (10, 5, 2, 1)  # steps of share, in percent, that are tried


class MixPart(Spec, omit_defaults=False):
    """A mix of a schedule, and how long it lasts."""

    mix: str  # multimodal samples to text-only ones, as 9:1
    share: Share  # of samples that are multimodal
    steps: float | None = None  # or a weight beside other mixes; None: the schedule says none


def parse_mixes(text: str) -> tuple[MixPart, ...]:
    """The parts of a schedule, in order. Raises InputError where one is no mix, or only some have a number."""
    parts = tuple(parse_part(each.strip()) for each in text.split(","))
    if len({part.steps is None for part in parts}) > 1:
        unsure = next(part.mix for part in parts if part.steps is None)
        fix = f"a number for each mix, as {unsure}=500, or for none"
        raise InputError(f"{unsure} has no number of steps, and others have one", where=WHERE, fix=fix)
    return parts


def parse_part(text: str) -> MixPart:
    """One part, as `1:9` or `1:9=2000`. Raises InputError."""
    mix, equals, number = text.partition("=")
    share = mix_share(mix.strip())
    if not equals:
        return MixPart(mix=mix.strip(), share=share)
    try:
        steps = float(number)
    except ValueError:
        steps = 0.0
    if not 0.0 < steps < 1e12:
        raise InputError(f"`{number}` is no number of steps", where=WHERE, fix=f"such as {mix.strip()}=2000")
    return MixPart(mix=mix.strip(), share=share, steps=steps)


def mix_share(mix: str) -> float:
    """The share of samples that are multimodal, of a mix such as 9:1. Raises InputError."""
    match = MIX.fullmatch(mix)
    if not match:
        fix = "multimodal to text-only samples, as 1:9,5:5,9:1, each with its steps, as 1:9=2000, or none"
        raise InputError(f"`{mix}` is no mix", where=WHERE, fix=fix)
    multimodal, text_only = float(match[1]), float(match[2])
    if not multimodal + text_only > 0:
        raise InputError(
            f"both shares of the mix {mix} are 0", where=WHERE, fix="9:1 are nine samples with images to one"
        )
    return round(multimodal / (multimodal + text_only), SHARE_DIGITS)


def distinct_mixes(schedule: Sequence[MixPart]) -> tuple[MixPart, ...]:
    """Each mix of a schedule once, under the name that it has first, with all its steps."""
    mixes: list[MixPart] = []
    for part in schedule:
        at = place_of(mixes, part)
        if at is None:
            mixes.append(part)
        elif part.steps is not None:
            whole = (mixes[at].steps or 0.0) + part.steps
            mixes[at] = MixPart(mix=mixes[at].mix, share=mixes[at].share, steps=whole)
    return tuple(mixes)


def place_of(mixes: Sequence[MixPart], part: MixPart) -> int | None:
    """Where among some mixes the one with a part's share is."""
    return next((at for at, each in enumerate(mixes) if each.share == part.share), None)


def mixes_between(schedule: Sequence[MixPart]) -> tuple[MixPart, ...]:
    """The mixes of a schedule and others between its lowest and highest share, at tenths or finer steps, by share."""
    given = distinct_mixes(schedule)
    low, high = min(part.share for part in given), max(part.share for part in given)
    step = next(
        (each for each in SHARE_PERCENTS if (high - low) * 100 >= FEWEST_BETWEEN * each - 1e-9), SHARE_PERCENTS[-1]
    )
    between = [
        MixPart(mix=mix_of(percent), share=percent / 100)
        for percent in range(0, 101, step)
        if low < percent / 100 < high
    ]
    others = [each for each in between if place_of(given, each) is None]
    return tuple(sorted((*given, *others), key=lambda part: part.share))


def mix_of(percent: int) -> str:
    """A mix with so many multimodal samples in a hundred."""
    return f"{percent // 10}:{10 - percent // 10}" if percent % 10 == 0 else f"{percent}:{100 - percent}"
