"""Plans of replicas that work on items of a few sizes, for what is alike among them."""

from typing import Any

from hypothesis import strategies as st

from planner.plan.legal.plan_laws import violations
from planner.plan.plan_file import Group, Layout, Plan, Step, TaskPlacement
from planner.specs.base import Ranks, with_fields
from planner.specs.hardware.cluster import Level
from tests.plans import decoder, plan_of, stages_of, timed, uses
from tests.runtime.multi_module_plans import joined, layout

SIZES = (16, 16, 32)
SAMPLES = ((24, (16,)), (24, (16,)), (40, (16, 24)), (16, ()))  # tokens of a text, and patches of its images
ENCODERS = ({"dp": 2}, {"tp": 2}, {"pp": 2, "rank_order": "pp-dp"}, {})  # on pairs of ranks; on single ones


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


def fed_replicas(rows: list[list[int]], llm: dict[str, Any], vit: dict[str, Any], reader: str = "llm") -> Plan:
    """Replicas of two ranks on each stage, and what encodes their images, on the same ranks. `rows`: of each
    micro-batch, what each replica's item is among SAMPLES; `vit`: as one of ENCODERS.
    """
    pp, replicas, tp = llm.get("pp", 1), len(rows[0]), llm.get("tp", 1)
    size, each = 2 * pp * replicas, 2 if len(vit.keys() & {"dp", "tp", "pp"}) else 1
    texts, images, feeds, cells = dict[int, int](), dict[int, int](), dict[int, int](), list[dict[str, dict]]()
    for row in rows:
        cells.append({"vit": {}, reader: {}})
        for replica, (tokens, patches) in enumerate(map(SAMPLES.__getitem__, row)):
            own = tuple(2 * (stage * replicas + replica) + i for stage in range(pp) for i in (0, 1))
            cells[-1][reader][own] = (len(texts),)
            for number, count in enumerate(patches):
                first = number * each % len(own)
                group = own[first : first + each]
                cells[-1]["vit"][group] = (*cells[-1]["vit"].get(group, ()), len(images))
                feeds[len(images)], images[len(images)] = len(texts), count
            texts[len(texts)] = tokens
    layouts = {
        reader: layout(reader, range(size), **{**llm, "dp": 2 * replicas // tp}),
        "vit": layout("vit", range(size), **{**vit, "dp": size // (vit.get("tp", 1) * vit.get("pp", 1))}),
    }
    return joined(layouts, cells, items={reader: texts, "vit": images}, feeds={f"vit>{reader}": feeds})


@st.composite
def any_fed_replicas(draw: st.DrawFn, readers: tuple[str, ...] = ("llm",)) -> Plan:
    """Two or three replicas that read images; with as many ranks, layers, states and times as there may be."""
    replicas, alike = draw(st.integers(2, 3)), draw(st.booleans())
    row = (
        st.integers(0, 3).map(lambda one: [one] * replicas)
        if alike
        else st.lists(st.sampled_from((0, 0, 1, 2, 3)), min_size=replicas, max_size=replicas)
    )
    reader, zero = draw(st.sampled_from(readers)), st.sampled_from((0, 1, 3))
    llm = {"pp": draw(st.integers(1, 2)), "zero": draw(zero), "tp": 2 if reader != "llm" else draw(st.integers(1, 2))}
    vit = {**draw(st.sampled_from(ENCODERS)), "zero": draw(zero)}
    plan = fed_replicas(draw(st.lists(row, min_size=1, max_size=4)), llm, vit, reader)
    plan = timed(plan, "vit", ahead=draw(st.sampled_from((0, 1, None))), at_once=draw(st.booleans()))
    trained = with_fields(plan.uses.models["vit"], trained=draw(st.sampled_from(("all", "none"))))
    return with_fields(plan, uses=with_fields(plan.uses, models={**plan.uses.models, "vit": trained}))


@st.composite
def any_placed_replicas(draw: st.DrawFn, ahead: int | None = None) -> Plan:
    """The same, with passes of the encoder beside those of its reader, or beside what this exchanges once a step: those
    of some that are drawn which may be there, of all groups.
    """
    plan = timed(draw(any_fed_replicas()), "vit", ahead=ahead)
    number, stage = st.integers(0, len(plan.steps[0].micro_batches) - 1), st.integers(0, plan.layouts["llm"].pp - 1)
    behind = st.sampled_from(("llm.sync", "llm.gather")) | st.builds("llm.B{}@{}".format, number, stage)
    forward = st.tuples(st.builds("vit.F{}".format, number), st.builds("llm.F{}@0".format, number))
    for do, beside in draw(st.lists(forward | st.tuples(st.builds("vit.B{}".format, number), behind), max_size=4)):
        (step,) = plan.steps
        place = (*step.placed, TaskPlacement(do=do, beside=beside))
        other = with_fields(plan, steps=(with_fields(step, order={"place": place}),))
        plan = plan if any(True for _ in violations(other)) else other
    return plan
