"""Small jobs of a decoder that sees, whose samples are on groups that change with every micro-batch."""

from collections.abc import Sequence
from pathlib import Path
from random import Random

from planner.costs import Pricing, allowed_degrees
from planner.layouts import with_joint_fields
from planner.plan.gradient_flow import gradient_flows
from planner.plan.plan_file import Layout, Plan
from planner.specs.inputs import Inputs, JobOptions, load_job
from planner.strategies.assignment.encoder_orders import EncoderOrder
from planner.strategies.colocated.grouped_plan import Grouping, packed_plan
from planner.strategies.plan_drafts import data_parallel_layouts, plan_uses
from tests.groupings import any_packing
from tests.modality_jobs import IMAGES, ROWS, seeing_job

GROUPED = ("sequence_groups", "data_ranks")
TIGHT = "limits: {tokens_per_rank: 300, inputs_per_rank: {vit: 2000}}\n"  # the longest sample needs two ranks


def grouped_job(
    folder: Path,
    strategy: str,
    ranks: int = 4,
    fixed: str = "",
    more: str = TIGHT,
    data: tuple[Sequence[int], str] = (ROWS, IMAGES),
) -> Inputs:
    """The inputs of a job for one of these strategies; `more`: further lines of it; `data`: rows and images."""
    seeing_job(folder, ranks, fixed, *data, more)
    text = (folder / "job.yaml").read_text()
    if strategy == "data_ranks":
        text = text.replace("dtype: float32", "dtype: float32, zero: 1").replace("strategy:", "sync: step\nstrategy:")
    (folder / "job.yaml").write_text(text.replace("strategy: modality_layout", f"strategy: {strategy}"))
    return load_job(str(folder / "job.yaml"), JobOptions(effort=1))


def any_grouped_plan(inputs: Inputs, encoder: Layout, order: EncoderOrder, random: Random) -> Plan:
    """Samples packed anyhow, not as well as can be, beside an encoder with this layout and order of its passes."""
    inputs = with_joint_fields(inputs)
    layouts = {**data_parallel_layouts(inputs), "vit": encoder}
    degrees = allowed_degrees(inputs.spec, inputs.cluster.size, ())
    used = plan_uses(inputs, layouts, degrees)
    flows = gradient_flows(used.models, inputs.model.edges)
    pricing = Pricing(used.models, layouts, inputs.cluster, used.prices, used.devices, flows=flows)
    grouping = Grouping(degrees, inputs.job.sync, lambda problem, _: (any_packing(problem, random), ""))
    return packed_plan(inputs, pricing, {"vit": order}, used, grouping).plan
