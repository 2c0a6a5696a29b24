"""Lower bounds for steps whose exchanges among replicas outlast the compute that could hide them.

The other bounds count only the least exposed part of each exchange, however little compute runs beside it.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from planner.costs import (
    CostLine,
    PackingProblem,
    Pricing,
    micro_batch_zero3_seconds,
    once_a_step_seconds,
    packing_table,
    pass_lines,
)


def exchange_problem(pricing: Pricing, module: str, problem: PackingProblem) -> PackingProblem | None:
    """A relaxed packing problem for micro-batches whose exchanges outlast their compute: no plan takes less.

    Such a micro-batch lasts C + G − w(F + B), with G seconds of exchange, of which compute hides a share w of its own
    seconds. Its longest forward F and backward B are at most φC + δ, whichever groups they are of, so it takes at least
    (1 − w(φ_F + φ_B))·C + G − w(δ_F + δ_B). None where there is nothing to hide, or no compute to hide it.
    """
    whole, window = micro_batch_zero3_seconds(pricing, module, (0.0, 0.0)), hiding_share(pricing, module)
    if whole <= problem.micro_batch_seconds or any(shape.line.rings for shape in problem.shapes):
        return None
    passes = [pass_lines(pricing, module, s.degree, problem.pools[s.pool].first) for s in problem.shapes]
    computed = packing_table(problem).least_rank_seconds / problem.ranks / problem.fewest_micro_batches
    shares = [pass_share([(each[which], each[0] + each[1]) for each in passes], computed) for which in (0, 1)]
    least = 1.0 - window * sum(share.share for share in shares)
    if least <= 0.0:
        return None
    shapes = tuple(replace(shape, line=shape.line * least) for shape in problem.shapes)
    return replace(
        problem, shapes=shapes, micro_batch_seconds=whole - window * sum(share.extra_seconds for share in shares)
    )


def step_exchange_seconds(pricing: Pricing, module: str, seconds: float) -> float:
    """Lower bound in seconds where ranks synchronise once per step and work for at least so many seconds.

    The exchanges hide behind the first forward and the last backward of the rank that has least of them, which are no
    more than all its work.
    """
    return (1.0 - hiding_share(pricing, module)) * seconds + once_a_step_seconds(pricing, module, 0.0)


def hiding_share(pricing: Pricing, module: str) -> float:
    """The ratio w: the share of the compute beside an exchange that can hide it."""
    kinds = pricing.device_kinds(pricing.layouts[module].ranks)
    window = max(pricing.module_pricing(module, kind).machine.dp_window for kind in kinds)
    return window * (1.0 - 1.0 / pricing.models[module].layers)


class PassShare(NamedTuple):
    """The most that one pass takes of forward and backward together: a share, and seconds beyond it."""

    share: float
    extra_seconds: float


def pass_share(passes: Sequence[tuple[CostLine, CostLine]], seconds: float) -> PassShare:
    """The share of one pass in both, whatever the group and its items.

    Either of the terms that grow with items, with the constants beyond it; or of everything, where neither pass is
    launched more often than the other. Returns the smaller one for groups that take so many seconds.
    """
    pairs = [(growing_terms(one), growing_terms(both)) for one, both in passes]
    parts = [mine / whole[what] for one, whole in pairs for what, mine in one.items() if mine > 0.0]
    grown, launched = max(parts, default=0.0), any(one.launches for one, _ in passes)
    waits = [sum(each.times * each.host for each in one.launches) for one, _ in passes]
    rest = (wait + one.const - grown * both.const for wait, (one, both) in zip(waits, passes, strict=True))
    constants = (one.const / both.const for one, both in passes if one.const > 0.0)
    found = PassShare(grown, max(0.0, *rest)), PassShare(max(grown, *constants, 0.5 if launched else 0.0), 0.0)
    return min(found, key=lambda each: each.share * seconds + each.extra_seconds)


def growing_terms(line: CostLine) -> dict[object, float]:
    """Coefficients of a line by the term that they multiply: token pairs, tokens, and pairs within each window."""
    found: dict[object, float] = {"quad": line.quad, "lin": line.lin}
    for each in line.windows:
        kind = each._replace(seconds=0.0)
        found[kind] = found.get(kind, 0.0) + each.seconds
    return found
