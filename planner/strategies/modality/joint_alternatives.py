"""The best joint layouts of each other kind, as alternatives of a plan: what they take, or why there are none."""

from planner.plan.descriptions import placed_layout
from planner.plan.join_plans import round_digits
from planner.plan.plan_file import Alternative
from planner.strategies.modality.baselines import BASELINE_TEXTS
from planner.strategies.modality.joint_search import JointSearch
from planner.strategies.static.tried_layouts import TriedLayouts, why_not_chosen


def joint_alternatives(done: JointSearch, chosen: TriedLayouts) -> tuple[Alternative, ...]:
    """The quickest of each kind but the chosen one's, of that where it is predicted to be quicker; where none of a kind
    fits, the one that was tried first; and every baseline.
    """
    of_kind: dict[str, TriedLayouts] = {}
    for each in done.tried.values():
        if each.kind not in of_kind or each.seconds < of_kind[each.kind].seconds:
            of_kind[each.kind] = each
    others = [each for kind, each in of_kind.items() if kind != chosen.kind or each.seconds < chosen.seconds]
    others += [each for each in done.starts if (each.kind, each.layouts) != (chosen.kind, chosen.layouts)]
    return tuple(joint_alternative(each, chosen) for each in sorted(others, key=lambda each: each.seconds))


def joint_alternative(tried: TriedLayouts, chosen: TriedLayouts) -> Alternative:
    """Joint layouts of another kind beside the chosen ones; a baseline's are called by its name."""
    what = BASELINE_TEXTS.get(tried.kind, tried.kind)
    size = chosen.plan.size if chosen.plan else 0
    return Alternative(
        strategy=tried.kind if tried.kind in BASELINE_TEXTS else "modality_layout",
        value=tried.seconds if tried.plan else None,
        because=why_not_chosen(tried, chosen, what, what) if tried.plan else f"{what}: {tried.because}",
        too_slow=tried.left_out,
        about=round_digits(tried.least or tried.estimate) if tried.left_out else None,
        layouts={name: placed_layout(layout, size) for name, layout in tried.layouts.items()},
    )
