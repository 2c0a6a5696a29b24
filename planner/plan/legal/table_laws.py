"""Laws of embedding tables: each is placed once in every group, on ranks that the group has, in a way it can be cut."""

from collections.abc import Iterator

from planner.plan.embeddings import Embeddings, TablePlacement, ranks_in_node
from planner.plan.legal.violation import Violation
from planner.plan.plan_file import Plan
from planner.specs.hardware.cluster import device_of_rank
from planner.specs.tables import CACHES, Table

PLACED = {"whole": (1, 1), "columns": (2, None), "node_rows": (1, 1), "grid": (2, None)}  # shards, least and most


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
    places = ranks // per_node if each.cut in ("node_rows", "grid") else ranks
    if each.cut in ("node_rows", "grid") and not 1 < per_node < ranks:
        yield f"cut `{each.cut}` is for groups on several nodes, with several ranks on each", "cut: rows or columns"
        return
    least, most = PLACED.get(each.cut, (0, 0))
    if len(each.at) < least or (most is not None and len(each.at) > most):
        yield (
            f"cut `{each.cut}` does not have {len(each.at)} places",
            f"at: {least or 'none'}{' or more' * (most is None)}",
        )
    if each.at and each.at[-1] >= places:
        what = "nodes" if places < ranks else "ranks"
        yield f"it is at {each.at}, and a group has {what} 0-{places - 1}", "places of the group"
    if each.cut in ("columns", "grid") and each.parts not in table.column_parts:
        able = ", ".join(map(str, table.column_parts)) or "none, so that it is cut otherwise"
        yield f"{table.dim} columns are not cut in {each.parts} parts", f"at as many places as there are parts: {able}"
    if each.cache:
        yield from cache_faults(plan, each)


def cache_faults(plan: Plan, each: TablePlacement) -> Iterator[tuple[str, str]]:
    """What is wrong with rows that are in host memory, and the fix."""
    kind = device_of_rank(plan.uses.cluster, 0)
    if each.cut not in ("whole", "rows"):
        yield f"cut `{each.cut}` has no cache of host memory", "cut: whole or rows; or no cache"
    if each.cache not in CACHES:
        yield f"no cache of {each.cache:g} of the rows is priced", f"cache: {' or '.join(map(str, CACHES))}"
    if not plan.uses.devices[kind].host_gb_per_s:
        yield f"it is not known how fast a {kind} reads host memory", "no cache, or host_gb_per_s of the device"
