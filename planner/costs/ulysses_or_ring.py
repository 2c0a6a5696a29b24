"""Chooses between Ulysses and ring attention: which sequence-parallel degrees a module can have, and their split.

Ulysses (arXiv 2309.14509) exchanges heads, so its degree divides the heads; a ring (arXiv 2310.01889) takes the rest.
"""

from planner.specs.layers import Module


def allowed_degrees(module: Module, ranks: int, wished: tuple[int, ...]) -> tuple[int, ...]:
    """The job's degrees that are possible on these ranks; where it names none, powers of two that Ulysses alone can do.
    Modules with state spaces, which scan whole documents, have degree 1 only.
    """
    most = 1 if module.unshardable_reason else ranks
    if wished:
        return tuple(sorted({degree for degree in wished if degree <= most}))
    powers = [2**k for k in range(most.bit_length()) if 2**k <= most]
    return tuple(degree for degree in powers if ulysses_degree(module, degree) == degree)


def split_degree(module: Module, degree: int) -> dict[str, int]:
    """The factors of a degree: Ulysses as far as the heads divide, a ring for the rest."""
    ulysses = ulysses_degree(module, degree)
    parts = {"ulysses": ulysses, "ring": degree // ulysses}
    return {name: size for name, size in parts.items() if size > 1} or {"ulysses": 1}


def ulysses_degree(module: Module, degree: int) -> int:
    """The largest divisor of `degree` that divides the heads."""
    return next(d for d in range(degree, 0, -1) if degree % d == 0 and module.heads % d == 0)
