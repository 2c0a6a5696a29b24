"""Plans for every pair of choices: what the layouts of a runtime do to each other shows in pairs, mostly.

A choice is a value for each of the axes below. `pairwise` takes, greedily and in a fixed order, possible choices until
every pair of values of two axes that is possible at all is in one of them.
"""

from collections.abc import Iterator
from functools import cache
from itertools import combinations, product
from random import Random

from planner.plan.plan_file import Plan
from planner.specs.base import with_fields
from planner.specs.layers import Decoder
from planner.specs.layers.components import Experts, LatentAttentionShape
from tests.runtime.training_worlds import DECODER, spread

Choice = dict[str, object]

MOE = Experts(experts=8, topk=2, ffn=16, shared_ffn=16, dense_layers=1)
MODELS: dict[str, Decoder] = {
    "dense": DECODER,
    "gpt": Decoder(
        layers=4, hidden=32, heads=8, ffn=48, vocab=64, gated=False, norm="layer", bias="all",
        positions="learned", max_positions=64, tied=True,
    ),
    "window": with_fields(DECODER, window=6, full_every=2, qk_norm=True, sinks=True),
    "latent": with_fields(
        DECODER, kv_heads=None, latent=LatentAttentionShape(q_rank=16, kv_rank=8, rope_dim=4, nope_dim=4, value_dim=6)
    ),
    "moe": with_fields(DECODER, moe=MOE),
    "balanced": with_fields(DECODER, moe=with_fields(MOE, balance=0.01, dense_layers=0, every=2, scores="sigmoid")),
}  # fmt: skip
AXES: dict[str, tuple[object, ...]] = {
    "model": tuple(MODELS),
    "pp": (1, 2),
    "tp": (1, 2),
    "split": ("none", "ulysses", "ring", "both"),
    "said": ("of groups", "of the layout"),  # the split
    "zero": (0, 1, 2, 3),
    "replica": (1, 2),
    "order": ("1f1b", "gpipe", "interleaved", "zb_h1"),
    "recompute": ("none", "selective", "full"),
    "experts": ("alone", "ep", "ep and etp", "gathered"),
    "rows": ("alike", "unequal"),
}
SPLITS = {
    "none": {},
    "ulysses": {"ulysses": 2},
    "ring": {"ring": 2},
    "both": {"ulysses": 2, "ring": 2},
}


def degree(choice: Choice) -> int:
    return {"none": 1, "both": 4}.get(str(choice["split"]), 2)


def cp(choice: Choice) -> int:
    return degree(choice) if choice["said"] == "of the layout" else 1


def possible(choice: Choice, size: int) -> bool:
    """Whether there is such a plan for this many ranks."""
    pp, tp, replica = choice["pp"], choice["tp"], choice["replica"]
    data, rest = divmod(size, pp * tp)  # type: ignore[operator]
    moe, staged = choice["model"] in ("moe", "balanced"), pp != 1
    return (
        not rest
        and data % degree(choice) == 0
        and data % (replica * cp(choice)) == 0  # type: ignore[operator]
        and (choice["said"] == "of groups" or choice["split"] != "none")
        and (moe or choice["experts"] == "alone")
        and (choice["experts"] != "ep and etp" or size // pp % 4 == 0)  # type: ignore[operator]
        and (staged or choice["order"] == "1f1b")
        and (choice["order"] != "zb_h1" or choice["recompute"] == "none")
        and (choice["rows"] == "alike" or data // degree(choice) > 1)
    )


def choices(size: int) -> list[Choice]:
    found = (dict(zip(AXES, values, strict=True)) for values in product(*AXES.values()))
    return [choice for choice in found if possible(choice, size)]


def pairs(choice: Choice) -> set[tuple[tuple[str, object], ...]]:
    return set(combinations(choice.items(), 2))


@cache
def pairwise(size: int, most: int | None = None, tries: int = 200) -> list[Choice]:
    """All, or the first so many: of each round's random tries the one with most pairs that nobody has yet."""
    numbers, everything = Random(0), choices(size)
    missing = set().union(*map(pairs, everything))
    taken = []
    while missing and len(taken) != most:
        tried = [numbers.choice(everything) for _ in range(tries)]
        best = max(tried, key=lambda choice: len(pairs(choice) & missing))
        if not pairs(best) & missing:  # what is left is rare: look for it
            best = next(choice for choice in everything if pairs(choice) & missing)
        taken.append(best)
        missing -= pairs(best)
    return taken


def plan_of_choice(choice: Choice, size: int) -> Plan:
    spec = MODELS[str(choice["model"])]
    pp, tp, replica = int(choice["pp"]), int(choice["tp"]), int(choice["replica"])  # type: ignore[call-overload]
    data = size // (pp * tp)
    split, spread_over = SPLITS[str(choice["split"])], cp(choice)
    degrees = {"pp": pp, "replica": replica, "dp": data // (replica * spread_over), "cp": spread_over, "tp": tp}
    if spread_over > 1:
        degrees["ulysses"], split = split.get("ulysses", 1), {}
    groups = [*groups_of(pp, data, tp, degree(choice))]
    rows = [groups] * 4
    if choice["rows"] == "unequal":
        rows = [groups, groups[:1], groups[1:], groups]
    layout = {
        "zero": choice["zero"],
        "recompute": choice["recompute"],
        **EXPERTS[str(choice["experts"])](pp, size),
    }
    if choice["experts"] == "gathered":
        layout["dispatch"] = "all_gather"
    order = None if choice["order"] in ("1f1b", "interleaved") else choice["order"]
    vpp = 2 if choice["order"] == "interleaved" else 1
    return spread(size, spec, **degrees, rows=rows, order=order, splits=dict.fromkeys(groups, split), vpp=vpp, **layout)


EXPERTS = {
    "alone": lambda pp, size: {},
    "ep": lambda pp, size: {"ep": min(8, size // pp)},
    "ep and etp": lambda pp, size: {"ep": 2, "etp": 2},
    "gathered": lambda pp, size: {"ep": 2},
}


def groups_of(pp: int, data: int, tp: int, degree: int) -> Iterator[tuple[int, ...]]:
    """Blocks of `degree` data-parallel places, on every stage, with all their parts of tp. The ranks: pp, data, tp."""
    for first in range(0, data, degree):
        places = range(first, first + degree)
        yield tuple((stage * data + place) * tp + part for stage in range(pp) for place in places for part in range(tp))


def name_of(choice: Choice) -> str:
    return " ".join(str(value) if isinstance(value, str) else f"{axis}{value}" for axis, value in choice.items())
