"""Random legal plans of an encoder and a decoder that reads it, some with another between them, each spread in its own
way.
"""

from functools import cache
from itertools import chain, islice
from random import Random

from planner.plan.legal.plan_laws import violations
from planner.plan.plan_file import Edge, Group, Layout, Plan, Step, TaskPlacement, group_name
from planner.specs.base import Layers, Ranks
from planner.specs.layers import Decoder, Vit
from tests.meshes import meshed
from tests.plans import plan_of, timed, uses

LLM = Decoder(layers=4, hidden=32, heads=8, kv_heads=4, ffn=48, vocab=64)
VIT = Vit(layers=4, hidden=16, heads=8, ffn=24, patch=2, merge=2, out=32)
EYE = Vit(layers=4, hidden=32, heads=8, ffn=24, patch=2, out=32)
SPECS = {"llm": LLM, "vit": VIT, "eye": EYE}
MESHES = {
    4: ({"dp": 4}, {"pp": 2, "dp": 2}, {"dp": 2, "pp": 2}, {"pp": 4}, {"dp": 2, "tp": 2}, {"pp": 2, "tp": 2},
        {"replica": 2, "dp": 2}, {"dp": 2, "cp": 2}),
    2: ({"dp": 2}, {"pp": 2}, {"tp": 2}),
}  # fmt: skip
WHERE = [Ranks(range(4)), Ranks((0, 1)), Ranks((2, 3)), Ranks((1, 3))]


def layout(random: Random, ranks: Ranks) -> Layout:
    mesh = random.choice(MESHES[len(ranks)])
    pp = mesh.get("pp", 1)
    each = 4 // pp
    stages = tuple(Layers(range(s * each, (s + 1) * each)) for s in range(pp)) if pp > 1 else ()
    zero = random.choice([0, 1, 2, 3] if "replica" not in mesh else [1, 2, 3])
    return Layout(ranks=ranks, **meshed(mesh), stages=stages, zero=zero, dtype="float64")


def groups_of(random: Random, spread: Layout) -> list[Group]:
    """Of one micro-batch: data-parallel lines alone or together, and not always all of them."""
    inner = spread.tp * spread.pp
    lines: dict[tuple[int, ...], list[int]] = {}
    for place, rank in enumerate(spread.ranks):
        at, key = place, []
        for dim, size in reversed(spread.mesh.items()):
            at, index = divmod(at, size)
            key += [index] if dim in ("dp", "replica") else []
        lines.setdefault(tuple(key), []).append(rank)
    parts = [*lines.values()]
    random.shuffle(parts)
    if len(parts) > 1 and spread.cp == 1 and random.random() < 0.5:
        size = random.choice([2, len(parts)])
        parts = [[*chain.from_iterable(parts[at : at + size])] for at in range(0, len(parts), size)]
    parts = parts[: random.randrange(1, len(parts) + 1)]
    found = []
    for ranks in parts:
        degree = len(ranks) // inner
        kinds = ["ulysses", "ring"] if degree > 1 and spread.cp == 1 else []
        found.append(Group(ranks=Ranks(sorted(ranks)), split={random.choice(kinds): degree} if kinds else {}))
    return found


def drawn(seed: int) -> Plan:
    """It may be illegal: a placement behind what waits for it."""
    random = Random(seed)
    spread = {"llm": layout(random, random.choice(WHERE[:1] * 3 + WHERE)), "vit": layout(random, random.choice(WHERE))}
    count = random.randrange(2, 5)
    texts = {item: random.randrange(14, 30) for item in range(2 * count)}
    images = {item: 4 * random.randrange(1, 7) for item in range(random.randrange(1, 5))}
    items, feeds = {"llm": texts, "vit": images}, {"vit": read_by(random, images, texts)}
    if random.random() < 0.5:
        spread["eye"] = layout(random, random.choice(WHERE))
        items["eye"] = {item: random.randrange(20, 40) for item in range(random.randrange(1, 4))}
        items["llm"] = {item: size + 60 for item, size in texts.items()}
        feeds = {"vit>llm": feeds["vit"], "vit>eye": read_by(random, images, items["eye"])}
        feeds["eye"] = read_by(random, items["eye"], texts)
    rows, groups = placed(random, spread, {name: [*of_module] for name, of_module in items.items()}, count)
    order: dict = {"llm": random.choice(["1f1b", "gpipe", "zb_h1"])} if spread["llm"].pp > 1 else {}
    places = placements(random, rows, spread)
    sync = "micro_batch" if any(each.zero == 3 for each in spread.values()) else "step"
    step = Step(sync=sync, micro_batches=rows, order={**order, "place": places} if places else order)
    facts = uses(4, {name: SPECS[name] for name in spread}, items, feeds)
    return plan_of(4, facts, spread, groups, step, edges_of(spread, groups, rows, feeds))


def read_by(random: Random, items, readers) -> dict[int, tuple[int, ...]]:
    return {item: tuple(random.sample([*readers], min(len(readers), random.choice((1, 1, 2))))) for item in items}


def edges_of(spread, groups, rows, feeds) -> tuple[Edge, ...]:
    """With what follows from the readers' groups."""
    found = []
    for source, _, target in (key.partition(">") for key in feeds):
        reader = target or "llm"
        rings = any(
            groups[name].resolved_split(spread[reader]).ring > 1 for row in rows for name in row.get(reader, ())
        )
        found.append(Edge(source=source, target=reader, reshard="zigzag" if rings else "contiguous"))
    return tuple(found)


def placed(random: Random, spread: dict[str, Layout], items: dict[str, list[int]], count: int):
    """Rows of assignments, and their groups."""
    rows, groups = [{module: {} for module in items} for _ in range(count)], {}
    for module, of_module in items.items():
        random.shuffle(of_module)
        for number in range(count):
            share, cells = of_module[number::count], groups_of(random, spread[module])
            for at, group in enumerate(cells):
                name = f"{module}{number}.{group_name(group.ranks)}"
                if share[at :: len(cells)]:
                    groups[name], rows[number][module][name] = group, tuple(share[at :: len(cells)])
    return tuple({module: cells for module, cells in row.items() if cells} for row in rows), groups


def placements(random: Random, rows, spread: dict[str, Layout]) -> tuple[TaskPlacement, ...]:
    """Of forwards, whole and cut, and of backwards, whole and in two."""
    cells = [(name, number, at) for name in spread for number, row in enumerate(rows) for at in row.get(name, ())]
    cells = [cell for cell in cells if cell[0] != "llm"]
    found = []
    for module, number, name in random.sample(cells, min(len(cells), random.randrange(4))):
        phase = random.choice("FFBBIW")
        part = random.choice(["", "[0-1]", "[0]", "[2-3]"]) if phase == "F" and spread[module].pp == 1 else ""
        anchor = f"llm.{'F' if phase == 'F' else random.choice('FB')}{random.randrange(len(rows))}@0"
        how = {random.choice(["before", "after", "beside"]): anchor}
        found.append(TaskPlacement(do=f"{module}.{phase}{number}{part}", on=name, **how))
    return tuple(found)


def at_other_times(plan: Plan, seed: int) -> Plan:
    """The same, with forwards of its encoders ahead of their readers, and backwards at once."""
    random, feeding = Random(seed), {edge.source for edge in plan.edges}
    for name in (name for name in plan.layouts if name in feeding):
        plan = timed(plan, name, ahead=random.choice((0, 1, 2, None)), at_once=random.random() < 0.67)
    return plan


def legal(first: int, count: int) -> dict[int, Plan]:
    """By seed, the first so many from this seed on that can be."""
    drawings = ((seed, legal_or_none(seed)) for seed in range(first, first + 50 * count))
    return dict(islice(((seed, plan) for seed, plan in drawings if plan), count))


@cache
def legal_or_none(seed: int) -> Plan | None:
    """Kept: several tests ask for the same."""
    plan = drawn(seed)
    return None if any(True for _ in violations(plan)) else plan
