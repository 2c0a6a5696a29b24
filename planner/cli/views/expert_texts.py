"""What `planner predict` and `planner show` say of experts: load, dispatch, and a warning where the exchange binds."""

from collections.abc import Iterator

from rich.text import Text

from planner.plan.plan_file import Plan
from planner.scoring import ExpertAnswer, expert_answers
from planner.units import plural


def expert_texts(plan: Plan) -> Iterator[Text]:
    """A line for each placement of experts, and below it a warning where their exchange takes longer than they do."""
    for found in expert_answers(plan):
        layers = f"layer {found.layers}" if found.layers.isdigit() else f"layers {found.layers}"
        yield Text(f"{found.module}, {layers}: {load_text(found)}; {ratio_text(found)}")
        if found.is_bound_by_exchange:
            yield Text(warning_text(found), style="yellow")


def load_text(found: ExpertAnswer) -> str:
    """`the fullest of 8 ranks gets 1.00 ± 0.10 of an even share (assumed)`."""
    if found.ep == 1:
        return "all of a layer's on each rank"
    load = found.load
    return f"the fullest of {found.ep} ranks gets {load.mean:.2f} ± {load.spread:.2f} of an even share ({load.source})"


def ratio_text(found: ExpertAnswer) -> str:
    """`compute over exchange 1.84, of widths alone 2.11`."""
    if found.ratio is None:
        return "no tokens travel"
    by_widths = "" if found.published_ratio is None else f", of widths alone {found.published_ratio:.2f}"
    return f"compute over exchange {found.ratio:.2f}{by_widths}"


def warning_text(found: ExpertAnswer) -> str:
    """A sentence: that the exchange of experts binds, and which dispatch or fewer ranks would shorten it."""
    fix = f"fewer than {plural(found.ep * found.etp, 'rank')} of experts"
    if found.cheapest_dispatch != found.dispatch:
        fix = f"dispatch {found.cheapest_dispatch} takes less"
    return f"tokens travel for longer than experts compute, and no overlap can hide that: {fix}"
