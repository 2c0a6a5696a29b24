"""Short descriptions of layouts and items for screens, and layouts in the form that a job's `fix.layouts` has."""

from collections.abc import Iterable, Iterator

from planner.plan.plan_file import Alternative, ExpertLayout, Layout, Plan
from planner.specs.base import Ranks
from planner.specs.parallelism import DEFAULT_RANK_ORDER, MESH_DIMS, Parallelism
from planner.specs.workload.items import UNITS_PER_TOKEN
from planner.units import plural

ALWAYS_WRITTEN = ("dp", "zero", "recompute", "micro_batch")  # always written: a search would decide them otherwise


def fixable_layout(layout: Layout) -> Parallelism:
    """Return a layout's fields but its ranks, in the form of a job's `fix.layouts`, without those of default value."""
    default = Layout(ranks=layout.ranks)
    fields = (
        name
        for name in Parallelism.__struct_fields__
        if name in ALWAYS_WRITTEN or is_non_default(layout, default, name)
    )
    return Parallelism(**{name: getattr(layout, name) for name in fields})


def is_non_default(layout: Layout, default: Layout, name: str) -> bool:
    """Whether a field has another value than the default."""
    return bool(getattr(layout, name) != getattr(default, name))


def layout_text(layout: Parallelism) -> str:
    """Return `tp 8 · pp 4 · dp 2 · zero 1 · recompute none · bf16`; other fields appear if they are not the default."""
    names = ("tp", "cp", "ulysses", "pp", "vpp", "ep", "etp", "dp", "replica")
    sizes = [(name, getattr(layout, name)) for name in names]
    parts = [f"{name} {size}" for name, size in sizes if (size or 1) > 1 or (name == "dp" and size)]
    parts += [f"zero {layout.zero}"] if layout.zero is not None else []
    parts += [f"recompute {recompute_text(layout)}"] if layout.recompute is not None else []
    return " · ".join([*parts, *([layout.dtype] if layout.dtype else []), *non_default_fields(layout)])


def alternative_text(tried: Alternative, chosen: str) -> str:
    """Return the layout or strategy of an alternative to a plan that the strategy `chosen` made."""
    if not tried.layouts:
        return f"{tried.strategy} with zero: {tried.zero}, sync: {tried.sync}"
    layouts = "; ".join(map(layout_text, tried.layouts.values()))
    return layouts if tried.strategy == chosen else f"{tried.strategy}: {layouts}"


def non_default_fields(layout: Parallelism) -> Iterator[str]:
    """Yield the fields that appear only with other values than the default."""
    ordered = [dim for dim in (layout.rank_order or DEFAULT_RANK_ORDER).split("-") if (getattr(layout, dim) or 1) > 1]
    if ordered != sorted(ordered, key=MESH_DIMS.index):
        yield f"rank order {'-'.join(ordered)}"
    if layout.sequence_parallel is False:
        yield "no sequence parallelism"
    default = Layout(ranks=Ranks((0,)))
    for name in ("offload", "gradients", "dispatch", "micro_batch"):
        if getattr(layout, name) not in (None, getattr(default, name)):
            yield f"{name.replace('_', '-')} {getattr(layout, name)}"
    if layout.schedule not in (None, "1f1b", "interleaved"):
        yield str(layout.schedule)
    if isinstance(layout, Layout) and layout.experts:
        yield f"experts {', '.join(map(expert_text, layout.experts.items()))}"
    if layout.overlap:
        yield f"overlap {', '.join(layout.overlap)}"


def expert_text(entry: tuple[str | int, ExpertLayout]) -> str:
    """Return `4-7 ep 2 etp 2`: layers, and how their experts are placed."""
    layers, overrides = entry
    fields = ((name, getattr(overrides, name)) for name in ("ep", "etp", "dispatch"))
    return " ".join([str(layers), *(f"{name} {value}" for name, value in fields if value is not None)])


def recompute_text(layout: Parallelism) -> str:
    """Return `full`, or `full 0-11, selective 12-15` where layers differ; other layers recompute nothing."""
    if not isinstance(layout.recompute, dict):
        return layout.recompute or "none"
    return ", ".join(f"{how} {layers}" for layers, how in layout.recompute.items()) or "none"


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
    """Return the numbers of all items of a plan and their sizes, as `items_text` does."""
    return items_text(plan, ((module, item) for module in plan.layouts for item in plan.uses.items[module]))


def size_text(plan: Plan, module: str, sizes: Iterable[int]) -> str:
    """Return the sum of these sizes (tokens) in the module's input unit: `1,024 patches`."""
    unit = plan.uses.models[module].input_unit
    return f"{UNITS_PER_TOKEN[unit] * sum(sizes):,} {unit}"
