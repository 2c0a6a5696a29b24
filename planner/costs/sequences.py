"""The problem of placing sequences on groups of ranks: sizes, degrees, one time line per degree, the cap.

Built from a job before solving and from a plan's `uses` when verifying, by the same function: what is bounded is what
was solved.
"""

from dataclasses import dataclass

from planner.costs.feasible import require_places, require_states_fit
from planner.costs.lines import Line
from planner.costs.memory import token_cap
from planner.costs.pricing import Pricing
from planner.plan.model import Uses
from planner.plan.task import Phase, Task
from planner.specs.base import Layers, Ranks
from planner.specs.model import Module


@dataclass(frozen=True, slots=True)
class Sequences:
    """Items to place. Seconds of a group of degree d in a micro-batch: lines[d](Σs², Σs)."""

    sizes: dict[int, int]  # item → tokens
    ranks: int
    degrees: tuple[int, ...]  # rising
    lines: dict[int, Line]
    cap: int  # tokens a rank can hold in a micro-batch
    row_seconds: float  # every micro-batch costs this besides its slowest group
    step_seconds: float  # every step costs this once
    fixed: dict[int, int]  # item → the degree it must have

    def choices(self, item: int) -> list[int]:
        """Degrees that can hold an item, rising."""
        allowed = (self.fixed[item],) if item in self.fixed else self.degrees
        return [degree for degree in allowed if degree in self.lines and self.sizes[item] <= self.cap * degree]

    def seconds(self, degree: int, items: tuple[int, ...]) -> float:
        """What a group of this degree takes for these items, forward and backward."""
        sizes = [self.sizes[item] for item in items]
        return self.lines[degree](float(sum(size * size for size in sizes)), sum(sizes))

    @property
    def tokens(self) -> int:
        return sum(self.sizes.values())


def sequences(pricing: Pricing, module: str, uses: Uses, sizes: dict[int, int]) -> Sequences:
    """The problem for `sizes` (one step's items) under what the plan uses. Raises Infeasible, naming what binds."""
    layout, spec = pricing.layouts[module], pricing.models[module]
    device = uses.devices[uses.cluster.ranks[0].kind]
    if uses.limits.tokens_per_rank is None:
        require_states_fit(spec, layout, device, uses.limits)
    cap = token_cap(spec, pricing.prices.modules[module], layout, device, uses.limits)
    degrees = tuple(sorted({degree for degree in uses.degrees if degree <= len(layout.ranks)}))
    problem = Sequences(
        sizes=dict(sorted(sizes.items())),
        ranks=len(layout.ranks),
        degrees=degrees,
        lines={degree: degree_line(pricing, module, degree) for degree in degrees},
        cap=cap,
        row_seconds=row_seconds(pricing, module),
        step_seconds=step_seconds(pricing, module),
        fixed={item: fixed.degree for item, fixed in uses.fix.items.items() if item in sizes},
    )
    require_places(problem.sizes, problem.choices, problem.degrees, problem.fixed, problem.cap)
    return problem


def cheapest(problem: Sequences, item: int, per_rank: bool) -> float:
    """The least seconds (per rank), or rank-seconds, that an item takes on any of its degrees, without constants."""
    size = problem.sizes[item]
    seconds = (
        (degree, problem.lines[degree].quad * size * size + problem.lines[degree].lin * size)
        for degree in problem.choices(item)
    )
    return min(time if per_rank else degree * time for degree, time in seconds)


def degree_line(pricing: Pricing, module: str, degree: int) -> Line:
    """Both passes on an aligned block of `degree` ranks."""
    block = Ranks(pricing.layouts[module].ranks[:degree])
    return pricing.line(module, block, degree, True)[0] + pricing.line(module, block, degree, False)[0]


def row_seconds(pricing: Pricing, module: str) -> float:
    """What ZeRO-3 adds to every micro-batch: gathers in both passes, one reduction."""
    layout = pricing.layouts[module]
    if layout.zero < 3:
        return 0.0
    layers = Layers(range(pricing.models[module].layers))
    phases: tuple[Phase, ...] = ("gather", "sync")
    return sum(pricing.price(Task(module, layers, phase, 0, "all", layout.ranks)).value for phase in phases)


def step_seconds(pricing: Pricing, module: str) -> float:
    """What every step adds once: the update, and below ZeRO-3 the one reduction and the gather after the update."""
    layout = pricing.layouts[module]
    layers = Layers(range(pricing.models[module].layers))
    phases: list[Phase] = ["update"]
    if layout.zero < 3 and layout.mesh.get("dp", 1) > 1:
        phases += ["sync", "gather"] if layout.zero else ["sync"]
    return sum(pricing.price(Task(module, layers, phase, None, "all", layout.ranks)).value for phase in phases)


def allowed_degrees(module: Module, ranks: int, wished: tuple[int, ...]) -> tuple[int, ...]:
    """The job's degrees that exist on these ranks; powers of two that Ulysses alone can do when it names none."""
    if wished:
        return tuple(sorted({degree for degree in wished if degree <= ranks}))
    powers = [2**k for k in range(ranks.bit_length()) if 2**k <= ranks]
    return tuple(degree for degree in powers if ulysses_part(module, degree) == degree)


def split(module: Module, degree: int) -> dict[str, int]:
    """How a degree is split: Ulysses as far as the heads go, a ring for the rest."""
    ulysses = ulysses_part(module, degree)
    parts = {"ulysses": ulysses, "ring": degree // ulysses}
    return {name: size for name, size in parts.items() if size > 1} or {"ulysses": 1}


def ulysses_part(module: Module, degree: int) -> int:
    """The largest divisor of `degree` over which the heads spread evenly."""
    return next(d for d in range(degree, 0, -1) if degree % d == 0 and module.heads % d == 0)
