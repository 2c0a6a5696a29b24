"""Plans of replicas that work on items of a few sizes, for what is alike among them."""

from planner.plan.plan_file import Group, Layout, Plan, Step
from planner.specs.base import Ranks, with_fields
from planner.specs.hardware.cluster import Level
from tests.plans import decoder, plan_of, stages_of, uses

SIZES = (16, 16, 32)


def replicas(rows: list[list[int]], pp: int = 1, levels: tuple[int, ...] = (), split: tuple[dict, ...] = ()) -> Plan:
    """Replicas of two ranks on each stage; `rows`: of each micro-batch, what each replica's item is among SIZES."""
    dp = len(rows[0])
    size = 2 * dp * pp
    sizes = {row * dp + replica: SIZES[which] for row, each in enumerate(rows) for replica, which in enumerate(each)}
    facts = uses(size, {"llm": decoder(2 * pp)}, {"llm": sizes})
    if levels:
        each = (*(Level(name=f"of{n}", ranks=n, gb_per_s=10.0, latency_us=1.0) for n in levels), *facts.cluster.levels)
        facts = with_fields(facts, cluster=with_fields(facts.cluster, levels=each))
    groups = {
        f"r{r}": Group(
            ranks=Ranks(stage * 2 * dp + 2 * r + i for stage in range(pp) for i in (0, 1)),
            split=split[r] if split else {"ulysses": 2},
        )
        for r in range(dp)
    }
    stages = stages_of(2 * pp, pp) if pp > 1 else ()
    cells = tuple({f"r{r}": (row * dp + r,) for r in range(dp)} for row in range(len(rows)))
    layout = Layout(ranks=Ranks(range(size)), pp=pp, dp=2 * dp, stages=stages)
    return plan_of(size, facts, {"llm": layout}, groups, Step(sync="step", micro_batches=cells))
