"""Cards of each module where all are apart with equal dp, tp 1 and cp 1: the problem of MindSpeed's multimodal search.

A replica has pp_i cards of module i. A micro-batch takes a stage of it t_i / pp_i seconds, and the slowest stage is
what each of the batch / dp micro-batches of a replica takes:

    min over dp, pp   (batch / dp) · max_i t_i / pp_i    where  dp · Σ pp_i ≤ cards,  least_i ≤ pp_i ≤ most_i

`least` is what memory asks for. For each dp a card more goes to the slowest stage as long as there are any: no module
needs fewer cards for the same time, so that this is exact.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil


@dataclass(frozen=True, slots=True)
class ModuleApart:
    """One module, for the search."""

    seconds: float  # of a micro-batch of one sample, on one card
    most: int  # cards of a replica: its layers
    least: int = 1


@dataclass(frozen=True, slots=True)
class EqualDp:
    """Replicas of every module, and the cards of each module in one."""

    seconds: float  # of a step: micro-batches times the slowest stage
    dp: int
    cards: tuple[int, ...]


def equal_dp_layouts(modules: Sequence[ModuleApart], cards: int, batch: int, every: bool = False) -> list[EqualDp]:
    """The best of each dp up to the batch, the quickest first, of equals that of fewer replicas; `every`: only those
    that use every card. Empty where none has the cards that memory asks for.
    """
    found = []
    for dp in range(1, min(cards, batch) + 1):
        shares = None if every and cards % dp else level_shares(modules, cards // dp)
        if shares and not (every and sum(shares) * dp < cards):
            slowest = max(each.seconds / share for each, share in zip(modules, shares, strict=True))
            found.append(EqualDp(ceil(batch / dp) * slowest, dp, shares))
    return sorted(found, key=lambda each: (each.seconds, each.dp))


def level_shares(modules: Sequence[ModuleApart], cards: int) -> tuple[int, ...] | None:
    """The cards of each module in one replica, so that its slowest stage is the quickest; those that are left go on to
    the slowest that has layers for them. None where memory asks for more.
    """
    shares = [each.least for each in modules]
    if sum(shares) > cards or any(each.least > each.most for each in modules):
        return None
    for _ in range(cards - sum(shares)):
        able = [place for place, each in enumerate(modules) if shares[place] < each.most]
        if not able:
            break
        slowest = max(able, key=lambda place: (modules[place].seconds / shares[place], -place))
        shares[slowest] += 1
    return tuple(shares)
