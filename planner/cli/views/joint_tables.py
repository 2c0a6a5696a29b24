"""What `why` and `why-not` print of plans of several modules. All seconds are simulated."""

from collections.abc import Iterator, Mapping

from rich.console import RenderableType
from rich.text import Text

from planner.cli.views.plan_tables import gib_text, table
from planner.units import GIB, duration, percent
from planner.why import JointFacts, JointWhyNot

CLOSE = 1e-6  # share of the step: a smaller difference is none
GROWS = 0.005  # share of the fullest rank's memory: a smaller difference is not listed


def joint_why_not_lines(answer: JointWhyNot) -> Iterator[RenderableType]:
    """The cost of a change, its reasons, and both steps; or what binds."""
    asked = ", ".join(answer.changes)
    if answer.infeasible:
        yield Text.assemble((asked, "bold"), " is not possible: ", answer.infeasible.message)
        if answer.infeasible.where:
            yield Text(f"  binding constraint: {answer.infeasible.where}")
        if answer.infeasible.fix:
            yield Text(f"  feasible with: {answer.infeasible.fix}")
    if answer.after is None:
        return
    yield cost_line(answer, asked)
    reasons = table("", "")
    for number, clause in enumerate(answer.because):
        reasons.add_row("" if number else "  because", clause.text)
    yield reasons
    yield Text()
    yield both_steps(answer.before, answer.after)
    layouts = table("", "")
    for name, text in answer.after.layouts.items():
        if text != answer.before.layouts[name]:
            layouts.add_row("changed", f"{name}: {text}")
    yield layouts
    if answer.follows:
        yield Text(f"this also changes {', '.join(answer.follows)}", style="dim")
    yield from kept_line(answer)
    yield from again_line(answer)


def cost_line(answer: JointWhyNot, asked: str) -> Text:
    """What the change costs, or saves."""
    seconds, share = answer.seconds or 0.0, answer.share or 0.0
    after = answer.after.value if answer.after else 0.0
    line, both = (
        Text.assemble((asked, "bold")),
        f"{duration(answer.before.value)} → {duration(after)} a step, simulated",
    )
    if abs(share) < CLOSE:
        return line.append(f" changes nothing: the step takes {duration(after)} either way, simulated")
    if seconds > 0:
        return line.append(f" adds {duration(seconds)}, {percent(share)}: {both}")
    return line.append(f" saves {duration(-seconds)}, {percent(-share)}: {both}", style="green")


def kept_line(answer: JointWhyNot) -> Iterator[RenderableType]:
    """What the change costs where other modules keep their layouts, if they do not."""
    if not answer.kept:
        alone = duration(answer.kept_seconds) if answer.kept_seconds is not None else "not possible"
        yield Text(f"with the layouts of the other modules as they were: {alone}", style="dim")


def again_line(answer: JointWhyNot) -> Iterator[RenderableType]:
    """A warning where the plan's own layouts, their items placed again, give another step."""
    if answer.again is not None and abs(answer.again - answer.before.value) > CLOSE * answer.before.value:
        yield Text(
            f"the plan's own layouts, with items placed again, take {duration(answer.again)}: "
            f"the plan takes {duration(answer.before.value)}",
            style="yellow",
        )


def both_steps(before: JointFacts, after: JointFacts) -> RenderableType:
    """Where the time goes in both steps, and the counts behind it."""
    rows = table("", ">plan", ">changed")
    for name, old, new in zip(fact_names(before), fact_texts(before), fact_texts(after), strict=True):
        rows.add_row(name, old, new)
    for name in dict.fromkeys((*before.parts, *after.parts)):
        old_seconds, new_seconds = before.parts.get(name, 0.0), after.parts.get(name, 0.0)
        rows.add_row(f"  {name}", duration(old_seconds), duration(new_seconds))
    rows.add_row("memory of the fullest rank", gib_of(before.peak_memory_gib), gib_of(after.peak_memory_gib))
    for name in dict.fromkeys((*before.memory, *after.memory)):
        old_gib, new_gib = before.memory.get(name, 0.0), after.memory.get(name, 0.0)
        if abs(new_gib - old_gib) > GROWS * before.peak_memory_gib:
            rows.add_row(f"  {name}", gib_of(old_gib), gib_of(new_gib))
    return rows


def fact_names(facts: JointFacts) -> list[str]:
    """The names of the counts of a step."""
    loads = [f"{what} of {name}" for name in facts.loads for what in ("micro-batches", "most over mean load")]
    return ["step", f"bound ({facts.bound_by})", *loads]


def fact_texts(facts: JointFacts) -> list[str]:
    """The counts of a step, each module's by itself."""
    loads = [text for load in facts.loads.values() for text in (str(load.micro_batches), f"{load.uneven:.2f}")]
    return [duration(facts.value), duration(facts.bound), *loads]


def gib_of(gib: float) -> str:
    """A number of GiB as text."""
    return gib_text(gib * GIB)


def seconds_by_part(parts: Mapping[str, float], whole: float) -> RenderableType:
    """Seconds and shares of a whole."""
    rows = table("", ">seconds", ">share")
    for name, seconds in parts.items():
        rows.add_row(name, duration(seconds), percent(seconds / whole if whole else 0.0))
    return rows
