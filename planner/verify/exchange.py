"""Lower bounds for steps whose exchanges among replicas outlast what compute could hide of them.

The other bounds take each exchange for what stands alone of it, however little runs beside it.
"""

from dataclasses import replace

from planner.costs.compute.lines import Line
from planner.costs.pricing import Pricing
from planner.costs.step.sequences import Sequences, pass_lines, row_seconds, step_seconds


def rows_by_exchange(pricing: Pricing, module: str, problem: Sequences) -> Sequences | None:
    """A problem that no plan of this one takes less than, for micro-batches whose exchanges outlast their compute.

    Such a micro-batch lasts C + G − w(F + B), with G seconds of exchange of which compute hides a share w of itself;
    its longest forward F and backward B are at most φC and βC, where φ and β are the largest shares of any group. So
    it takes (1 − w(φ + β))·C + G at least. None where there is nothing to hide, or nothing that could hide it.
    """
    whole, least = row_seconds(pricing, module, (0.0, 0.0)), unhiding(pricing, module, problem)
    if whole <= problem.row_seconds or least is None:
        return None
    shapes = tuple(replace(shape, line=shape.line * least) for shape in problem.shapes)
    return replace(problem, shapes=shapes, row_seconds=whole)


def step_by_exchange(pricing: Pricing, module: str, seconds: float) -> float:
    """The same of ranks that meet once a step, who work for so many seconds at least: their exchanges hide behind the
    first forward and the last backward of whichever rank has least of them, which are no more than all its work.
    """
    return (1.0 - hiding(pricing, module)) * seconds + step_seconds(pricing, module, 0.0)


def unhiding(pricing: Pricing, module: str, problem: Sequences) -> float | None:
    """1 − w(φ + β), if that is more than nothing, and groups' passes have such shares."""
    if any(shape.line.rings for shape in problem.shapes):
        return None
    passes = [pass_lines(pricing, module, s.degree, problem.pools[s.pool].first) for s in problem.shapes]
    forward, backward = (max(largest_share(each[which], each[0] + each[1]) for each in passes) for which in (0, 1))
    least = 1.0 - hiding(pricing, module) * (forward + backward)
    return least if least > 0.0 else None


def hiding(pricing: Pricing, module: str) -> float:
    """w: of the compute beside an exchange, the share that can hide it."""
    kinds = pricing.kinds(pricing.layouts[module].ranks)
    window = max(pricing.basis(module, kind).machine.window for kind in kinds)
    return window * (1.0 - 1.0 / pricing.models[module].layers)


def largest_share(one: Line, both: Line) -> float:
    """Of a pass in both, whatever the items."""
    parts = [(getattr(one, name), getattr(both, name)) for name in ("quad", "lin", "const")]
    parts += [(each.seconds, 2.0 * each.seconds) for each in one.windows]  # backward's are longer
    parts += [(1.0, 2.0)] if one.launches else []  # the host takes as long for either pass
    return max((mine / whole for mine, whole in parts if whole > 0), default=1.0)
