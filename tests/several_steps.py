"""Random plans of an encoder and a decoder that reads it, of several steps, some without an image: each module spread
in its own way, by any degrees and ZeRO stage, and a loss weighted in any way.
"""

from functools import cache
from itertools import count
from random import Random

from planner.plan.legal.plan_laws import violations
from planner.plan.plan_file import Layout, Plan, Step
from planner.specs.base import Layers, Ranks, with_fields
from tests.meshes import meshed
from tests.plans import plan_of, uses
from tests.several import SPECS, edges_of, placed, placements, read_by

MESHES = {
    4: ({"dp": 4}, {"pp": 2, "dp": 2}, {"dp": 2, "pp": 2}, {"pp": 4}, {"dp": 2, "tp": 2}, {"tp": 2, "dp": 2},
        {"pp": 2, "tp": 2}, {"tp": 4}, {"replica": 2, "dp": 2}, {"dp": 2, "cp": 2}, {"cp": 4}, {"cp": 2, "tp": 2},
        {"pp": 2, "cp": 2}),
    3: ({"dp": 3}, {"cp": 3}),
    2: ({"dp": 2}, {"pp": 2}, {"tp": 2}, {"cp": 2}, {"replica": 2}),
    1: ({"dp": 1},),
}  # fmt: skip
EVERYWHERE = tuple(range(4))
PLACES = (  # ranks of the encoder and of the decoder: the same, apart, overlapping, one within the other
    (EVERYWHERE, EVERYWHERE), (EVERYWHERE, EVERYWHERE), (EVERYWHERE, EVERYWHERE), ((0, 1), EVERYWHERE),
    ((0, 1), (2, 3)), ((2, 3), (0, 1)), ((3,), (0, 1, 2)), ((0,), (1, 2, 3)), ((0, 1, 2), (1, 2, 3)),
    ((1, 3), EVERYWHERE), (EVERYWHERE, (0, 1)), ((0, 1, 2), EVERYWHERE), ((2,), EVERYWHERE),
)  # fmt: skip
LOSSES = ("token", "sample", "square_root")


def layout(random: Random, ranks: tuple[int, ...]) -> Layout:
    mesh = random.choice(MESHES[len(ranks)])
    pp, ring = mesh.get("pp", 1), mesh.get("cp", 1) == 3 or random.random() < 0.5
    stages = tuple(Layers(range(s * 4 // pp, (s + 1) * 4 // pp)) for s in range(pp)) if pp > 1 else ()
    zero = random.choice([0, 1, 2, 3] if "replica" not in mesh else [1, 2, 3])
    ulysses = 1 if ring else mesh.get("cp", 1)
    return Layout(
        ranks=Ranks(ranks), **meshed(mesh), ulysses=ulysses, stages=stages, zero=zero, dtype="float64",
        recompute=random.choice(["none", "none", "full", "selective"]),
    )  # fmt: skip


def drawn(seed: int) -> Plan:
    """It may be illegal."""
    random = Random(seed)
    spread, order = layouts(random)
    items: dict = {"llm": {}, "vit": {}}
    feeds: dict = {}
    drawings = [batch(random, items, feeds) for _ in range(random.randrange(1, 4))]
    sync = "micro_batch" if any(each.zero == 3 for each in spread.values()) else "step"
    steps, groups = [], {}
    for number, (texts, shown, rows) in enumerate(drawings):
        placed_rows, of_step = renamed(f"s{number}.", *placed(random, spread, {"llm": [*texts], "vit": [*shown]}, rows))
        placed_rows = tuple(row for row in placed_rows if row)
        groups |= of_step
        said: dict = {"llm": order} if spread["llm"].pp > 1 else {}
        places = placements(random, placed_rows, spread) if random.random() < 0.3 else ()
        steps.append(Step(sync=sync, micro_batches=placed_rows, order={**said, "place": places} if places else said))
    facts = uses(4, {name: SPECS[name] for name in spread}, items, {"vit": feeds})
    facts = with_fields(facts, loss=random.choice(LOSSES))
    rows = [row for step in steps for row in step.micro_batches]
    plan = plan_of(4, facts, spread, groups, steps[0], edges_of(spread, groups, rows, {"vit": feeds}))
    return with_fields(plan, steps=tuple(steps))


def layouts(random: Random) -> tuple[dict[str, Layout], str]:
    """Of both modules, and the order of the decoder's passes where it has stages."""
    of_vit, of_llm = random.choice(PLACES)
    spread = {"llm": layout(random, of_llm), "vit": layout(random, of_vit)}
    if random.random() < 0.2 and min(len(of_vit), len(of_llm)) > 1:
        spread["vit"] = with_fields(spread["vit"], zero=spread["llm"].zero)
    order = random.choice(["1f1b", "gpipe", "zb_h1"])
    if order == "zb_h1" and spread["llm"].pp > 1:
        spread["llm"] = with_fields(spread["llm"], recompute="none")
    return spread, order


def batch(random: Random, items: dict, feeds: dict) -> tuple[dict[int, int], dict[int, int], int]:
    """Texts and images of one more step, which are added to `items` and `feeds`; and how many micro-batches it has."""
    texts = {len(items["llm"]) + n: random.randrange(14, 30) for n in range(random.randrange(2, 7))}
    images = random.choice((0, 1, 2, 4))
    shown = {len(items["vit"]) + n: 4 * random.randrange(1, 4) for n in range(images)}
    items["llm"] |= texts
    items["vit"] |= shown
    feeds |= read_by(random, shown, texts)
    return texts, shown, random.randrange(1, 4)


def renamed(prefix: str, rows, groups):
    """Groups of another step have other names."""
    rows = tuple(
        {module: {prefix + name: of for name, of in cells.items()} for module, cells in row.items()} for row in rows
    )
    return rows, {prefix + name: group for name, group in groups.items()}


@cache
def legal_and_refused(first: int, wanted: int) -> tuple[dict[int, Plan], dict[int, str]]:
    """By seed, the first so many legal plans from this seed on; and of those before, why they are refused."""
    found: dict[int, Plan] = {}
    refused: dict[int, str] = {}
    for seed in count(first):
        if len(found) == wanted:
            return found, refused
        plan = drawn(seed)
        faults = list(violations(plan))
        if faults:
            refused[seed] = faults[0].message
        else:
            found[seed] = plan
    raise AssertionError("count has no end")
