"""Short descriptions of layouts and items for screens, and layouts in the form that a job's `fix.layouts` has."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from planner.plan.mesh.even_stages import has_even_stages
from planner.plan.plan_file import ALL, Alternative, ExpertLayout, Layout, Plan, assignments
from planner.plan.task import PASS_PHASES
from planner.specs.base import Indices, Ranks, with_fields
from planner.specs.layers import Module
from planner.specs.parallelism import DEFAULT_RANK_ORDER, MESH_DIMS, Parallelism, decided_fields
from planner.specs.workload.items import UNITS_PER_TOKEN
from planner.units import percent, plural

ALWAYS_WRITTEN = ("dp", "zero", "recompute", "micro_batch")  # always written: a search would decide them otherwise
ALWAYS_SHOWN = (
    "tp", "cp", "ulysses", "pp", "vpp", "dp", "replica", "ep", "etp", "zero", "recompute", "micro_batch", "dtype",
)  # fmt: skip
NUMERICS = ("dtype", "gradients")
WRITTEN_IF_DECIDED = ("tp", "cp", "pp", "dp", "zero", "recompute", "micro_batch", "dtype")


def fixable_layout(layout: Layout) -> Parallelism:
    """Return a layout's fields but its ranks, in the form of a job's `fix.layouts`, without those of default value."""
    default = Layout(ranks=layout.ranks)
    fields = (
        name
        for name in Parallelism.__struct_fields__
        if name in ALWAYS_WRITTEN or (getattr(layout, name) != getattr(default, name) and not is_even(layout, name))
    )
    return Parallelism(**{name: getattr(layout, name) for name in fields})


def is_even(layout: Parallelism, name: str) -> bool:
    """Whether a field is that of stages, which are as even as they can be."""
    return name == "stages" and has_even_stages(layout)


def placed_layout(layout: Layout, size: int) -> Parallelism:
    """Return a layout as `fix.layouts` has it, with the module's ranks where they are not all of `size`."""
    fixed = fixable_layout(layout)
    return fixed if len(layout.ranks) == size else with_fields(fixed, ranks=layout.ranks)


def layout_text(layout: Parallelism, ranks: int | None = None) -> str:
    """Return `{tp: 8, cp: 1, pp: 4, dp: 2, zero: 1, recompute: none, micro_batch: 1, dtype: bf16}`: what a job's
    `fix.layouts` takes for the module. Other fields appear where they are not the default, and the module's ranks where
    they are not all of so many `ranks`.
    """
    text = flow_text(shown_fields(layout, ranks))
    if isinstance(layout, Layout) and layout.experts:
        text += f", experts of layers {', '.join(map(expert_text, layout.experts.items()))}"
    return text


def shown_fields(layout: Parallelism, ranks: int | None = None) -> dict[str, Any]:
    """Return the fields of a layout that screens show: those that always matter, then those of other value than the
    default, which of its ranks is all of so many.
    """
    default, shown = Layout(ranks=Ranks(range(ranks)) if ranks else Ranks((0,))), {}
    for name in (*ALWAYS_SHOWN, *(name for name in Parallelism.__struct_fields__ if name not in ALWAYS_SHOWN)):
        value = getattr(layout, name)
        plain = value == getattr(default, name)
        if name == "schedule":
            plain = value == (None if layout.schedule is None else "interleaved" if (layout.vpp or 1) > 1 else "1f1b")
        elif name == "rank_order":
            plain = not reorders_ranks(layout)
        elif name == "ranks":
            plain = plain or not ranks
        plain = plain or is_even(layout, name)
        if value is not None and (name in WRITTEN_IF_DECIDED or not plain):
            shown[name] = value
    return shown


def differing_text(layout: Parallelism, base: Parallelism) -> str:
    """Return `tp 8, pp 2, even stages`: the fields in which a layout is another one than a base, what changes numerics
    first, but for what follows from the others; empty where none is.
    """
    default = Layout(ranks=Ranks((0,)))
    own, other = (shown_fields(with_fields(default, **decided_fields(each))) for each in (layout, base))
    usual = {name: getattr(default, name) for name in {**own, **other}}
    changed = {
        name: own.get(name, value) for name, value in usual.items() if own.get(name, value) != other.get(name, value)
    }
    first = sorted(changed.items(), key=lambda each: each[0] not in NUMERICS)
    rest = ("dp", "ranks", *(("vpp", "stages") if (layout.pp or 1) == 1 else ()))
    return ", ".join(field_text(name, value) for name, value in first if name not in rest)


def field_text(name: str, value: Any) -> str:
    """Return a field of a layout in a word or two: what is written out for each layer is only named."""
    if name == "stages":
        return "uneven stages" if value else "even stages"
    if name == "recompute" and isinstance(value, dict):
        return "recompute in some layers"
    none = value == () or (isinstance(value, float) and not value)
    return f"no {name}" if none else f"{name} {flow_text(value)}"


def modules_text(plan: Plan) -> str:
    """Return a sentence on where each of several modules runs, how it is sharded, and when: `vision on all 32 GPUs,
    data parallel, for 2 micro-batches at once; llm on the same GPUs, tp 2, pp 2`.
    """
    told, places, last = [], dict[Ranks, str](), Ranks()
    for name, layout in plan.layouts.items():
        where = f"rank{'s' if len(layout.ranks) > 1 else ''} {layout.ranks}"
        if layout.ranks in places:
            where = "the same GPUs" if layout.ranks == last else f"the GPUs of {places[layout.ranks]}"
        elif len(layout.ranks) == plan.size:
            where = f"all {plan.size} GPUs"
        places[layout.ranks], last = name, layout.ranks
        told.append(f"{name} on {where}, {', '.join([sharding_text(layout), *moments_text(plan, name)])}")
    return "; ".join(told)


def sharding_text(layout: Layout) -> str:
    """Return `tp 2, pp 4`: the degrees of a module beside replicas; data parallel where it has none."""
    degrees = [f"{name} {value}" for name in ("tp", "cp", "pp", "ep") if (value := getattr(layout, name)) > 1]
    return ", ".join(degrees) or ("data parallel" if layout.dp * layout.replica > 1 else "whole")


def moments_text(plan: Plan, name: str) -> Iterator[str]:
    """Yield when an encoder runs in the first step, if not before each micro-batch that reads it."""
    step, features = plan.steps[0], plan.layouts[name].features
    targets = [edge.target for edge in plan.edges if edge.source == name]
    passes = sum(any(a.module == name for a in assignments(plan, cells)) for cells in step.micro_batches)
    if targets and passes < len(step.micro_batches):
        yield f"in {plural(passes, 'pass')}"
    ahead = max((step.ahead(name, target) for target in targets), default=0)
    if ahead:
        yield "in front of all" if ahead >= ALL else f"{plural(ahead, 'micro-batch')} ahead"
    if features != "computed":
        yield f"computed once, then read from the {features}"


def filled_gaps_text(plan: Plan) -> str:
    """Return which passes placements put into gaps, if any: `2 vit.F beside passes of llm, 1 vit.B beside llm.sync`."""
    placed = [(one.moved, one.anchor) for step in plan.steps for one in step.placements if one.fills]
    names = Counter(
        (f"{moved.module}.{moved.phase}", f"passes of {anchor.module}" if anchor.phase in PASS_PHASES else str(anchor))
        for moved, anchor in placed
    )
    return ", ".join(f"{count} {name} beside {anchor}" for (name, anchor), count in names.items())


def reorders_ranks(layout: Parallelism) -> bool:
    """Whether the dims of more than one rank are in another order than the default one."""
    ordered = [dim for dim in (layout.rank_order or DEFAULT_RANK_ORDER).split("-") if (getattr(layout, dim) or 1) > 1]
    return ordered != sorted(ordered, key=MESH_DIMS.index)


def flow_text(value: Any) -> str:
    """Return a value of a layout as YAML in one line."""
    if isinstance(value, dict):
        keys = {key: f"'{key}'" if "," in str(key) else key for key in value}  # a comma would end the entry
        return "{" + ", ".join(f"{keys[key]}: {flow_text(each)}" for key, each in value.items()) + "}"
    if isinstance(value, Indices):
        return f"'{value}'" if "," in str(value) else str(value)  # a comma would end the entry
    if isinstance(value, tuple):
        return "[" + ", ".join(map(flow_text, value)) + "]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def module_layout_text(plan: Plan, name: str, ask: str = "; planner predict PLAN asks about it") -> str:
    """Return the layout of a module, with its micro-batches and what of it is not trained; where groups vary, which
    there are, and how to `ask`.
    """
    layout, placed, frozen = plan.layouts[name], placed_groups(plan, name), frozen_text(plan.uses.models[name])
    if groups_vary(plan, name):
        sizes = sorted({len(plan.groups[group].ranks) for each in placed for group in each})
        shared = {key: value for key, value in shown_fields(layout, plan.size).items() if key != "micro_batch"}
        degrees = " and ".join(filter(None, [", ".join(map(str, sizes[:-1])), str(sizes[-1])]))
        ranks = "rank" if sizes == [1] else "ranks"
        states = f"states over {flow_text(shared)}{frozen}"
        return f"groups of {degrees} {ranks} by micro-batch, not one layout; {states}{ask}"
    counts = {count for each in placed for count in each.values()}
    text = layout_text(layout, plan.size)
    if not counts:
        return text + frozen
    most = plural(max(counts), "micro-batch")
    return f"{text}, {most if len(counts) == 1 else f'{min(counts)} to {most}'}{frozen}"


def frozen_text(module: Module) -> str:
    """Return what is trained of a module of which not everything is."""
    if module.adapters:
        parts = ", ".join(module.adapters.parts)
        return f", frozen but for adapters of rank {module.adapters.rank} beside {parts}"
    return {"all": "", "none": ", frozen", "projector": ", frozen but for its projector"}[str(module.trained)]


def placed_groups(plan: Plan, name: str) -> list[Counter[str]]:
    """Return, for each step, how many micro-batches each group has of a module."""
    return [
        Counter(
            a.group for micro_batch in step.micro_batches for a in assignments(plan, micro_batch) if a.module == name
        )
        for step in plan.steps
    ]


def groups_vary(plan: Plan, name: str) -> bool:
    """Whether micro-batches of a module differ in their groups or in how many sequences these take, so that its layout
    does not say how it runs.
    """
    layout = plan.layouts[name]
    used = {group for each in placed_groups(plan, name) for group in each}
    grouped = "groups" in plan.made.decided and name not in {edge.source for edge in plan.edges}
    return grouped or any(plan.groups[group].resolved_split(layout) != layout.default_split for group in used)


def alternative_text(tried: Alternative, chosen: str) -> str:
    """Return the layout or strategy of an alternative to a plan that the strategy `chosen` made."""
    if tried.groups or not tried.layouts:
        given = {name: getattr(tried, name) for name in ("zero", "sync", "recompute")}
        for layout in tried.layouts.values() if len(tried.layouts) == 1 else ():
            given["recompute"] = layout.recompute
        fixed = ", ".join(f"{name}: {flow_text(value)}" for name, value in given.items() if value is not None)
        return f"{tried.strategy} with {fixed}" if fixed else tried.strategy
    default = Layout(ranks=Ranks((0,)))
    texts = {}
    for name, each in tried.layouts.items():
        fields = shown_fields(with_fields(default, **decided_fields(each)))
        texts[name] = flow_text(fields | ({"ranks": each.ranks} if each.ranks else {}))
    layouts = "; ".join(f"{name}: {text}" if len(texts) > 1 else text for name, text in texts.items())
    return layouts if tried.strategy == chosen else f"{tried.strategy}: {layouts}"


def expert_text(entry: tuple[str | int, ExpertLayout]) -> str:
    """Return `4-7 ep 2 etp 2`: layers, and how their experts are placed."""
    layers, overrides = entry
    fields = ((name, getattr(overrides, name)) for name in ("ep", "etp", "dispatch"))
    return " ".join([str(layers), *(f"{name} {value}" for name, value in fields if value is not None)])


def items_text(plan: Plan, items: Iterable[tuple[str, int]], word: str = "item") -> str:
    """Return `3 items, 4,096 tokens`; of several modules `llm 3 items, 4,096 tokens; vit 1 item, 1,024 patches`, as
    their units are not to be added up.
    """
    of_module: dict[str, list[int]] = {}
    for module, item in items:
        of_module.setdefault(module, []).append(plan.uses.tokens(module, item))
    each = {
        module: f"{plural(len(sizes), word)}, {size_text(plan, module, sizes)}" for module, sizes in of_module.items()
    }
    return "; ".join(f"{module} {text}" if len(plan.layouts) > 1 else text for module, text in each.items())


def all_items_text(plan: Plan) -> str:
    """Return the numbers of all items of a plan and their sizes, as `items_text` does, and how many read others."""
    text = items_text(plan, ((module, item) for module in plan.layouts for item in plan.uses.items[module]))
    return "; ".join([text, *(mix_text(plan, target) for target in dict.fromkeys(edge.target for edge in plan.edges))])


def unused_ranks_text(plan: Plan) -> str:
    """Return which ranks have no module, as where a job fixes the LLM's ranks and encoders gain nothing from others;
    empty where all have one.
    """
    used = {rank for layout in plan.layouts.values() for rank in layout.ranks}
    unused = Ranks(rank for rank in range(plan.size) if rank not in used)
    return f"{'rank' if len(unused) == 1 else 'ranks'} {unused}: no module is there" if unused else ""


def left_out_texts(plan: Plan) -> Iterator[str]:
    """Yield what of the batches, and of the ranks, is not in the plan."""
    if unused := unused_ranks_text(plan):
        yield unused
    if plan.uses.dropped:
        yield f"{plural(len(plan.uses.dropped), 'sample')} dropped, longer or larger than the job allows"
    for name, items in plan.uses.left_out.items():
        yield f"{plural(len(items), 'item')} of {name} left out: their readers were dropped, or had no room"


def mix_text(plan: Plan, target: str) -> str:
    """Return `90.0 % of llm's items read others, and hold 95.2 % of its tokens`, images and sound among them."""
    items = plan.uses.items[target]
    edges = [edge for edge in plan.edges if edge.target == target]
    reading = {reader for edge in edges for readers in plan.feeds_of(edge).values() for reader in readers} & set(items)
    tokens = {item: plan.uses.tokens(target, item) for item in items}
    share = len(reading) / max(1, len(items))
    held = sum(tokens[item] for item in reading) / max(1, sum(tokens.values()))
    return f"{percent(share)} of {target}'s items read others, and hold {percent(held)} of its tokens"


def size_text(plan: Plan, module: str, sizes: Iterable[int]) -> str:
    """Return the sum of these sizes (tokens) in the module's input unit: `1,024 patches`."""
    unit = plan.uses.models[module].input_unit
    return f"{UNITS_PER_TOKEN[unit] * sum(sizes):,} {unit}"
