"""Why a job is infeasible: the limit that binds, and the smallest change that would relax it."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from planner.costs.memory.allowed_memory import allowed_bytes
from planner.costs.memory.token_caps import activation_bytes_left, idle_footprint
from planner.errors import Infeasible
from planner.plan.plan_file import Layout
from planner.specs.framework.memory_coefficients import MemoryCoefficients
from planner.specs.hardware.profile import Device
from planner.specs.job import Limits
from planner.specs.layers import Module
from planner.units import GIB

DOUBLINGS = tuple(2**power for power in range(1, 17))  # times as many ranks as there are


def require_states_fit(
    module: Module, layout: Layout, device: Device, limits: Limits, accounting: MemoryCoefficients, kind: str = ""
) -> None:
    """Raises Infeasible where weights, gradients and optimizer states leave no memory for a single token.

    `kind`: the device kind, where the cluster has several.
    """
    if activation_bytes_left(module, layout, device, limits, accounting) > 0:
        return
    taken = max(float(idle_footprint(module, layout, device, accounting, stage).total) for stage in range(layout.pp))
    most = allowed_bytes(device, limits, accounting)
    changes = [f"a device with {device.memory_gib * taken / most:.0f} GiB"] if most > 0 else []
    ranks = enough_ranks(module, layout, device, limits, accounting)
    if ranks:
        changes.insert(0, f"{ranks} ranks")
    if layout.zero < 3:
        changes.insert(0, f"zero: {layout.zero + 1}")
    raise Infeasible(
        f"states, context and buffers take {taken / GIB:.1f} GiB of each rank, "
        f"{f'and one of {kind}' if kind else 'which'} may use {max(most, 0.0) / GIB:.1f} GiB",
        where="memory (what binds)",
        fix=", or ".join(changes) or "a smaller memory_margin",
    )


def enough_ranks(
    module: Module, layout: Layout, device: Device, limits: Limits, accounting: MemoryCoefficients
) -> int | None:
    """The next doubling of the number of ranks over which the states fit; None where sharding does not help."""

    counts = map(len(layout.ranks).__mul__, DOUBLINGS)
    fitting = (each for each in counts if activation_bytes_left(module, layout, device, limits, accounting, each) > 0)
    return next(fitting, None)


class PoolLimits(NamedTuple):
    """Groups that are possible on one pool of ranks."""

    kind: str
    ranks: int
    degrees: tuple[int, ...]
    cap: int  # tokens that a rank can hold

    def widest(self, degree: int | None) -> int:
        """The largest degree of a group for an item that is fixed to `degree`, or to none; 0: there is none."""
        return max((each for each in self.degrees if degree in (None, each)), default=0)


def require_groups_hold_items(
    sizes: dict[int, int], choices: Callable[[int], list[int]], fixed: dict[int, int], pools: Sequence[PoolLimits]
) -> None:
    """Raises Infeasible where a sequence fits into none of the groups that it may have."""
    degrees = sorted({degree for pool in pools for degree in pool.degrees})
    if not degrees:
        raise Infeasible(
            "no allowed degree fits on the ranks", where="degrees (what binds)", fix="allow smaller degrees"
        )
    for item in sorted(sizes, key=lambda i: (-sizes[i], i)):
        if choices(item):
            continue
        if item in fixed and fixed[item] not in degrees:
            message = f"item {item} is fixed to degree {fixed[item]}, and {', '.join(map(str, degrees))} are allowed"
            raise Infeasible(message, where="fix.items (what binds)", fix="allow that degree, or fix another")
        raise too_long_error(item, sizes[item], fixed.get(item), pools)


def too_long_error(item: int, size: int, degree: int | None, pools: Sequence[PoolLimits]) -> Infeasible:
    """The error for a sequence that is too long, with the largest group that it may have. A group lies within
    one pool.
    """
    pool = max((pool for pool in pools if pool.widest(degree)), key=lambda pool: pool.widest(degree) * pool.cap)
    widest, needed = pool.widest(degree), -(-size // pool.cap) if pool.cap > 0 else 0
    message = f"item {item} has {size} tokens, and {widest} ranks"
    change = f"a degree of {needed}" if needed <= pool.ranks else f"{needed} ranks"
    if len(pools) > 1:
        message += f" of {pool.kind}"
        change += f" {'on' if needed <= pool.ranks else 'of'} {pool.kind}"
    message += f" hold {max(0, widest * pool.cap)}"
    if len(pools) > 1 and size <= min(each.cap for each in pools) * sum(each.ranks for each in pools):
        message += "; all ranks together would hold it, but a group lies within one kind of them"
    return Infeasible(
        message,
        where="tokens a rank can hold (what binds)",
        fix=f"{-(-size // widest)} tokens per rank, {change}, or workload.max_tokens: {widest * pool.cap}"
        if pool.cap > 0
        else "more memory per rank, or less model",
    )
