"""The exact program of placing tables on a group, for few tables and ranks; the judge of the search.

With y_to: table t is cut in way o; x_top: a shard of it is on place p, a rank or a node:

    min C
    Σ_o y_to = 1                                     every table once
    Σ_p x_top = parts_o · y_to                       its shards on places of their own
    Σ_to s_to (y_to where it is on all, else x_top of the rank's places) ≤ C      for each rank
    Σ_to b_to (the same) ≤ room                      for each rank

Tables in host memory are left out.
"""

from collections import defaultdict

from planner.costs.tables import ON_ALL, ON_NODES, ShardingGroup, ShardOptions
from planner.programs import ProgramBuilder, solve
from planner.strategies.sharded_tables.placement import Placement

EFFORT = 4  # of the back end
PLACES = 120  # ways to cut all tables, times ranks
UNITS = 1000.0  # of the longest shard: solvers' tolerances are absolute


def small_enough(options: ShardOptions, group: ShardingGroup) -> bool:
    """Whether the program can be expected to be solved in a moment."""
    return len(options.table) * group.ranks <= PLACES


def exact_placement(options: ShardOptions, group: ShardingGroup, room: float) -> Placement | None:
    """The best placement on the devices; None where none fits."""
    b, unit = ProgramBuilder(), float(options.seconds.max()) / UNITS
    slowest = b.variable(name="C", cost=1.0)
    taken: dict[int, dict[int, int]] = defaultdict(dict)  # rank → variable → option
    places: dict[int, list[int]] = {}  # option → variables of its places, in their order; none where it is on all
    chosen_by: dict[int, tuple[int, int]] = {}  # variable → table and option
    for table in range(len(options.names)):
        of_table = {}
        for option in options.of(table):
            if options.host[option]:
                continue
            chosen = b.variable(0, 1, True, name=f"y{option}")
            of_table[chosen], chosen_by[chosen] = 1.0, (table, option)
            places[option], on_ranks = placed_shards(b, options, group, option, chosen)
            for rank, variable in on_ranks:
                taken[rank][variable] = option
        b.row(of_table, 1.0, 1.0, f"table {table}")
    for rank in range(group.ranks):
        seconds = {variable: float(options.seconds[option]) / unit for variable, option in taken[rank].items()}
        held = {variable: float(options.held[option]) / room for variable, option in taken[rank].items()}
        b.row({**seconds, slowest: -1.0}, upper=0.0, name=f"seconds {rank}")
        b.row(held, upper=1.0, name=f"bytes {rank}")
    solution = solve(b.build(), effort=EFFORT)
    if solution.values is None:
        return None
    best = Placement(options, group, room, 0.0)
    for variable, (table, option) in chosen_by.items():
        if solution.values[variable] > 0.5:
            best.put(table, option, tuple(at for at, x in enumerate(places[option]) if solution.values[x] > 0.5))
    return best


def placed_shards(
    b: ProgramBuilder, options: ShardOptions, group: ShardingGroup, option: int, chosen: int
) -> tuple[list[int], list[tuple[int, int]]]:
    """The variables of an option's places, and each with a rank that then has a shard."""
    cut, parts = int(options.cut[option]), float(options.parts[option])
    if cut in ON_ALL:
        return [], [(rank, chosen) for rank in range(group.ranks)]
    on_nodes = cut in ON_NODES
    places = [b.variable(0, 1, True, name=f"x{option},{at}") for at in range(group.nodes if on_nodes else group.ranks)]
    b.row({**dict.fromkeys(places, 1.0), chosen: -parts}, 0.0, 0.0, f"shards {option}")
    width = group.per_node if on_nodes else 1
    return places, [(at * width + each, variable) for at, variable in enumerate(places) for each in range(width)]
