"""What `why` and `why-not` print, and their JSON answers. All seconds are simulated."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from planner.cli.views.embedding_tables import why_table_lines
from planner.cli.views.plain_table import table
from planner.cli.views.plan_tables import gib_text
from planner.plan.pack_fill import pack_text
from planner.specs.base import UNSET, Spec, with_fields
from planner.units import GIB, duration, first_few, percent, plural, signed
from planner.why import (
    Facts,
    GroupFacts,
    GroupLoad,
    ModuleFacts,
    ModuleLoad,
    ReadOutputs,
    Sensitivity,
    WhyAnswer,
    WhyGroup,
    WhyItem,
    WhyNot,
    WhyPlacedItem,
    WhyPlan,
    WhyTable,
)

NOT_SOLVED = "not solved"
CLOSE = 1e-6  # share of the step: a smaller difference is none
GROWS = 0.005  # share of the fullest rank's memory: a smaller difference is not listed


def answer_lines(answer: WhyAnswer | WhyNot) -> Iterator[RenderableType]:
    """Lines and tables of any answer of `why` or `why-not`."""
    lines: dict[type[Spec], Callable[[Any], Iterator[RenderableType]]] = {
        WhyGroup: why_group_lines,
        WhyItem: why_item_lines,
        WhyNot: why_not_lines,
        WhyPlacedItem: placed_item_lines,
        WhyPlan: why_plan_lines,
        WhyTable: why_table_lines,
    }
    return lines[type(answer)](answer)


def why_answer(answer: Spec) -> dict[str, Any]:
    """The JSON answer, without the fields that plans with as many modules do not have."""
    fields = {name: getattr(answer, name) for name in answer.__struct_fields__}
    return {name: value for name, value in fields.items() if value is not UNSET}


# ---------------------------------------------------------------------------------------------------------- why-not


def why_not_lines(answer: WhyNot) -> Iterator[RenderableType]:
    """The cost of a change, its reasons, and both steps; or what binds."""
    asked, several = ", ".join(answer.changes), isinstance(answer.before, ModuleFacts)
    if answer.infeasible:
        yield Text.assemble((asked, "bold"), " is not possible: ", answer.infeasible.message)
        if answer.infeasible.where:
            yield Text(f"  binding constraint: {answer.infeasible.where.removesuffix(' (what binds)')}")
        if answer.infeasible.fix:
            yield Text(f"  feasible with: {answer.infeasible.fix}")
    elif answer.after:
        yield cost_line(answer, asked)
        reasons = [("" if number else "  because", clause.text) for number, clause in enumerate(answer.because)]
        yield table("", "", rows=reasons)
        yield Text()
        yield both_steps(answer.before, answer.after)
        unchanged = answer.before.layouts if several else {}
        layouts = [item for item in answer.after.layouts.items() if item not in unchanged.items()]
        yield table("", "", rows=[("changed", f"{name}: {text}") for name, text in layouts])
    if answer.follows:
        yield Text(f"this also {'changes' if several else 'requires'} {', '.join(answer.follows)}", style="dim")
    yield from kept_line(answer)
    if answer.again is not None and (answer.after or not several):
        yield from again_warning(answer.again, answer.before)


def cost_line(answer: WhyNot, asked: str) -> Text:
    """The line on what a change costs or saves, with the seconds of both steps."""
    seconds, share = answer.seconds or 0.0, answer.share or 0.0
    after = answer.after.value if answer.after else 0.0
    line = Text.assemble((asked, "bold"))
    both = f"{duration(answer.before.value)} → {duration(after)} a step, simulated"
    if abs(share) < CLOSE:
        return line.append(f" changes nothing: the step takes {duration(after)} either way, simulated")
    if seconds > 0:
        return line.append(f" adds {duration(seconds)}, {percent(share)}: {both}")
    doubt = doubt_text(answer)
    praise = "" if doubt or isinstance(answer.before, ModuleFacts) else " is better than the plan: it"
    saved = f"{praise} saves {duration(-seconds)}, {percent(-share)}: {both}{doubt}"
    return line.append(saved, style="" if doubt else "green")


def doubt_text(answer: WhyNot) -> str:
    """That a change which is predicted to save is expected to cost; empty where it is not."""
    before, after = answer.before, answer.after
    if not after or after.value >= before.value or after.expected <= before.expected:
        return ""
    longer = percent(after.expected / before.expected - 1.0)
    return f"; but expected to take {longer} longer, as it is farther from what was measured"


def kept_line(answer: WhyNot) -> Iterator[RenderableType]:
    """What the change costs where other modules keep their layouts, if they do not."""
    if answer.kept is False and answer.after:
        kept = answer.kept_seconds
        alone = duration(kept) if isinstance(kept, float) else f"not possible: {answer.kept_because}"
        yield Text(f"with the layouts of the other modules as they were: {alone}", style="dim")


def again_warning(again: float, before: Facts) -> Iterator[RenderableType]:
    """A warning where the plan's own problem, solved or placed again, reaches another step time."""
    if abs(again - before.value) > CLOSE * before.value:
        what = "the unchanged problem, solved again, takes"
        if isinstance(before, ModuleFacts):
            what = "the plan's own layouts, with items placed again, take"
        yield Text(f"{what} {duration(again)}: the plan takes {duration(before.value)}", style="yellow")


def both_steps(before: Facts, after: Facts) -> RenderableType:
    """Where the time goes in both steps, and the counts behind it."""
    pairs = zip(fact_lines(before), fact_lines(after), strict=True)
    rows = table("", ">plan", ">changed", rows=[(name, old, new) for (name, old), (_, new) in pairs])
    if isinstance(before, ModuleFacts) and isinstance(after, ModuleFacts):
        for name in dict.fromkeys((*before.parts, *after.parts)):
            rows.add_row(f"  {name}", *(duration(facts.parts.get(name, 0.0)) for facts in (before, after)))
        rows.add_row("memory of the fullest rank", gib_of(before.peak_memory_gib), gib_of(after.peak_memory_gib))
        for name in dict.fromkeys((*before.memory, *after.memory)):
            old_gib, new_gib = before.memory.get(name, 0.0), after.memory.get(name, 0.0)
            if abs(new_gib - old_gib) > GROWS * before.peak_memory_gib:
                rows.add_row(f"  {name}", gib_of(old_gib), gib_of(new_gib))
    return rows


def fact_lines(facts: Facts) -> Iterator[tuple[str, str]]:
    """The step with its bound, and the counts that explain it; of one module, where the mean rank's time goes."""
    yield "step", duration(facts.value)
    yield f"bound ({facts.bound_by})", duration(facts.bound)
    if isinstance(facts, ModuleFacts):
        for name, load in facts.loads.items():
            yield f"micro-batches of {name}", str(load.micro_batches)
            yield f"most over mean load of {name}", f"{load.uneven:.2f}"
        return
    yield "compute", duration(facts.compute)
    yield from ((name, duration(seconds)) for name, seconds in facts.tables.items())
    yield "exchanges across nodes", duration(facts.exchange_across)
    yield "exchanges inside nodes", duration(facts.exchange_within)
    yield "gathers, reductions, transfers", duration(facts.other_comm)
    yield "idle", duration(facts.idle)
    yield "micro-batches", micro_batch_count_text(facts)
    yield "groups", f"⟨{facts.groups}⟩"
    yield "token capacity in use", capacity_text(facts)
    yield "memory of the fullest rank", gib_of(facts.peak_memory_gib)
    yield from (("embedding tables", facts.table_groups),) if facts.table_groups else ()


def capacity_text(facts: GroupFacts) -> str:
    """The share of the tokens that groups may hold which they hold; of packs, of what packs may hold."""
    if facts.packs:
        return percent(facts.packs.modules[0].fill)
    return percent(facts.held / facts.room) if facts.room else "–"


def micro_batch_count_text(facts: GroupFacts) -> str:
    """Number of micro-batches; per rank where ranks synchronise once a step."""
    if facts.sync == "micro_batch":
        return str(facts.micro_batches)
    fewest, most = facts.fewest_of_rank, facts.most_of_rank
    return f"{fewest} a rank" if fewest == most else f"{fewest} to {most} a rank"


def gib_of(gib: float) -> str:
    """A number of GiB as text, in MiB where it is small."""
    return gib_text(gib * GIB)


# -------------------------------------------------------------------------------------------------------------- why


def why_plan_lines(answer: WhyPlan) -> Iterator[RenderableType]:
    """Where the time goes, what binds, and what would shorten the step."""
    facts = answer.facts
    yield from group_lines(answer, facts) if isinstance(facts, GroupFacts) else module_lines(answer, facts)
    yield Text()
    yield gains_table("with", answer.sensitivities)
    if answer.kept:
        yield Text(f"its decisions stay, since no strategy makes them: {answer.kept}", style="dim")
    if isinstance(answer.placements, tuple) and answer.placements:
        yield Text()
        elsewhere = [with_fields(placed.gain, what=" ".join(placed.changes)) for placed in answer.placements]
        yield gains_table("with encoders elsewhere", elsewhere, "not possible")
        yield from refusals(elsewhere)
        yield Text("  planner why-not PLAN takes these words, and says more", style="dim")
    if isinstance(answer.data, tuple) and answer.data:
        yield Text()
        yield gains_table("with other data (priced only)", answer.data, "not possible")
    if answer.unplaced:
        yield Text(f"other placements are not priced: {answer.unplaced}", style="dim")
    yield from again_warning(answer.again, facts)


def group_lines(answer: WhyPlan, facts: GroupFacts) -> Iterator[RenderableType]:
    """Where the time of the mean rank goes, of one module."""
    yield Text.assemble((answer.plan, "bold"), f"  step {answer.step}, mean over ranks, simulated")
    nearest = [("nearest run", answer.nearest)] if answer.nearest else []
    yield table("", "", rows=[*fact_lines(facts), *nearest])


def module_lines(answer: WhyPlan, facts: ModuleFacts) -> Iterator[RenderableType]:
    """Where the time goes by module, how even loads are, and what binds."""
    yield Text.assemble((answer.plan, "bold"), f"  step {answer.step}, simulated\n")
    yield one_step(facts)
    yield Text(f"\n{binds_text(facts)}")
    for name, load in facts.loads.items():
        yield Text(f"load of {name}: {evenness_text(load)}")
    for number, wave in enumerate(facts.waves):
        where = f"{wave.longest}, {duration(wave.seconds)} on {plural(len(wave.ranks), 'rank')} ({wave.ranks})"
        yield Text(f"wave {number} is bound by {where}; all ranks compute {percent(wave.busy)} of that")
    if facts.gaps and facts.gaps.hidden:
        yield Text(f"gaps: {facts.gaps.text}")
    for pair in facts.shared:
        yield Text(f"shares: {pair.text}, {duration(pair.together)} side by side")
    if facts.packs:
        yield Text(f"packs: {pack_text(facts.packs)}")
    if answer.nearest:
        yield Text(f"nearest run: {answer.nearest}")


def one_step(facts: ModuleFacts) -> RenderableType:
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


def evenness_text(load: ModuleLoad) -> str:
    """How uneven the load of a module is: `passes of 520.0 ms on the mean of 128 ranks, most 2.57 s (4.95 of it)`."""
    mean = f"passes of {duration(load.mean)} on the mean of {plural(len(load.ranks), 'rank')}"
    return f"{mean}, most {duration(load.most)} ({load.uneven:.2f} of it) on rank {load.fullest_rank}"


def binds_text(facts: ModuleFacts) -> str:
    """What the step is as long as: the largest parts of its longest chain of tasks, and the rank that idles least."""
    longest = sorted(facts.binds.items(), key=lambda part: -part[1])[:3]
    told = ", ".join(f"{name} {percent(seconds / (facts.value or 1.0))}" for name, seconds in longest)
    stages = " and ".join(f"stage {stage} of {name}" for name, stage in facts.busiest_stages.items())
    return f"what binds: {told} of the longest chain; rank {facts.busiest_rank} idles least ({stages})"


def refusals(gains: Sequence[Sensitivity]) -> Iterator[RenderableType]:
    """A line for each change that is not possible, with what binds."""
    for gain in gains:
        if gain.because:
            yield Text(f"  {gain.what}: {gain.because}", style="dim")


def gains_table(what: str, gains: Sequence[Sensitivity], refused: str = "") -> RenderableType:
    """The step with each of several changes, and what it saves. `refused`: where there is none, instead of why."""
    rows = table(what, ">step", ">saves", ">share")
    for gain in gains:
        if gain.seconds is None or gain.saved is None or gain.share is None:
            rows.add_row(gain.what, refused or gain.because, "", "")
        else:
            rows.add_row(gain.what, duration(gain.seconds), duration(gain.saved), percent(gain.share))
    return rows


# ----------------------------------------------------------------------------------------------- of items and groups


def why_item_lines(answer: WhyItem) -> Iterator[RenderableType]:
    """Where the item is, and each degree that it could have instead."""
    load = answer.load
    yield Text.assemble(
        (f"item {answer.item}", "bold"),
        f"  {answer.tokens:,} tokens, in group {load.group} ⟨{load.degree}⟩ of micro-batch {load.micro_batch}",
    )
    yield Text(f"{load_text(load)}\n")
    several = len({choice.kind for choice in answer.choices}) > 1
    numbers = (">alone", ">tokens per rank", ">capacity", "fits", "nodes", ">step", ">difference")
    rows = table("degree", *(["ranks"] if several else []), *numbers)
    rows.columns[1].no_wrap = several  # a kind's name is not broken
    for choice in answer.choices:
        step, difference = choice.because or (NOT_SOLVED if choice.fits else "too long"), ""
        if choice.step_seconds is not None:
            step = duration(choice.step_seconds)
            difference = "chosen" if choice.chosen else signed(choice.step_seconds - answer.value)
        rows.add_row(
            f"⟨{choice.degree}⟩",
            *([choice.kind] if several else []),
            duration(choice.seconds),
            f"{choice.tokens_per_rank:,.0f}",
            f"{choice.room_per_rank:,}",
            "yes" if choice.fits else "no",
            "several" if choice.crosses_nodes else "one",
            step,
            difference,
        )
    yield rows
    if any(choice.fits and choice.step_seconds is None and not choice.because for choice in answer.choices):
        yield Text(f"{NOT_SOLVED}: only the next smaller and the next larger degree that fit are tried", style="dim")


def load_text(load: GroupLoad) -> str:
    """A sentence: `the group takes 1.2 s and waits 0.3 s for g0-31; it holds 6,000 of 12,000 tokens`."""
    room = f" of {load.room:,} tokens ({percent(load.held / load.room)})" if load.room else " tokens"
    offloaded = f", and {load.tokens - load.held:,} more in host memory" if load.held < load.tokens else ""
    return f"the group takes {slack_text(load)}; it holds {load.held:,}{room}{offloaded}"


def slack_text(load: GroupLoad) -> str:
    """Slack of a group in its micro-batch, or over the step where ranks synchronise once a step."""
    if load.rank_seconds is None:
        slack = f"waits {duration(load.slack)} for {load.waits_for}" if load.waits_for else "is critical"
        return f"{duration(load.seconds)} and {slack}"
    critical = f"has {duration(load.slack)} of slack: {load.waits_for} is critical" if load.waits_for else "is critical"
    works = f"{duration(load.seconds)} of the {duration(load.rank_seconds)} that rank {load.rank} works"
    return f"{works} and {critical}"


def why_group_lines(answer: WhyGroup) -> Iterator[RenderableType]:
    """Load of a group in every micro-batch, and its items."""
    first = answer.loads[0]
    where = "several nodes" if first.crosses_nodes else "one node"
    yield Text.assemble((answer.group, "bold"), f"  ⟨{first.degree}⟩ on ranks {first.ranks}, {where}")
    for load in answer.loads:
        of = f"{load.module}, " if len(answer.sizes) > 1 else ""
        yield Text(f"\n{of}micro-batch {load.micro_batch}: {load_text(load)}")
        sizes = answer.sizes[load.module]
        largest_first = sorted(load.items, key=lambda item: (-sizes[item], item))
        yield table("item", ">tokens", rows=[(str(item), f"{sizes[item]:,}") for item in largest_first])


def placed_item_lines(answer: WhyPlacedItem) -> Iterator[RenderableType]:
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
    if not moves:
        yield Text("no other group works on its module", style="dim")
        return
    yield gains_table("with the item", moves, "not possible")
    yield from refusals(moves)


def outputs_text(outputs: ReadOutputs) -> str:
    """When outputs are there and when they are read: `its 391 outputs, which item 3 of llm reads, are there …`."""
    readers = " and ".join(
        f"{plural(len(items), 'item')} of {name} ({first_few(items)})" for name, items in outputs.readers.items()
    )
    later = f"{duration(outputs.needed - outputs.ready)} later"
    after = "when they arrive: it waits for them" if outputs.waited_for else later
    there = f"its {outputs.tokens:,} outputs are there at {duration(outputs.ready)} of the step"
    return f"{there}; the first pass that reads them begins {after}; read by {readers}"
