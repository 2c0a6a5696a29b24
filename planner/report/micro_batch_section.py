"""Draws every micro-batch as a band of ranks by time, with a block for each group."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from planner.errors import InputError
from planner.plan.join_plans import round_digits
from planner.plan.plan_file import Assignment, Plan, assignments
from planner.report.tags import Content, Markup, details, join, table, tag
from planner.scoring import Score
from planner.units import duration, multiset_text, percent, plural
from planner.why import group_loads, single_step

TALL, LOW = 340, 16  # heights in px: of the longest step, of the shortest micro-batch
LINES = 400  # of a table; further ones are counted
WIDE = (0.02, 0.06, 0.2)  # shares of the width from which a label fits: on any screen, on a desktop, with its tokens
THIN = 0.01  # share of the width below which an edge around a block would hide it


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """Work and slack of one group in one micro-batch, as a block shows them."""

    group: str
    ranks: int
    first: int
    items: int
    tokens: int
    longest: int
    seconds: float
    slack: float  # seconds by which it could be longer without delaying the step
    waits_for: str


@dataclass(frozen=True, slots=True)
class Band:
    """Micro-batches that follow each other and are alike: as many sequences and tokens in the same groups."""

    number: int  # of the first
    seconds: float  # of each
    composition: str
    blocks: tuple[GroupSummary, ...]
    alike: int = 1

    @property
    def numbers(self) -> str:
        """`3`, or `0-31`."""
        return f"{self.number}-{self.number + self.alike - 1}" if self.alike > 1 else str(self.number)

    @property
    def label(self) -> str:
        """`micro-batch 3`, or `micro-batches 0-31`."""
        return f"micro-batch{'es' if self.alike > 1 else ''} {self.numbers}"


def merged_bands(bands: Sequence[Band]) -> list[Band]:
    """The bands of a step with each run of equal micro-batches as one band."""
    runs = (list(run) for _, run in groupby(bands, key=lambda band: (band.composition, band.blocks)))
    return [replace(run[0], alike=len(run)) for run in runs]


def micro_batch_bands(plan: Plan, number: int, score: Score) -> list[Band]:
    """The bands of a step in which all ranks synchronise in every micro-batch."""
    busy = {key: round_digits(seconds) for key, seconds in score.timeline.group_seconds().items()}
    waits = group_slacks(plan, number, score)
    bands = []
    for at, micro_batch in enumerate(plan.steps[number].micro_batches):
        placed = [*assignments(plan, micro_batch)]
        blocks = [block(plan, a, busy.get((at, a.group), 0.0), waits.get((at, a.group), (0.0, ""))) for a in placed]
        longest = max((drawn.seconds for drawn in blocks), default=0.0)
        bands.append(Band(at, longest, multiset_text(len(plan.groups[a.group].ranks) for a in placed), tuple(blocks)))
    return merged_bands(bands)


def group_slacks(plan: Plan, number: int, score: Score) -> dict[tuple[int, str], tuple[float, str]]:
    """Slack of each group, and whom it waits for; empty for plans other than of one module on all ranks."""
    try:
        return {
            (load.micro_batch, load.group): (round_digits(load.slack), load.waits_for)
            for load in group_loads(single_step(plan, number), score)
        }
    except InputError:
        return {}


def block(plan: Plan, a: Assignment, seconds: float, wait: tuple[float, str]) -> GroupSummary:
    ranks = plan.groups[a.group].ranks
    sizes = [plan.uses.tokens(a.module, item) for item in a.items]
    return GroupSummary(a.group, len(ranks), ranks[0], len(sizes), sum(sizes), max(sizes, default=0), seconds, *wait)


def picture(size: int, bands: Sequence[Band], longest_step: float) -> Markup:
    """Draw ranks from left to right, time from top to bottom; heights are to scale over all steps of the page."""
    return join(band_markup(size, shown, longest_step) for shown in bands)


def band_markup(size: int, shown: Band, longest_step: float) -> Markup:
    tall = max(LOW, round(TALL * shown.seconds / (longest_step or 1.0)))
    drawn = [drawn_block(each, size, shown, tall) for each in shown.blocks]
    label = f"{shown.label}: groups of {shown.composition} ranks"
    svg = tag("svg", drawn, width="100%", height=tall, role="img", aria_label=label, class_="band")
    each = f"{duration(shown.seconds)} each, alike" if shown.alike > 1 else duration(shown.seconds)
    title = f"{shown.label[0].upper()}{shown.label[1:]} "
    items, tokens = (sum(getattr(block, name) for block in shown.blocks) for name in ("items", "tokens"))
    held = f"{plural(items, 'sequence')}, {tokens:,} tokens"
    head = tag("h3", title, tag("span", f"{each} · ⟨{shown.composition}⟩ · {held}"))
    return tag("div", head, svg, class_="micro-batch")


def drawn_block(shown: GroupSummary, size: int, of: Band, tall: int) -> Markup:
    x, width = 100 * shown.first / size, 100 * shown.ranks / size
    high = max(2.0, tall * shown.seconds / (of.seconds or 1.0))
    inner = tag("rect", x=f"{x:.3f}%", y=0, width=f"{width:.3f}%", height=round(high, 1))
    middle, texts = f"{x + width / 2:.3f}%", []
    if shown.ranks / size >= WIDE[0] and high >= 14:
        small = None if shown.ranks / size >= WIDE[1] else "desk"
        y = min(high / 2 + 4, tall - 3)
        texts.append(tag("text", str(shown.ranks), x=middle, y=round(y, 1), class_=small))
        if shown.ranks / size >= WIDE[2] and high >= 48:
            texts.append(tag("text", f"{shown.tokens:,} tokens", x=middle, y=round(y + 17, 1), class_="soft"))
    edge = " thin" if shown.ranks / size < THIN else ""
    return tag("g", tag("title", block_text(shown, of)), inner, texts, class_=f"block d{shade(shown.ranks)}{edge}")


def shade(ranks: int) -> int:
    """CSS class by number of ranks: twice the ranks are a shade darker."""
    return min(7, ranks.bit_length() - 1)


def block_text(shown: GroupSummary, of: Band) -> str:
    """What a block stands for: its group and ranks, its micro-batches, and what each of these has."""
    waits = f"; waits {duration(shown.slack)} for {shown.waits_for}" if shown.waits_for else ""
    each = ", each with" if of.alike > 1 else ":"
    return (
        f"{shown.group}, {plural(shown.ranks, 'rank')}, {of.label}{each} {plural(shown.items, 'sequence')}, "
        f"{shown.tokens:,} tokens (longest {shown.longest:,}), {duration(shown.seconds)} simulated{waits}"
    )


def legend(bands: Sequence[Band]) -> Markup:
    sizes = sorted({group.ranks for shown in bands for group in shown.blocks}, reverse=True)
    names = [tag("li", tag("i", class_=f"d{shade(size)}"), plural(size, "rank")) for size in sizes]
    return tag("ul", names, tag("li", tag("i", class_="idle"), "idle"), class_="legend")


def groups_table(bands: Sequence[Band]) -> Content:
    """The groups of all bands as a folded table."""
    rows = [line for shown in bands for line in lines(shown)]
    heads = ("micro-batch", "group", ">ranks", ">sequences", ">tokens", ">longest", ">seconds", ">of its micro-batch")
    more = f"and {len(rows) - LINES:,} further groups, which the plan file names" if len(rows) > LINES else None
    return details(
        "These groups as a table", table(heads, rows[:LINES], "Groups, simulated"), tag("p", more) if more else None
    )


def lines(shown: Band) -> Iterator[tuple[str, ...]]:
    for group in shown.blocks:
        share = percent(group.seconds / (shown.seconds or 1.0))
        counts = (group.ranks, group.items, group.tokens, group.longest)
        yield shown.numbers, group.group, *(f"{count:,}" for count in counts), f"{group.seconds:.4f}", share
