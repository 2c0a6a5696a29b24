"""The section that explains a plan: its bound, the parts of its time, the alternatives, and what would help."""

from collections.abc import Sequence
from math import exp

from planner.costs import STEP_SECONDS
from planner.plan.descriptions import alternative_text, left_out_texts, module_layout_text
from planner.plan.pack_fill import pack_fill, pack_text
from planner.plan.plan_file import Plan
from planner.report.bound_text import bound_text
from planner.report.tags import Content, Markup, join, keep_units, section, table, tag
from planner.scoring import Score, objective_of, ranked_alternatives, step_bounds, tie_spread, unranked_alternatives
from planner.units import duration, percent
from planner.why import JointWhyPlan, Sensitivity, StepFacts, WhyPlan, joint_facts, single_step, step_facts

Why = WhyPlan | JointWhyPlan


def why_section(plan: Plan, scores: Sequence[Score], why: Why | None) -> Markup:
    """The section."""
    worst = max(scores, key=lambda score: score.step_seconds / (score.bound.seconds or score.step_seconds or 1.0))
    by, bound = step_bounds(plan, [worst])
    words = bound_text(worst.step_seconds, bound, by)
    whose = f"Of {len(scores)} steps, the one furthest from its bound: " if len(scores) > 1 else ""
    sentence = f"{whose}{words}" if whose else words[0].upper() + words[1:]
    several = len(plan.layouts) > 1
    of = joint_parts_table(plan, scores) if several else step_parts_table(plan, scores)
    asked = several or bool(plan.made.decided)
    more = sensitivity_table(why) if why else hint(several) if asked else None
    return section(
        "why", "Why this plan", tag("p", keep_units(sentence)), layout_table(plan), of, alternatives_table(plan), more
    )


def layout_table(plan: Plan) -> Markup:
    rows = [(name, str(layout.ranks), module_layout_text(plan, name)) for name, layout in plan.layouts.items()]
    return join(tag("h3", "Layout"), table(("module", "ranks", "layout"), rows))


def step_parts_table(plan: Plan, scores: Sequence[Score]) -> Content:
    """Parts of the step in seconds of the mean rank."""
    each = [step_facts(single_step(plan, number), score) for number, score in enumerate(scores)]
    value = sum(f.value for f in each) or 1.0
    rows = [
        (join(name, tag("small", why)), f"{sum(seconds) / len(each):.4f}", percent(sum(seconds) / value))
        for name, seconds, why in components(each)
    ]
    heads = ("of the mean rank", ">seconds", ">of the step")
    mean = "" if len(each) == 1 else f", mean of {len(each)} steps"
    parts = table(heads, rows, f"Simulated{mean}")
    return join(tag("h3", "Parts of the step"), parts, capacity_sentence(each))


def joint_parts_table(plan: Plan, scores: Sequence[Score]) -> Content:
    """Seconds of the mean rank by module and by what they go into; how even loads are; packs and what was dropped."""
    each = [joint_facts(single_step(plan, number), score) for number, score in enumerate(scores)]
    value = sum(f.value for f in each) or 1.0
    names = dict.fromkeys(name for f in each for name in f.parts)
    sums = {name: sum(f.parts.get(name, 0.0) for f in each) for name in names}
    rows = [(name, f"{seconds / len(each):.4f}", percent(seconds / value)) for name, seconds in sums.items()]
    mean = "" if len(each) == 1 else f", mean of {len(each)} steps"
    parts = table(("of the mean rank", ">seconds", ">of the step"), rows, f"Simulated{mean}")
    loads = [
        (name, str(load.ranks), str(load.micro_batches), f"{load.mean:.4f}", f"{load.most:.4f}", f"{load.uneven:.2f}")
        for name, load in each[0].loads.items()
    ]
    heads = ("module", "ranks", ">micro-batches", ">mean of its ranks, s", ">most, s", ">most over mean")
    even = table(heads, loads, f"Passes by module{', step 0' if len(each) > 1 else ''}, simulated")
    return join(tag("h3", "Parts of the step"), parts, even, *batch_sentences(plan))


def batch_sentences(plan: Plan) -> list[Markup]:
    """How full packs are, and what of the batch is not in the plan."""
    packs = pack_fill(plan)
    told = [f"Packs: {pack_text(packs)}."] if packs else []
    return [tag("p", keep_units(text)) for text in (*told, *(f"{each}." for each in left_out_texts(plan)))]


def capacity_sentence(each: Sequence[StepFacts]) -> Content:
    """How full groups are, where ranks have a capacity of tokens."""
    room = sum(f.room for f in each)
    if not room:
        return None
    return tag("p", f"Groups use {percent(sum(f.held for f in each) / room)} of their token capacity.")


def components(each: Sequence[StepFacts]) -> list[tuple[str, list[float], str]]:
    return [
        ("compute", [f.compute - f.fixed for f in each], "grows with the tokens"),
        (
            "fixed cost of micro-batches",
            [f.fixed for f in each],
            "independent of their tokens; fewer micro-batches save it",
        ),
        ("exchange across nodes", [f.exchange_across for f in each], "groups that are wider than a node"),
        ("exchange within nodes", [f.exchange_within for f in each], "groups inside one node"),
        ("gathers and reductions", [f.other_comm for f in each], "of weights and gradients, exposed"),
        ("idle in a group", [f.idle - f.unheld for f in each], "waiting for slower groups"),
        ("idle without a group", [f.unheld for f in each], "the rank is in no group"),
    ]


def alternatives_table(plan: Plan) -> Content:
    """A table of the alternatives that were tried: the best first, what is impossible or too slow last and merged."""
    if not plan.alternatives:
        return None
    goal = objective_of(plan)
    possible = [
        (
            alternative_text(each.tried, plan.made.strategy),
            goal.formatted(each.tried.value or 0.0),
            f"{100 * each.change:+.1f} %{' tie' if each.tie else ''}",
            each.tried.because,
        )
        for each in ranked_alternatives(plan)
    ]
    failed = [(text, verdict, "", because) for text, verdict, because in unranked_alternatives(plan)]
    heads = (
        "alternative",
        ">step" if plan.outcome.objective == STEP_SECONDS else f">{goal.unit}",
        ">against this plan",
        "because",
    )
    close = percent(exp(tie_spread(plan)) - 1.0)
    note = f"Alternatives, simulated when the plan was solved; tie: closer than predictions tell apart ({close})"
    return join(tag("h3", "Alternatives"), table(heads, [*possible, *failed], note))


def hint(several: bool) -> Markup:
    asks = tag("code", "planner report PLAN --why")
    what = "bandwidth, other ranks for encoders or other data" if several else "memory, ranks or bandwidth"
    return tag("p", f"What more {what} would save: ", asks, ".", class_="note")


def sensitivity_table(why: Why) -> Markup:
    """A table of the step with more memory, ranks or bandwidth, each solved again; of several modules with faster ones,
    with encoders elsewhere and with other data.
    """
    if isinstance(why, WhyPlan):
        shown = gains_table(why.sensitivities, f"Step {why.step} solved again, simulated")
        return join(tag("h3", "What would help"), shown)
    elsewhere = [each.gain for each in why.placements]
    tables = [gains_table(why.sensitivities, f"Step {why.step} with all decisions kept, simulated")]
    tables += [gains_table(elsewhere, f"Step {why.step} with encoders elsewhere, simulated")] if elsewhere else []
    tables += [gains_table(why.data, f"Step {why.step} with other data, priced only")] if why.data else []
    return join(tag("h3", "What would help"), *tables)


def gains_table(gains: Sequence[Sensitivity], caption: str) -> Markup:
    """The step with each of several changes, and what it saves."""
    rows = [
        (s.what, s.because or duration(s.seconds or 0.0), "" if s.saved is None else percent(s.share or 0.0))
        for s in gains
    ]
    return table(("with", ">step", ">saved"), rows, caption)
