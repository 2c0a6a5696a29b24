"""The section on what a plan's numbers rest on: prices with their sources, devices, and input files."""

from planner.costs.compute import step_spread
from planner.plan.plan_file import Plan
from planner.report.tags import Content, Markup, details, section, table, tag
from planner.units import percent, plural


def sources_section(plan: Plan, measured_share: float) -> Markup:
    """Prices by module and kind of rank, collectives, input files, solver, devices, and what was dropped."""
    sentence = f"{percent(measured_share)} of the critical path is priced by measurements, or by fits to them."
    heads, prices = ("priced", "by", ">± 80 %", "profile"), plan.uses.prices
    modules = [(name, c.source, percent(c.spread), prices.profile) for name, c in prices.modules.items()]
    rest = "all else" if prices.modules else "all"
    for kind, rates in prices.rates.items():
        modules.append((f"{rest} on {kind}", rates.source, percent(step_spread(prices.spread, rates)), prices.profile))
    collectives = [
        (name, c.source, percent(c.spread), plural(len(c.points), "point")) for name, c in prices.collectives.items()
    ]
    files = [(name, source.path, tag("code", source.sha256)) for name, source in plan.uses.sources.items()]
    content = [tag("h3", "Prices"), table(heads, modules, "Compute")]
    if collectives:
        content.append(table(("collective", "priced by", ">± 80 %", "table"), collectives, "Communication"))
    if files:
        content += [
            tag("h3", "Inputs"),
            table(("input", "file", "SHA-256, shortened"), files, "As they were when the plan was solved"),
        ]
    return section(
        "rests-on",
        "What it rests on",
        *content,
        solved_by(plan),
        device_details(plan),
        dropped_details(plan),
        lead=sentence,
    )


def solved_by(plan: Plan) -> Content:
    m = plan.made
    spent = f" ({plan.outcome.effort})" if plan.outcome.effort else ""
    batches = f"{plural(m.batches, 'batch')} from sample {m.first_row}"
    sentence = f"Solved by {m.by}: strategy {m.strategy}, seed {m.seed}, effort {m.effort}{spent}, {batches}."
    if plan.then:
        further = "Further" if plan.then.batches is None else f"{plan.then.batches:,} further"
        sentence += f" {further} batches come from {plan.then.folder}, each planned while earlier ones train."
    return tag("p", sentence)


def device_details(plan: Plan) -> Content:
    rows = [
        (name, f"{device.memory_gib:g}", percent(plan.uses.limits.memory_margin), f"{device.memory_gb_per_s:,.0f}")
        for name, device in plan.uses.devices.items()
    ]
    return details("Devices", table(("device", ">memory, GiB", ">margin", ">GB/s"), rows, "Devices"))


def dropped_details(plan: Plan) -> Content:
    if not plan.uses.dropped:
        return None
    return details(
        f"{len(plan.uses.dropped):,} samples longer than the job allows",
        tag("p", ", ".join(map(str, plan.uses.dropped))),
    )
