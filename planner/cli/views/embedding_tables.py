"""What screens say of embedding tables: groups and seconds in a line, load by rank as bars, and why one is where it is.

All seconds are simulated, from the rates of the cluster.
"""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from planner.cli.canvas import Canvas
from planner.cli.views.plain_table import table
from planner.costs.tables import table_loads
from planner.export import RankSeconds
from planner.plan.plan_file import Plan
from planner.specs.base import ranges_text
from planner.units import GIB, byte_size, duration, percent, plural
from planner.why import WhyTable

WIDEST, SHOWN = 40, 16  # columns of a bar; lines


def table_rows(plan: Plan) -> Iterator[tuple[str, RenderableType]]:
    """The tables of a plan in three lines, each with its label; none where it has none."""
    loads, placed = table_loads(plan), plan.embeddings
    if not loads or not placed:
        return
    size, ranks = sum(each.bytes for each in plan.uses.tables.values()), loads.group.ranks
    cuts = [each.cut for each in placed.tables.values()]
    text = ", ".join(f"{cuts.count(cut)} {cut.replace('_', ' ')}" for cut in dict.fromkeys(sorted(cuts)))
    of = f"{plural(placed.groups, 'group')} of {plural(ranks, 'rank')}"
    yield "tables", f"{len(cuts)} of {size / GIB:,.1f} GiB in {of}: {text}"
    yield (
        "",
        f"{duration(float(loads.seconds.max()))} on the slowest rank, {percent(loads.imbalance - 1)} over the mean",
    )
    if placed.groups > 1:
        where = "on neighbouring ranks" if placed.replicas == "node" else f"{ranks} ranks apart"
        every = "each step" if placed.average_every == 1 else f"every {placed.average_every} steps"
        extra = float(loads.state_bytes.mean()) * (placed.groups - 1) / placed.groups
        yield "", f"copies {where}, averaged {every}: {byte_size(extra)} a rank more than in one group"


def load_bars(plan: Plan, canvas: Canvas) -> Iterator[Text]:
    """Seconds of tables by rank of a group, as bars; ranks that take alike share one."""
    loads = table_loads(plan)
    if not loads:
        return
    alike: dict[str, list[int]] = {}
    for rank in range(loads.group.ranks):
        alike.setdefault(f"{loads.seconds[rank] * 1e3:.3g}", []).append(rank)
    slowest_first = sorted(alike.values(), key=lambda ranks: (-float(loads.seconds[ranks[0]]), ranks))
    width = max(4, min(WIDEST, canvas.width - 36))
    scale = float(loads.seconds.max()) / width
    yield Text()
    for ranks in slowest_first[:SHOWN]:
        parts = [float(each[ranks[0]]) / scale for each in (loads.lookup, loads.exchange, loads.average)]
        bar = "".join(sign * round(part) for sign, part in zip("█▓░", parts, strict=True))
        name = ranges_text(tuple(ranks))
        name = name if len(name) <= 14 else f"{name[:12]}…"
        yield Text(f"{name:>14} {bar:<{width}} {duration(float(loads.seconds[ranks[0]]))}")
    if len(slowest_first) > SHOWN:
        yield Text(f"… {len(slowest_first) - SHOWN} more, quicker", style="dim")
    yield Text("tables by rank of a group, simulated: █ lookup and update ▓ exchange ░ average of copies", style="dim")


def torchrec_lines(seconds: RankSeconds) -> Iterator[Text]:
    """What TorchRec's estimator says of the tables, beside planner's prices."""
    theirs, own = float(seconds.torchrec.max()), float(seconds.own.max())
    apart = float(abs(seconds.own - seconds.torchrec).max()) / (theirs or 1.0)
    yield Text(
        f"by TorchRec's estimator the slowest rank's tables take {duration(theirs)}, by planner's prices "
        f"{duration(own)}; no rank is more than {percent(apart)} of that apart"
    )


def why_table_lines(answer: WhyTable) -> Iterator[RenderableType]:
    """What a table takes, and other ways to cut it."""
    cached = f", {percent(answer.cache)} of its rows on the device" if answer.cache else ""
    yield Text.assemble((answer.table, "bold"), f"  {answer.cut.replace('_', ' ')} at {answer.at}{cached}")
    taken = answer.lookup + answer.exchange + answer.average
    yield Text(
        f"a shard takes {duration(taken)}: lookup {duration(answer.lookup)}, exchange {duration(answer.exchange)}, "
        f"average {duration(answer.average)}; its slowest rank {duration(answer.rank_seconds)} with all its tables, "
        f"the slowest of the group {duration(answer.slowest_seconds)}"
    )
    rows = table("cut", ">parts", ">a rank", ">all ranks", ">GiB a rank", title="other ways, the cheapest of each")
    for other in answer.others:
        cached = f", cache {percent(other.cache)}" if other.cache else ""
        own = " ← the plan's" if (other.cut, other.cache) == (answer.cut, answer.cache) else ""
        name = f"{other.cut.replace('_', ' ')}{cached}{own}"
        seconds = duration(other.rank_seconds), duration(other.group_seconds)
        rows.add_row(name, str(other.parts), *seconds, f"{other.rank_gib:.2f}")
    yield rows
