"""Breaks down a step of several modules: seconds of the mean rank by module and by what they go into, which add up to
it, how even each module's load is over its ranks, and what the fullest rank holds.
"""

from collections import defaultdict
from dataclasses import fields

from planner.plan.descriptions import module_layout_text
from planner.plan.pack_fill import PackFill, pack_fill
from planner.plan.plan_file import Plan, assignments
from planner.scoring import Score, plan_doubt, whole_score
from planner.simulate import TaskEvent, Timeline, TimePart, is_feed, mean_seconds
from planner.specs.base import Ranks, Spec
from planner.units import GIB

PASSES = ("F", "B", "I", "W")


class ModuleLoad(Spec, omit_defaults=False):
    """How even the passes of one module are over the ranks that hold it."""

    ranks: Ranks
    micro_batches: int  # that have any of its items
    mean: float  # seconds of a rank
    most: float
    uneven: float  # most over mean
    fullest_rank: int  # the first with most


class JointFacts(Spec, omit_defaults=False):
    """One step of several modules."""

    value: float
    expected: float  # the value with the mean of the error that is its own (scoring/expected_seconds.py)
    bound: float
    bound_by: str
    parts: dict[str, float]  # seconds of the mean rank, as `compute of llm`; they add up to the value
    binds: dict[str, float]  # seconds of the longest chain of tasks likewise: what is shorter shortens the step
    busiest_rank: int  # that idles least
    busiest_stages: dict[str, int]  # module → its stage on that rank
    loads: dict[str, ModuleLoad]  # by module
    peak_memory_gib: float  # of the fullest rank
    allowed_gib: float
    fullest_rank: int
    memory: dict[str, float]  # GiB on that rank by what they are, its modules' states apart
    packs: PackFill | None
    layouts: dict[str, str]  # by module, as screens show them and `fix.layouts` takes them


def joint_facts(plan: Plan, found: Score) -> JointFacts:
    """The breakdown of a plan of one step."""
    whole = whole_score(found).timeline
    busiest, stages = whole.busiest_rank(), found.plan_memory.stage_of
    return JointFacts(
        value=found.step_seconds,
        expected=found.step_seconds * plan_doubt(plan),
        bound=min(found.bound.seconds, found.step_seconds),
        bound_by=found.bound.by,
        parts=in_module_order(plan, mean_seconds(whole, part_name)),
        binds=in_module_order(plan, binding_parts(whole)),
        busiest_rank=busiest,
        busiest_stages={name: stages[name][busiest] for name in plan.layouts if busiest in stages[name]},
        loads={name: module_load(plan, whole, name) for name in plan.layouts},
        peak_memory_gib=found.peak_bytes / GIB,
        allowed_gib=found.plan_memory.allowed_bytes(found.fullest_rank) / GIB,
        fullest_rank=found.fullest_rank,
        memory=memory_parts(found),
        packs=pack_fill(plan),
        layouts={name: module_layout_text(plan, name, ask="") for name in plan.layouts},
    )


def part_name(part: TimePart) -> str:
    """What a part of a rank's time goes into."""
    if part.event is None:
        return "idle"
    if part.use == "wait":
        return f"waiting for {'outputs of ' if is_feed(part.event) else ''}{part.event.module}"
    return f"{'exchanges' if part.use == 'exchange' else work_name(part.event)} of {part.event.module}"


def work_name(event: TaskEvent) -> str:
    """What a task is."""
    if event.phase in PASSES:
        return "compute"
    if event.phase in ("send", "recv"):
        return "outputs" if is_feed(event) else "sends between stages"
    return {"update": "update", "offload": "copies to the host"}.get(event.phase, "gathers and reductions")


def binding_parts(timeline: Timeline) -> dict[str, float]:
    """Seconds of the critical path by what they go into."""
    found: defaultdict[str, float] = defaultdict(float)
    for event in timeline.critical_path():
        name = work_name(event)
        exposed = min(event.comm, event.seconds) if name == "compute" else 0.0
        found[f"{name} of {event.module}"] += event.seconds - exposed
        found[f"exchanges of {event.module}"] += exposed
    return {name: seconds for name, seconds in found.items() if seconds}


def in_module_order(plan: Plan, parts: dict[str, float]) -> dict[str, float]:
    """The parts by module, busy ones first."""
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
    each = {rank: seconds[timeline.representative_of(rank)] for rank in ranks}
    mean, fullest = sum(each.values()) / len(each), max(each, key=lambda rank: (each[rank], -rank))
    return ModuleLoad(
        ranks=ranks,
        micro_batches=sum(
            any(a.module == name and a.items for a in assignments(plan, micro_batch))
            for micro_batch in plan.steps[0].micro_batches
        ),
        mean=mean,
        most=each[fullest],
        uneven=each[fullest] / mean if mean else 1.0,
        fullest_rank=fullest,
    )


def memory_parts(found: Score) -> dict[str, float]:
    """GiB of the fullest rank at its peak: states of each module on it, and the rest by kind."""
    rank, memory = found.fullest_rank, found.plan_memory
    taken = memory.peak_footprint(rank, found.peak_bytes, found.tasks)
    stages = {name: of_rank[rank] for name, of_rank in memory.stage_of.items() if rank in of_rank}
    states = {
        f"states of {name}": float(memory.footprints[name][stage][memory.kind(rank)].states)
        for name, stage in stages.items()
    }
    kinds = [field.name for field in fields(taken) if field.name not in ("weights", "gradients", "optimizer", "update")]
    rest = {kind: float(getattr(taken, kind)) for kind in kinds}
    return {name: size / GIB for name, size in (states | rest).items() if size}
