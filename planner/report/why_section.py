"""The section that explains a plan: its bound, the parts of its time, the alternatives, and what would help."""

from collections.abc import Iterator, Sequence
from math import exp

from planner.costs import STEP_SECONDS
from planner.plan.descriptions import alternative_text, left_out_texts, module_layout_text
from planner.plan.pack_fill import pack_fill, pack_text
from planner.plan.plan_file import Plan
from planner.report.plan_head import bound_text
from planner.report.tags import Content, Markup, join, keep_units, section, table, tag
from planner.scoring import (
    Score,
    objective_of,
    ranked_alternatives,
    shares_text,
    step_bounds,
    tie_spread,
    unranked_alternatives,
)
from planner.units import duration, percent
from planner.why import Facts, GroupFacts, ModuleFacts, Sensitivity, WhyPlan, single_step, step_facts


def why_section(plan: Plan, scores: Sequence[Score], why: WhyPlan | None) -> Markup:
    """The sentence on the bound, layouts, parts of the step, alternatives, and what would help or how to ask."""
    worst = max(scores, key=lambda score: score.step_seconds / (score.bound.seconds or score.step_seconds or 1.0))
    by, bound = step_bounds(plan, [worst])
    words = bound_text(worst.step_seconds, bound, by, plan.outcome.bound_over)
    whose = f"Of {len(scores)} steps, the one furthest from its bound: " if len(scores) > 1 else ""
    sentence = f"{whose}{words}" if whose else words[0].upper() + words[1:]
    several = len(plan.layouts) > 1
    asked = several or bool(plan.made.decided)
    more = sensitivity_table(why) if why else hint(several) if asked else None
    return section(
        "why",
        "Why this plan",
        tag("p", keep_units(sentence)),
        layout_table(plan),
        parts_section(plan, scores),
        alternatives_table(plan),
        more,
    )


def layout_table(plan: Plan) -> Markup:
    rows = [(name, str(layout.ranks), module_layout_text(plan, name)) for name, layout in plan.layouts.items()]
    return join(tag("h3", "Layout"), table(("module", "ranks", "layout"), rows))


def parts_section(plan: Plan, scores: Sequence[Score]) -> Markup:
    """Parts of the step in seconds of the mean rank, and how full groups are; of several modules, how even their loads
    are and what was dropped.
    """
    of_steps = [step_facts(single_step(plan, number), score) for number, score in enumerate(scores)]
    value = sum(facts.value for facts in of_steps) or 1.0
    rows = [
        (name, f"{seconds / len(of_steps):.4f}", percent(seconds / value)) for name, seconds in summed_parts(of_steps)
    ]
    mean = "" if len(of_steps) == 1 else f", mean of {len(of_steps)} steps"
    parts = table(("of the mean rank", ">seconds", ">of the step"), rows, f"Simulated{mean}")
    first = of_steps[0]
    if isinstance(first, ModuleFacts):
        rest: Content = [loads_table(first, ", step 0" if len(of_steps) > 1 else ""), *batch_sentences(plan, first)]
    else:
        rest = capacity_sentence([facts for facts in of_steps if isinstance(facts, GroupFacts)])
    return join(tag("h3", "Parts of the step"), parts, rest)


def summed_parts(of_steps: Sequence[Facts]) -> Iterator[tuple[Content, float]]:
    """Name and seconds of each part, over all steps; of one module, with what it is."""
    by_module = [facts.parts for facts in of_steps if isinstance(facts, ModuleFacts)]
    for name in dict.fromkeys(name for parts in by_module for name in parts):
        yield name, sum(parts.get(name, 0.0) for parts in by_module)
    by_group = [components(facts) for facts in of_steps if isinstance(facts, GroupFacts)]
    for of_part in zip(*by_group, strict=True):
        name, _, what = of_part[0]
        yield join(name, tag("small", what)), sum(seconds for _, seconds, _ in of_part)


def loads_table(facts: ModuleFacts, which: str) -> Markup:
    """How even the passes of each module are over its ranks."""
    rows = [
        (name, str(load.ranks), str(load.micro_batches), f"{load.mean:.4f}", f"{load.most:.4f}", f"{load.uneven:.2f}")
        for name, load in facts.loads.items()
    ]
    heads = ("module", "ranks", ">micro-batches", ">mean of its ranks, s", ">most, s", ">most over mean")
    return table(heads, rows, f"Passes by module{which}, simulated")


def batch_sentences(plan: Plan, facts: ModuleFacts) -> list[Markup]:
    """How full packs are, how gaps are filled, and what of the batch is not in the plan."""
    packs = pack_fill(plan)
    told = [f"Packs: {pack_text(packs)}."] if packs else []
    if facts.gaps and facts.gaps.hidden:
        told.append(f"Gaps: {facts.gaps.text}.")
    if shares := shares_text(plan):
        timed = plan.uses.prices.shares is not None and bool(plan.uses.prices.shares.pairs)
        told.append(f"Shares of devices, {'measured' if timed else 'not measured'}: {shares}.")
    told += [f"Side by side for {duration(pair.together)}, {pair.text}." for pair in facts.shared]
    return [tag("p", keep_units(text)) for text in (*told, *(f"{left_out}." for left_out in left_out_texts(plan)))]


def capacity_sentence(of_steps: Sequence[GroupFacts]) -> Content:
    """How full groups are, where ranks have a capacity of tokens."""
    room = sum(facts.room for facts in of_steps)
    if not room:
        return None
    return tag("p", f"Groups use {percent(sum(facts.held for facts in of_steps) / room)} of their token capacity.")


def components(f: GroupFacts) -> list[tuple[str, float, str]]:
    """Parts of a step of one module: name, seconds, and what it is."""
    return [
        ("compute", f.compute - f.fixed, "grows with the tokens"),
        ("fixed cost of micro-batches", f.fixed, "independent of their tokens; fewer micro-batches save it"),
        ("exchange across nodes", f.exchange_across, "groups that are wider than a node"),
        ("exchange within nodes", f.exchange_within, "groups inside one node"),
        ("gathers and reductions", f.other_comm, "of weights and gradients, exposed"),
        ("idle in a group", f.idle - f.unheld, "waiting for slower groups"),
        ("idle without a group", f.unheld, "the rank is in no group"),
    ]


def alternatives_table(plan: Plan) -> Content:
    """A table of the alternatives that were tried: the best first, what is impossible or too slow last and merged."""
    if not plan.alternatives:
        return None
    goal = objective_of(plan)
    possible = [
        (
            alternative_text(ranked.tried, plan.made.strategy),
            goal.formatted(ranked.tried.value or 0.0),
            f"{100 * ranked.change:+.1f} %{' tie' if ranked.tie else ''}",
            ranked.tried.because,
        )
        for ranked in ranked_alternatives(plan)
    ]
    failed = [
        (
            each.text,
            each.verdict if each.tried.about is None else f"≈ {goal.formatted(each.tried.about)}, {each.verdict}",
            "",
            each.because,
        )
        for each in unranked_alternatives(plan)
    ]
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


def sensitivity_table(why: WhyPlan) -> Markup:
    """A table of the step with more memory, ranks or bandwidth, each solved again; of several modules with faster ones,
    with encoders elsewhere and with other data.
    """
    if isinstance(why.facts, GroupFacts):
        gains = gains_table(why.sensitivities, f"Step {why.step} solved again, simulated")
        return join(tag("h3", "What would help"), gains)
    tables = [gains_table(why.sensitivities, f"Step {why.step} with all decisions kept, simulated")]
    if isinstance(why.placements, tuple) and why.placements:
        elsewhere = [placed.gain for placed in why.placements]
        tables.append(gains_table(elsewhere, f"Step {why.step} with encoders elsewhere, simulated"))
    if isinstance(why.data, tuple) and why.data:
        tables.append(gains_table(why.data, f"Step {why.step} with other data, priced only"))
    return join(tag("h3", "What would help"), *tables)


def gains_table(gains: Sequence[Sensitivity], caption: str) -> Markup:
    """The step with each of several changes, and what it saves."""
    rows = [
        (s.what, s.because or duration(s.seconds or 0.0), "" if s.saved is None else percent(s.share or 0.0))
        for s in gains
    ]
    return table(("with", ">step", ">saved"), rows, caption)
