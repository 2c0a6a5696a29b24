"""What `why` and `why-not` print of plans of several modules. All seconds are simulated."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.text import Text

from planner.cli.views.plain_table import table
from planner.cli.views.plan_tables import gib_text
from planner.plan.pack_fill import pack_text
from planner.specs.base import with_fields
from planner.units import GIB, duration, first_few, percent, plural
from planner.why import (
    JointFacts,
    JointWhyNot,
    JointWhyPlan,
    ModuleLoad,
    ReadOutputs,
    Sensitivity,
    WhyJointItem,
    WhyNot,
)

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
    if answer.again is not None:
        yield from again_line(answer.again, answer.before.value)


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
    doubt = doubt_text(answer)
    return line.append(f" saves {duration(-seconds)}, {percent(-share)}: {both}{doubt}", style="" if doubt else "green")


def doubt_text(answer: JointWhyNot | WhyNot) -> str:
    """That a change which is predicted to save is expected to cost; empty where it is not."""
    before, after = answer.before, answer.after
    if not after or after.value >= before.value or after.expected <= before.expected:
        return ""
    longer = percent(after.expected / before.expected - 1.0)
    return f"; but expected to take {longer} longer, as it is farther from what was measured"


def kept_line(answer: JointWhyNot) -> Iterator[RenderableType]:
    """What the change costs where other modules keep their layouts, if they do not."""
    if not answer.kept:
        alone = f"not possible: {answer.kept_because}" if answer.kept_seconds is None else duration(answer.kept_seconds)
        yield Text(f"with the layouts of the other modules as they were: {alone}", style="dim")


def again_line(again: float, value: float) -> Iterator[RenderableType]:
    """A warning where the plan's own layouts, their items placed again, give another step."""
    if abs(again - value) > CLOSE * value:
        yield Text(
            f"the plan's own layouts, with items placed again, take {duration(again)}: "
            f"the plan takes {duration(value)}",
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


# -------------------------------------------------------------------------------------------------------------- why


def joint_why_lines(answer: JointWhyPlan) -> Iterator[RenderableType]:
    """Where the time goes, what binds, and what would shorten the step."""
    facts = answer.facts
    yield Text.assemble((answer.plan, "bold"), f"  step {answer.step}, simulated\n")
    yield one_step(facts)
    yield Text(f"\n{binds_text(facts)}")
    for name, load in facts.loads.items():
        yield Text(f"load of {name}: {load_text(load)}")
    if facts.packs:
        yield Text(f"packs: {pack_text(facts.packs)}")
    if answer.nearest:
        yield Text(f"nearest run: {answer.nearest}")
    yield Text()
    yield gains_table("with", answer.sensitivities)
    if answer.placements:
        yield Text()
        elsewhere = [with_fields(each.gain, what=" ".join(each.changes)) for each in answer.placements]
        yield gains_table("with encoders elsewhere", elsewhere)
        yield from refusals(elsewhere)
    if answer.data:
        yield Text()
        yield gains_table("with other data (priced only)", answer.data)
    if answer.unplaced:
        yield Text(f"other placements are not priced: {answer.unplaced}", style="dim")
    yield from again_line(answer.again, facts.value)


def one_step(facts: JointFacts) -> RenderableType:
    """Where the time of a step goes: of the mean rank, and of the longest chain of tasks; and the counts behind it."""
    rows = table("", ">mean rank", ">share", ">longest chain")
    rows.add_row("step", duration(facts.value), percent(1.0), duration(facts.value))
    for name in dict.fromkeys((*facts.parts, *facts.binds)):
        seconds, chain = facts.parts.get(name, 0.0), facts.binds.get(name)
        share = percent(seconds / facts.value if facts.value else 0.0)
        rows.add_row(f"  {name}", duration(seconds), share, "" if chain is None else duration(chain))
    rows.add_row(f"bound ({facts.bound_by})", duration(facts.bound))
    rows.add_row(f"memory of rank {facts.fullest_rank}, the fullest", gib_of(facts.peak_memory_gib))
    for name, size in facts.memory.items():
        rows.add_row(f"  {name}", gib_of(size), percent(size / facts.peak_memory_gib))
    return rows


def load_text(load: ModuleLoad) -> str:
    """How uneven the load of a module is: `passes of 520.0 ms on the mean of 128 ranks, most 2.57 s (4.95 of it)`."""
    mean = f"passes of {duration(load.mean)} on the mean of {plural(len(load.ranks), 'rank')}"
    return f"{mean}, most {duration(load.most)} ({load.uneven:.2f} of it) on rank {load.fullest_rank}"


def binds_text(facts: JointFacts) -> str:
    """What the step is as long as: the largest parts of its longest chain of tasks, and the rank that idles least."""
    longest = sorted(facts.binds.items(), key=lambda part: -part[1])[:3]
    told = ", ".join(f"{name} {percent(seconds / (facts.value or 1.0))}" for name, seconds in longest)
    stages = " and ".join(f"stage {stage} of {name}" for name, stage in facts.busiest_stages.items())
    return f"what binds: {told} of the longest chain; rank {facts.busiest_rank} idles least ({stages})"


def refusals(gains: Sequence[Sensitivity]) -> Iterator[RenderableType]:
    """Why what is not possible is not."""
    for gain in gains:
        if gain.because:
            yield Text(f"  {gain.what}: {gain.because}", style="dim")
    yield Text("  planner why-not PLAN takes these words, and says more", style="dim")


def gains_table(what: str, gains: Sequence[Sensitivity]) -> RenderableType:
    """The step with each of several changes, and what it saves."""
    rows = table(what, ">step", ">saves", ">share")
    for gain in gains:
        if gain.seconds is None or gain.saved is None or gain.share is None:
            rows.add_row(gain.what, "not possible", "", "")
        else:
            rows.add_row(gain.what, duration(gain.seconds), duration(gain.saved), percent(gain.share))
    return rows


def joint_item_lines(answer: WhyJointItem) -> Iterator[RenderableType]:
    """Where an item is, when its outputs are there, and the step if another group had it."""
    of_parts = f" in {len(answer.parts)} parts" if len(answer.parts) > 1 else ""
    yield Text.assemble(
        (f"item {answer.item} of {answer.module}", "bold"),
        f"  {answer.inputs:,} {answer.unit}{of_parts}, in group {answer.group} (ranks {answer.ranks}) of micro-batch "
        f"{answer.micro_batch}, beside {plural(len(answer.beside), 'other item')}",
    )
    for name, items in answer.reads.items():
        yield Text(f"reads the outputs of {plural(len(items), 'item')} of {name}: {first_few(items)}")
    if answer.outputs:
        yield Text(outputs_text(answer.outputs))
    yield Text()
    moves = answer.moves
    yield gains_table("with the item", moves) if moves else Text("no other group works on its module", style="dim")
    for gain in moves:
        if gain.because:
            yield Text(f"  {gain.what}: {gain.because}", style="dim")


def outputs_text(outputs: ReadOutputs) -> str:
    """When outputs are there and when they are read: `its 391 outputs, which item 3 of llm reads, are there …`."""
    readers = " and ".join(
        f"{plural(len(items), 'item')} of {name} ({first_few(items)})" for name, items in outputs.readers.items()
    )
    later = f"{duration(outputs.needed - outputs.ready)} later"
    after = "when they arrive: it waits for them" if outputs.waited_for else later
    there = f"its {outputs.tokens:,} outputs are there at {duration(outputs.ready)} of the step"
    return f"{there}; the first pass that reads them begins {after}; read by {readers}"
