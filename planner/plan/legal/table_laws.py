"""Laws of embedding tables: each is placed once in every group, on ranks that the group has, in a way it can be cut."""

from collections.abc import Iterator

from planner.plan.embeddings import ON_ALL, Embeddings, TablePlacement, possible_cuts, ranks_in_node
from planner.plan.legal.violation import Violation
from planner.plan.plan_file import Plan
from planner.specs.hardware.cluster import device_of_rank
from planner.specs.tables import Table


def table_laws(plan: Plan) -> Iterator[Violation]:
    """The tables that a plan uses are those that it places."""
    placed = plan.embeddings
    if placed is None:
        if plan.uses.tables:
            message = f"{len(plan.uses.tables)} tables are used, and the plan places none"
            yield Violation("uses.tables", message, "add embeddings, or leave the tables out")
        return
    if plan.size % placed.groups:
        message = f"{plan.size} ranks are not {placed.groups} equal groups"
        yield Violation("embeddings.groups", message, "a number that divides the ranks")
        return
    for name in plan.uses.tables:
        if name not in placed.tables:
            yield Violation("embeddings.tables", f"the table `{name}` is placed nowhere", "place it")
    for name, each in placed.tables.items():
        where = f"embeddings.tables.{name}"
        if name not in plan.uses.tables:
            yield Violation(where, f"no table is called `{name}`", "use its name in uses.tables")
        else:
            yield from (Violation(where, *fault) for fault in faults(plan, placed, plan.uses.tables[name], each))


def faults(plan: Plan, placed: Embeddings, table: Table, each: TablePlacement) -> Iterator[tuple[str, str]]:
    """What is wrong with where one table is, and the fix."""
    ranks = plan.size // placed.groups
    per_node = ranks_in_node(plan.size, plan.ranks[0].per_node, placed.groups, placed.replicas)
    host = bool(plan.uses.devices[device_of_rank(plan.uses.cluster, 0)].host_gb_per_s)
    cuts = possible_cuts(table, ranks, per_node, host)
    if (each.cut, each.parts, each.cache) not in cuts or bool(each.at) == (each.cut in ON_ALL):
        cached = f" with a cache of {each.cache:g}" if each.cache else ""
        able = (f"{cut} in {n}" if n > 1 else f"{cut} with {cache:g}" if cache else cut for cut, n, cache in cuts)
        yield f"no such group cuts it as `{each.cut}` at {len(each.at)} places{cached}", f"one of {', '.join(able)}"
        return
    places = ranks // per_node if each.cut in ("node_rows", "grid") else ranks
    if each.at and each.at[-1] >= places:
        what = "nodes" if places < ranks else "ranks"
        yield f"it is at {each.at}, and a group has {what} 0-{places - 1}", "places of the group"
