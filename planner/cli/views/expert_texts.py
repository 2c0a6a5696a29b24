"""What `planner predict` and `planner show` say of experts: load, dispatch, and a warning where the exchange binds."""

from collections.abc import Iterator

from rich.text import Text

from planner.plan.plan_file import Plan
from planner.scoring import ExpertAnswer, expert_answers
from planner.units import plural


def expert_texts(plan: Plan) -> Iterator[Text]:
    """A line for each placement of experts, and below it a warning where their exchange takes longer than they do."""
    for experts in expert_answers(plan):
        layers = f"layer {experts.layers}" if experts.layers.isdigit() else f"layers {experts.layers}"
        yield Text(f"{experts.module}, {layers}: {load_text(experts)}; {ratio_text(experts)}")
        if experts.is_bound_by_exchange:
            yield Text(warning_text(experts), style="yellow")


def load_text(experts: ExpertAnswer) -> str:
    """`the fullest of 8 ranks gets 1.00 ± 0.10 of an even share (assumed)`."""
    if experts.ep == 1:
        return "all of a layer's on each rank"
    load = experts.load
    return (
        f"the fullest of {experts.ep} ranks gets {load.mean:.2f} ± {load.spread:.2f} of an even share ({load.source})"
    )


def ratio_text(experts: ExpertAnswer) -> str:
    """`compute over exchange 1.84, of widths alone 2.11`."""
    if experts.ratio is None:
        return "no tokens travel"
    by_widths = "" if experts.published_ratio is None else f", of widths alone {experts.published_ratio:.2f}"
    return f"compute over exchange {experts.ratio:.2f}{by_widths}"


def warning_text(experts: ExpertAnswer) -> str:
    """A sentence: that the exchange of experts binds, and which dispatch or fewer ranks would shorten it."""
    fix = f"fewer than {plural(experts.ep * experts.etp, 'rank')} of experts"
    if experts.cheapest_dispatch != experts.dispatch:
        fix = f"dispatch {experts.cheapest_dispatch} takes less"
    return f"tokens travel for longer than experts compute, and no overlap can hide that: {fix}"
