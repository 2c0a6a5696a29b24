"""How modules are laid out, and what they work on: as a person says it, and as a job would fix it."""

from collections.abc import Iterable, Iterator

from planner.plan.model import ExpertLayout, Instead, Layout, Plan
from planner.specs.base import Ranks
from planner.specs.items import UNITS
from planner.specs.parallelism import DIMS, RANK_ORDER, Parallelism
from planner.units import plural

ALWAYS = ("dp", "zero", "recompute", "micro_batch")  # said of every layout: a job that leaves them out means others


def spoken(layout: Layout) -> Parallelism:
    """What a layout decides beside its ranks, as a job's `fix.layouts` takes it, without what is as usual."""
    usual = Layout(ranks=layout.ranks)
    fields = (name for name in Parallelism.__struct_fields__ if name in ALWAYS or differs(layout, usual, name))
    return Parallelism(**{name: getattr(layout, name) for name in fields})


def differs(layout: Layout, usual: Layout, name: str) -> bool:
    return bool(getattr(layout, name) != getattr(usual, name))


def layout_text(layout: Parallelism) -> str:
    """`tp 8 · pp 4 · dp 2 · zero 1 · recompute none · bf16`: but for dp and these, what is as usual is left out."""
    names = ("tp", "cp", "ulysses", "pp", "vpp", "ep", "etp", "dp", "replica")
    sizes = [(name, getattr(layout, name)) for name in names]
    said = [f"{name} {size}" for name, size in sizes if (size or 1) > 1 or (name == "dp" and size)]
    said += [f"zero {layout.zero}"] if layout.zero is not None else []
    said += [f"recompute {recompute_text(layout)}"] if layout.recompute is not None else []
    return " · ".join([*said, *([layout.dtype] if layout.dtype else []), *unusual(layout)])


def way_text(tried: Instead, chosen: str) -> str:
    """Another way than the plan's, which the strategy `chosen` made."""
    if not tried.layouts:
        return f"{tried.strategy} with zero: {tried.zero}, sync: {tried.sync}"
    said = "; ".join(map(layout_text, tried.layouts.values()))
    return said if tried.strategy == chosen else f"{tried.strategy}: {said}"


def unusual(layout: Parallelism) -> Iterator[str]:
    """What is said only where it is not as usual."""
    ordered = [dim for dim in (layout.rank_order or RANK_ORDER).split("-") if (getattr(layout, dim) or 1) > 1]
    if ordered != sorted(ordered, key=DIMS.index):
        yield f"rank order {'-'.join(ordered)}"
    if layout.sequence_parallel is False:
        yield "norms on all of tp"
    usual = Layout(ranks=Ranks((0,)))
    for name in ("offload", "gradients", "dispatch", "micro_batch"):
        if getattr(layout, name) not in (None, getattr(usual, name)):
            yield f"{name.replace('_', '-')} {getattr(layout, name)}"
    if layout.schedule not in (None, "1f1b", "interleaved"):
        yield str(layout.schedule)
    if isinstance(layout, Layout) and layout.experts:
        yield f"experts {', '.join(map(expert_text, layout.experts.items()))}"
    if layout.overlap:
        yield f"overlap {', '.join(layout.overlap)}"


def expert_text(said: tuple[str | int, ExpertLayout]) -> str:
    """`4-7 ep 2 etp 2`."""
    layers, own = said
    each = ((name, getattr(own, name)) for name in ("ep", "etp", "dispatch"))
    return " ".join([str(layers), *(f"{name} {value}" for name, value in each if value is not None)])


def recompute_text(layout: Parallelism) -> str:
    """`full`, or `full 0-11, selective 12-15` where layers differ: what is not named recomputes nothing."""
    if not isinstance(layout.recompute, dict):
        return layout.recompute or "none"
    return ", ".join(f"{how} {layers}" for layers, how in layout.recompute.items()) or "none"


def items_text(plan: Plan, items: Iterable[tuple[str, int]], word: str = "item") -> str:
    """`3 items, 4,096 tokens`; of several modules `llm 3 items, 4,096 tokens; vit 1 item, 1,024 patches`: what one of
    them reads is not to be added to what another does.
    """
    of_module: dict[str, list[int]] = {}
    for module, item in items:
        of_module.setdefault(module, []).append(plan.uses.tokens(module, item))
    each = {
        module: f"{plural(len(sizes), word)}, {read_text(plan, module, sizes)}" for module, sizes in of_module.items()
    }
    return "; ".join(f"{module} {text}" if len(plan.layouts) > 1 else text for module, text in each.items())


def work_text(plan: Plan) -> str:
    """All that a plan works on."""
    return items_text(plan, ((module, item) for module in plan.layouts for item in plan.uses.items[module]))


def read_text(plan: Plan, module: str, sizes: Iterable[int]) -> str:
    """Items of these tokens in the unit of what their module reads."""
    unit = plan.uses.models[module].reads
    return f"{UNITS[unit] * sum(sizes):,} {unit}"
