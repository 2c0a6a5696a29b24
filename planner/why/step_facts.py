"""Breaks a step down into seconds of the mean rank that add up to it: of one module by what groups do, with its use of
ranks and memory; of several by module, with how even each load is over its ranks, and what the fullest rank holds.
"""

from collections import Counter, defaultdict
from dataclasses import fields
from typing import Any

from planner.costs import pricing_of
from planner.plan.descriptions import module_layout_text
from planner.plan.pack_fill import PackFill, pack_fill
from planner.plan.plan_file import Plan, assignments
from planner.scoring import GapUse, Score, SharedPair, gap_use, plan_doubt, shared_pairs
from planner.simulate import TaskEvent, Timeline, TimePart, is_feed, mean_seconds
from planner.specs.base import Ranks, Spec
from planner.specs.parallelism import Sync
from planner.units import GIB, multiset_text, plural
from planner.why.group_loads import GroupLoad, group_loads
from planner.why.wave_loads import WaveLoad, wave_loads

PASSES = ("F", "B", "I", "W")
TABLE_TERMS = "lookups of tables", "exchange of their sums", "averages of their copies"


class StepFacts(Spec, omit_defaults=False):
    """Seconds of a step and its lower bound, whatever its modules."""

    value: float
    expected: float  # the value with the mean of the error that is its own (scoring/expected_seconds.py)
    bound: float
    bound_by: str


class GroupFacts(StepFacts, omit_defaults=False):
    """A step of one module: compute, the exchanges, other_comm, tables and idle add up to its value."""

    compute: float
    fixed: float  # the part of compute that a micro-batch takes whatever its tokens
    exchange_across: float  # exposed, inside groups that cross nodes
    exchange_within: float
    other_comm: float  # exposed gathers, reductions and transfers
    tables: dict[str, float]  # of embedding tables, by term; none without
    table_groups: str  # of the ranks that have them: `2 groups of 8 ranks, copies node, …`
    idle: float
    unheld: float  # the part of idle in which the rank is in no group
    ranks: int
    sync: Sync
    micro_batches: int
    fewest_of_rank: int  # micro-batches of the rank that has fewest
    most_of_rank: int
    groups: str  # degrees of all groups: `64, 8×3`
    crossing_groups: int
    crossing_tokens: int
    tokens: int
    held: int  # of these, on the devices: offloaded activations count less
    room: int  # tokens that all groups together could hold; 0: not known
    packs: PackFill | None  # where the job limits the inputs of a rank
    peak_memory_gib: float
    layouts: dict[str, str]  # by module, as screens show it and `fix.layouts` takes it


class ModuleLoad(Spec, omit_defaults=False):
    """How even the passes of one module are over the ranks that hold it."""

    ranks: Ranks
    micro_batches: int  # that have any of its items
    mean: float  # seconds of a rank
    most: float
    uneven: float  # most over mean
    fullest_rank: int  # the first with most


class ModuleFacts(StepFacts, omit_defaults=False):
    """A step of several modules: where its time goes by module, what binds, and what the fullest rank holds."""

    parts: dict[str, float]  # seconds of the mean rank, as `compute of llm`; they add up to the value
    binds: dict[str, float]  # seconds of the longest chain of tasks likewise: what is shorter shortens the step
    busiest_rank: int  # that idles least
    busiest_stages: dict[str, int]  # module → its stage on that rank
    loads: dict[str, ModuleLoad]  # by module
    waves: tuple[WaveLoad, ...]  # of several tasks; else none
    peak_memory_gib: float  # of the fullest rank
    allowed_gib: float
    fullest_rank: int
    memory: dict[str, float]  # GiB on that rank by what they are, its modules' states apart
    gaps: GapUse | None  # of encoders on the ranks of what reads them
    shared: tuple[SharedPair, ...]  # modules side by side on devices that they share
    packs: PackFill | None
    layouts: dict[str, str]  # by module, as screens show them and `fix.layouts` takes them


Facts = GroupFacts | ModuleFacts


def step_facts(plan: Plan, score: Score) -> Facts:
    """Break down the step of a plan of one step."""
    common = dict(
        value=score.step_seconds,
        expected=score.step_seconds * plan_doubt(plan),
        bound=min(score.bound.seconds, score.step_seconds),
        bound_by=score.bound.by,
        packs=pack_fill(plan),
        peak_memory_gib=score.peak_bytes / GIB,
        layouts={name: module_layout_text(plan, name, ask="") for name in plan.layouts},
    )
    return module_facts(plan, score, common) if len(plan.layouts) > 1 else group_facts(plan, score, common)


def group_facts(plan: Plan, score: Score, common: dict[str, Any]) -> GroupFacts:
    """Break down a step of one module, given what all facts share."""
    parts = score.breakdown
    placed = group_loads(plan, score)
    across, within = exposed_by_reach(plan, score, placed)
    crossing = [load for load in placed if load.crosses_nodes]
    micro_batch_counts = rank_micro_batches(plan, placed)
    tables = table_terms(score)
    lookup, *exchanged = tables.values() if tables else (0.0,)
    return GroupFacts(
        compute=parts.compute - lookup,
        fixed=fixed_seconds(plan, score),
        exchange_across=across,
        exchange_within=within,
        other_comm=max(0.0, parts.exposed_comm - across - within - sum(exchanged)),
        tables=tables,
        table_groups=table_groups_text(plan, score),
        idle=parts.idle,
        unheld=min(parts.idle, groupless_seconds(plan, placed)),
        ranks=plan.size,
        sync=plan.steps[0].sync,
        micro_batches=len(plan.steps[0].micro_batches),
        fewest_of_rank=min(micro_batch_counts),
        most_of_rank=max(micro_batch_counts),
        groups=multiset_text(load.degree for load in placed),
        crossing_groups=len(crossing),
        crossing_tokens=sum(load.tokens for load in crossing),
        tokens=sum(load.tokens for load in placed),
        held=sum(load.held for load in placed),
        room=sum(load.room for load in placed),
        **common,
    )


def table_terms(score: Score) -> dict[str, float]:
    """Seconds of the mean rank that embedding tables take, by term."""
    loads = score.tables
    if loads is None:
        return {}
    terms = {TABLE_TERMS[0]: loads.lookup, TABLE_TERMS[1]: loads.exchange, TABLE_TERMS[2]: loads.average}
    return {name: float(seconds.mean()) for name, seconds in terms.items()}


def table_groups_text(plan: Plan, score: Score) -> str:
    """The groups of ranks that have each table, and how uneven these load their ranks; empty without tables."""
    placed, loads = plan.embeddings, score.tables
    if placed is None or loads is None:
        return ""
    of = f"{plural(placed.groups, 'group')} of {plural(loads.group.ranks, 'rank')}"
    return f"{of}, copies {placed.replicas}, slowest over mean rank {loads.imbalance:.3f}"


def exposed_by_reach(plan: Plan, score: Score, placed: list[GroupLoad]) -> tuple[float, float]:
    """Exposed communication in forward and backward, in seconds of the mean rank: across nodes, and within."""
    crossing = {load.group for load in placed if load.crosses_nodes}
    across = within = 0.0
    doing = score.timeline.rank_multiplicity()
    for event in score.timeline.events:
        if event.phase in PASSES:
            seconds = event.comm * doing(event.ranks) / plan.size
            if event.id.rpartition("/")[2] in crossing:
                across += seconds
            else:
                within += seconds
    return across, within


def rank_micro_batches(plan: Plan, placed: list[GroupLoad]) -> list[int]:
    """Number of micro-batches in which each rank works."""
    busy = {(rank, load.micro_batch) for load in placed for rank in load.ranks}
    counts = Counter(rank for rank, _ in busy)
    return [counts[rank] for rank in range(plan.size)]


def fixed_seconds(plan: Plan, score: Score) -> float:
    """Compute seconds of the mean rank if each forward and backward had a single token."""
    price, doing = pricing_of(plan).price, score.timeline.rank_multiplicity()
    total = 0.0
    for task in score.tasks:
        if task.phase in PASSES and task.sizes:
            cost = price(task.changed(sizes=(1,), items=task.items[:1], offload=()))
            total += (cost.value - cost.comm) * doing(task.ranks)
    return total / plan.size


def groupless_seconds(plan: Plan, placed: list[GroupLoad]) -> float:
    """Seconds during which the mean rank is in no group: by micro-batch, or over the step if ranks sync once a step."""
    if plan.steps[0].sync != "micro_batch":
        without = plan.size - len({rank for load in placed for rank in load.ranks})
        return max(load.rank_seconds or 0.0 for load in placed) * without / plan.size
    total = 0.0
    for micro_batch in {load.micro_batch for load in placed}:
        loads = [load for load in placed if load.micro_batch == micro_batch]
        busy = {rank for load in loads for rank in load.ranks}
        total += max(load.seconds for load in loads) * (plan.size - len(busy))
    return total / plan.size


def module_facts(plan: Plan, score: Score, common: dict[str, Any]) -> ModuleFacts:
    """Break down a step of several modules, given what all facts share."""
    whole = score.timeline
    busiest, stages = whole.busiest_rank(), score.plan_memory.stage_of
    return ModuleFacts(
        parts=in_module_order(plan, mean_seconds(whole, part_name)),
        binds=in_module_order(plan, binding_parts(whole)),
        busiest_rank=busiest,
        busiest_stages={name: stages[name][busiest] for name in plan.layouts if busiest in stages[name]},
        loads={name: module_load(plan, whole, name) for name in plan.layouts},
        waves=tuple(wave_loads(plan, whole)),
        gaps=gap_use(plan, score),
        shared=shared_pairs(score),
        allowed_gib=score.plan_memory.allowed_bytes(score.fullest_rank) / GIB,
        fullest_rank=score.fullest_rank,
        memory=memory_parts(score),
        **common,
    )


def part_name(part: TimePart) -> str:
    """The name of a part of a rank's time: compute, exchanges or other work of a module, waiting for one, or idle."""
    if part.event is None:
        return "idle"
    if part.use == "wait":
        return f"waiting for {'outputs of ' if is_feed(part.event) else ''}{part.event.module}"
    return f"{'exchanges' if part.use == 'exchange' else work_name(part.event)} of {part.event.module}"


def work_name(event: TaskEvent) -> str:
    """The kind of work that a task is: compute, outputs, sends, gathers, the update, or copies."""
    if event.phase in PASSES:
        return "compute"
    if event.phase in ("send", "recv"):
        return "outputs" if is_feed(event) else "sends between stages"
    return {"update": "update", "offload": "copies to the host"}.get(event.phase, "gathers and reductions")


def binding_parts(timeline: Timeline) -> dict[str, float]:
    """Seconds of the critical path by what they go into."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for event in timeline.critical_path():
        name = work_name(event)
        exposed = min(event.comm, event.seconds) if name == "compute" else 0.0
        seconds[f"{name} of {event.module}"] += event.seconds - exposed
        seconds[f"exchanges of {event.module}"] += exposed
    return {name: spent for name, spent in seconds.items() if spent}


def in_module_order(plan: Plan, parts: dict[str, float]) -> dict[str, float]:
    """The parts sorted by module in the order of the plan, waits behind work, and longer ones first."""
    modules = [*plan.layouts]

    def place(name: str) -> tuple[bool, int, float]:
        module = name.rpartition(" ")[2]
        return name.startswith("waiting"), modules.index(module) if module in modules else len(modules), -parts[name]

    return {name: parts[name] for name in sorted(parts, key=place)}


def module_load(plan: Plan, timeline: Timeline, name: str) -> ModuleLoad:
    """The load of one module's ranks: seconds of its passes on each."""
    seconds: defaultdict[int, float] = defaultdict(float)
    for event in timeline.events:
        if event.module == name and event.phase in PASSES:
            for rank in event.ranks:
                seconds[rank] += event.seconds
    ranks = plan.layouts[name].ranks
    loads = {rank: seconds[timeline.representative_of(rank)] for rank in ranks}
    mean, fullest = sum(loads.values()) / len(loads), max(loads, key=lambda rank: (loads[rank], -rank))
    return ModuleLoad(
        ranks=ranks,
        micro_batches=sum(
            any(a.module == name and a.items for a in assignments(plan, micro_batch))
            for micro_batch in plan.steps[0].micro_batches
        ),
        mean=mean,
        most=loads[fullest],
        uneven=loads[fullest] / mean if mean else 1.0,
        fullest_rank=fullest,
    )


def memory_parts(scored: Score) -> dict[str, float]:
    """GiB of the fullest rank at its peak: states of each module on it, and the rest by kind."""
    rank, memory = scored.fullest_rank, scored.plan_memory
    taken = memory.peak_footprint(rank, scored.peak_bytes, scored.tasks)
    stages = {name: of_rank[rank] for name, of_rank in memory.stage_of.items() if rank in of_rank}
    states = {
        f"states of {name}": float(memory.footprints[name][stage][memory.kind(rank)].states)
        for name, stage in stages.items()
    }
    kinds = [field.name for field in fields(taken) if field.name not in ("weights", "gradients", "optimizer", "update")]
    rest = {kind: float(getattr(taken, kind)) for kind in kinds}
    return {name: size / GIB for name, size in (states | rest).items() if size}
