"""Passes of towers as the placer finds them: each tower's samples in one piece or two, on the replicas it scales to.

It is asked twice: for passes alone, as if nothing were exchanged; and with each piece as long as its tower's exchange
on as many replicas besides, so that a tower has few of them, and is split only where that is worth another exchange.
"""

from collections.abc import Iterator, Mapping, Sequence

from planner.costs import TowerExchange, TowerSeconds
from planner.placer import Allocation, Lanes, Placed, Work, allocate, place
from planner.strategies.waves.wave_plan import TowerPass


def wave_passes(exchange: TowerExchange, lanes: Lanes, effort: int) -> Iterator[list[TowerPass]]:
    """Passes as if nothing were exchanged, and with exchanges; `effort`: pieces that each search may place."""
    towers = exchange.towers
    for counted in (0.0, 1.0):
        works = [tower_work(exchange, at, lanes.count, counted) for at in range(len(towers))]
        found = place(allocate(works, lanes, effort), lanes, effort // 4)
        assert found, "towers without bytes find room"
        yield passes_of({tower.name: tower for tower in towers}, found.placed)


def tower_work(exchange: TowerExchange, at: int, most: int, counted: float = 0.0) -> Work:
    """A tower as work that can be divided, on up to so many replicas; `counted`: the share of its exchange that is."""
    tower = exchange.towers[at]
    exchanged = {width: counted and counted * exchange.on_first(at, width) for width in tower.widths(most)}

    def seconds(width: int, samples: int) -> float:
        return tower.seconds(width, samples) + exchanged[width]

    return Work(tower.name, len(tower.samples), seconds, (*exchanged,))


def passes_of(towers: Mapping[str, TowerSeconds], placed: Sequence[Placed]) -> list[TowerPass]:
    """Passes with their samples: a tower's in the order of its pieces, those of one task together."""
    passes, taken = list[TowerPass](), dict.fromkeys(towers, 0)
    for each in sorted(placed, key=lambda each: (each.start, each.piece.name)):
        name, first = each.piece.work, taken[each.piece.work]
        samples = [*towers[name].samples][first : first + each.piece.items]
        taken[name] += each.piece.items
        passes.append(TowerPass(name, tuple(samples), each.lanes, each.start))
    return passes


def malleable_optimum(exchange: TowerExchange, lanes: Lanes) -> float:
    """Seconds of the malleable optimum, all towers side by side, on any real numbers of replicas."""
    works = [tower_work(exchange, at, lanes.count) for at in range(len(exchange.towers))]
    return Allocation.of(works, lanes.count).seconds_of_levels
