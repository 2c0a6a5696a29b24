"""What `solve --static` prints: the best single degree beside plans of each batch; with `--mixes` candidates beside
mixes, regret by mix as bars, and changes of layouts. All seconds are simulated.
"""

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from rich.console import RenderableType
from rich.text import Text

from planner.cli.views.plain_table import table
from planner.plan.descriptions import layout_text
from planner.plan.plan_file import Layout
from planner.specs.base import Ranks, with_fields
from planner.specs.parallelism import decided_fields
from planner.units import duration, percent, plural
from planner.why import Changes, MixCandidate, MixComparison, MixPoint, StaticComparison, Switch

MOST = 8  # candidates in the table: the JSON answer has all
BAR = 32  # columns of the longest bar
FEW = 2  # mixes whose regrets stand beside their seconds: those of more stand below
OUT = "–"
NONE = 5e-4  # a smaller regret is shown as none


def static_lines(answer: StaticComparison) -> Iterator[RenderableType]:
    """The best single degree for all batches, compared with planning each batch."""
    count, total = len(answer.static_seconds), sum(answer.static_seconds)
    yield Text.assemble(
        (answer.name, "bold"), f"  {count} batches, simulated; the best single degree is ⟨{answer.degree}⟩"
    )
    rows = table("", ">seconds", ">a batch", "")
    for tried in answer.degrees:
        seconds = (duration(tried.seconds), duration(tried.seconds / count)) if tried.seconds is not None else ("", "")
        rows.add_row(f"static ⟨{tried.degree}⟩", *seconds, tried.because)
    planned = sum(answer.per_batch_seconds)
    rows.add_row("per-batch plans", duration(planned), duration(planned / count), "")
    rows.add_row("bound of per-batch plans", duration(sum(answer.per_batch_bounds)), "", "")
    yield rows
    yield Text(
        f"\nper-batch planning saves {percent(answer.gain_total)} of {duration(total)}; of a batch "
        f"{percent(answer.gain_median)} (median), {percent(answer.gain_p10)} to {percent(answer.gain_p90)} (p10 to p90)"
    )
    if answer.deferral:
        yield Text(
            f"static with deferral: {len(answer.deferral.items)} items ({answer.deferral.tokens:,} tokens) wait one "
            f"batch, which saves {percent(answer.deferral.saved)}; a greedy model, without the effect on convergence",
        )


def static_path_line(path: Path) -> RenderableType:
    return Text(f"static plan written to {path}", style="dim")


# ------------------------------------------------------------------------------------------------------------ --mixes


def mix_lines(answer: MixComparison) -> Iterator[RenderableType]:
    """The chosen layouts, what they were chosen from, where they are how far from the quickest, and when others repay
    a restart.
    """
    chosen = answer.candidates[0]
    mixes = ", ".join(mix.mix for mix in answer.mixes)
    yield Text.assemble((answer.name, "bold"), f"  one set of layouts for the mixes {mixes}, simulated")
    yield Text(
        f"chosen: 1, up to {percent(chosen.worst or 0.0)} slower than the quickest of each mix, "
        f"{percent(chosen.expected or 0.0)} expected\n"
    )
    shown = sorted({*range(min(MOST, len(answer.candidates))), *answer.own_best})
    yield candidate_table(answer, shown)
    if len(shown) < len(answer.candidates):
        yield Text(f"… and {len(answer.candidates) - len(shown)} more of larger regret (--json has all)", style="dim")
    for number in dict.fromkeys(answer.own_best):
        if answer.candidates[number].because:
            yield Text(f"{number + 1} does not fit {answer.candidates[number].because}", style="dim")
    yield Text()
    yield layout_table(answer)
    if len(answer.points) > 1:
        yield Text("\nregret of the chosen layouts by mix")
        longest = max(point.regret or 0.0 for point in answer.points)
        yield from (bar(point, longest) for point in answer.points)
    if answer.switches:
        restart = duration(answer.restart_seconds)
        yield Text(f"\nother layouts from a mix on, with a restart of {restart} (assumed: --restart-s)")
        yield switch_table(answer.switches)
    if answer.changes and answer.switches:
        yield changes_line(answer.changes)


def candidate_table(answer: MixComparison, shown: list[int]) -> RenderableType:
    """Seconds and regret of candidates at each mix; numbers are those of the candidates, the chosen ones first."""
    beside = len(answer.mixes) <= FEW
    columns = [column for mix in answer.mixes for column in (f">{mix.mix}", *([">"] if beside else []))]
    rows = table(">", *columns, ">worst", ">expected", "kind")
    for column in rows.columns[:-1]:
        column.no_wrap = True
    for number in shown:
        candidate = answer.candidates[number]
        texts = [seconds_texts(answer, number, at) for at in range(len(answer.mixes))]
        cells = [text for pair in texts for text in pair] if beside else ["\n".join(pair) for pair in texts]
        summed = [OUT if value is None else percent(value) for value in (candidate.worst, candidate.expected)]
        rows.add_row(str(number + 1), *cells, *summed, candidate.kind, style="" if number else "green")
    return rows


def seconds_texts(answer: MixComparison, number: int, at: int) -> tuple[str, str]:
    """What a candidate takes at a mix, and its regret there."""
    candidate = answer.candidates[number]
    seconds, regret = candidate.seconds[at], candidate.regrets[at]
    if seconds is None or regret is None:
        return "no room", ""
    return duration(seconds), "best" if number == answer.own_best[at] else f"+{percent(regret)}"


def layout_table(answer: MixComparison) -> RenderableType:
    """The layouts of the chosen candidate and of the quickest of each mix."""
    rows = table("", "", "")
    for number in dict.fromkeys((0, *answer.own_best)):
        names = [mix.mix for mix, best in zip(answer.mixes, answer.own_best, strict=True) if best == number]
        what = [*(["chosen"] if not number else []), *([f"best at {' and '.join(names)}"] if names else [])]
        for at, text in enumerate(layout_texts(answer.candidates[number], answer.ranks)):
            rows.add_row("" if at else ", ".join(what), "" if at else str(number + 1), text)
    return rows


def layout_texts(candidate: MixCandidate, ranks: int) -> Iterator[str]:
    """The layout of each module, as a job's fix.layouts takes it."""
    for name, fields in candidate.layouts.items():
        whole = with_fields(Layout(ranks=Ranks(range(ranks))), **decided_fields(fields))
        yield f"{name}: {layout_text(whole, ranks)}"


def bar(point: MixPoint, longest: float) -> Text:
    """A mix with the regret of the chosen layouts there as a bar, and which layouts are the quickest."""
    if point.regret is None:
        return Text(f"{point.mix:>6}  does not fit; the quickest is {point.quickest + 1}", style="red")
    cells = round(BAR * point.regret / longest) if longest > NONE else 0
    rival = f"{percent(point.regret)}, the quickest is {point.quickest + 1}" if point.regret > NONE else "none"
    return Text.assemble(f"{point.mix:>6}  ", ("█" * cells, "yellow"), f"{' ' if cells else ''}{rival}")


def switch_table(switches: tuple[Switch, ...]) -> RenderableType:
    """What other layouts save from each mix to the next, and after how many steps that repays a restart."""
    rows = table("from", "to", ">saves a step", ">repays after", ">steps", "repays", "from mix on")
    for switch in switches:
        after = "never" if switch.repaid_after is None else f"{switch.repaid_after:,} steps"
        steps = "" if switch.steps is None else f"{switch.steps:,.0f}"
        repays = "" if switch.repays is None else "yes" if switch.repays else "no"
        saved = duration(switch.saved_seconds) if switch.saved_seconds else "nothing"
        rows.add_row(switch.before, switch.after, saved, after, steps, repays, switch.from_mix or "")
    return rows


def changes_line(changes: Changes) -> Text:
    """The whole schedule with one set of layouts, and with the best changes."""
    kept = f"all steps take {changes.kept_seconds:,.0f} s with 1 kept"
    if changes.layouts == (0,) * len(changes.layouts):
        return Text(f"{kept}; no change of layouts repays its restart")
    order = ", then ".join(str(number + 1) for number, _ in groupby(changes.layouts))
    restarts = plural(changes.restarts, "restart")
    return Text(f"{kept}, and {changes.least_seconds:,.0f} s at best: with {order}, {restarts} among them")
