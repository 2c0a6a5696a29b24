"""Plans that encoders in the LLM's gaps are compared with: the same LLM's, its encoders on the first stages.

encoder_first_stage  encoders on the first of even stages (Megatron-LM)
rebalanced_stages    the same, layers moved from the first stage until it is level with the others
balanced_stages      encoders on all stages: the chain of all layers in chunks, the longest as short as can be; best vpp

These have the LLM's tp and data parallelism, and the ranks, stages and vpp that they need, whatever the job fixes of
those. `balanced_stages` is the baseline that Optimus calls balanced (arXiv 2408.03505) but for two things. There any
pp · vpp cuts of the chain are chunks; here a round over all ranks is of one module, of an encoder one and of the LLM as
many as are best: with vpp as it is fixed there the cuts are far less level (of 48 + 96 layers in 96 chunks the longest
has two of the LLM's). And there passes of encoders alternate with the LLM's; here all their forwards are before it and
all backwards behind, which fills and drains a pipeline once more, some 3 % of a step of 16 micro-batches and 8 stages.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from planner.plan.mesh.rank_mesh import stage_ranks
from planner.plan.plan_file import Alternative, Layout, Plan
from planner.specs.base import Layers, Ranks, with_fields
from planner.specs.inputs import Inputs
from planner.specs.parallelism import Parallelism, decided_fields
from planner.specs.workload.items import Size
from planner.strategies.assignment import micro_batch_count
from planner.strategies.assignment.encoder_orders import EncoderOrder
from planner.strategies.bubbles.chain_parts import level_parts
from planner.strategies.modality.baseline_trial import FOLLOWING, Layouts, best_trial
from planner.strategies.modality.baselines import even_where_slower
from planner.strategies.modality.first_stage_baselines import encoder_first_stage
from planner.strategies.modality.joint_alternatives import joint_alternative
from planner.strategies.modality.joint_candidates import JointSpace
from planner.strategies.modality.joint_search import JointTrials
from planner.strategies.modality.level_stages import (
    batch_pricing,
    layer_seconds,
    with_chunks,
    with_level_stages,
)
from planner.strategies.static.tried_layouts import TriedLayouts

# Fields that baselines keep where the job fixes them: what a module computes and holds, not where it is.
KEPT = (
    *("tp", "cp", "ulysses", "sequence_parallel", "overlap", "dtype", "gradients", "zero"),
    *("recompute", "offload", "optimizer_offload", "features"),
)
# And those of the LLM that are as the plan has them
MESH = ("tp", "cp", "ulysses", "pp", "vpp", "ep", "etp", "dp", "replica", "rank_order", "zero", "micro_batch", "ranks")


def baseline_alternatives(inputs: Inputs, plan: Plan) -> tuple[Alternative, ...]:
    """The baselines of a job's plan, each with the seconds of its step, beside the plan's own."""
    chosen = TriedLayouts(plan.layouts, plan=plan, seconds=plan.outcome.value)
    return tuple(joint_alternative(each, chosen) for each in bubble_baselines(inputs, plan.layouts))


def bubble_baselines(inputs: Inputs, layouts: Layouts) -> list[TriedLayouts]:
    """Every baseline simulated, its name as its kind: its plan, or why it does not fit. `layouts`: of the plan."""
    space = JointSpace(fixing_of_baselines(inputs, layouts[inputs.module]))
    trials = JointTrials(with_fixed(inputs, {}))
    changes: dict[str, Callable[[Layouts], Layouts]] = {
        "encoder_first_stage": lambda first: first,
        "rebalanced_stages": lambda first: with_level_stages(trials.inputs, first),
        "balanced_stages": lambda first: with_balanced_stages(trials.inputs, first),
    }
    found = dict[str, TriedLayouts]()
    for name, change in changes.items():
        order = EncoderOrder(ahead=None) if name == "balanced_stages" else FOLLOWING
        found[name] = best_trial(trials, name, map(change, encoder_first_stage(space)), order=order)
    return even_where_slower(found)


def fixing_of_baselines(inputs: Inputs, llm: Layout) -> Inputs:
    """The job with this layout of the LLM, and of what it fixes what baselines keep."""
    fixed: dict[str, Parallelism] = {}
    for name in inputs.model.modules:
        given = decided_fields(inputs.fixed_of(name))
        fixed[name] = Parallelism(**{field: value for field, value in given.items() if field in KEPT})
    found: dict[str, Any] = {field: getattr(llm, field) for field in MESH}
    return with_fixed(inputs, fixed | {inputs.module: with_fields(fixed[inputs.module], **found)})


def with_fixed(inputs: Inputs, layouts: dict[str, Parallelism]) -> Inputs:
    """The job with other layouts under `fix`."""
    return replace(inputs, job=with_fields(inputs.job, fix=with_fields(inputs.job.fix, layouts=layouts)))


def with_balanced_stages(inputs: Inputs, first: Layouts) -> Layouts:
    """The layouts, whose encoders are on the first stage, with layers of encoders on all stages, and the LLM's in the
    chunks with which its rounds through the pipeline are estimated to take least.
    """
    llm, batch, pricing = first[inputs.module], inputs.batches[0], batch_pricing(inputs, first)
    passes = micro_batch_count(llm, len(batch.items))

    def seconds(name: str, sizes: Mapping[int, Size]) -> list[float]:
        inner, end = layer_seconds(pricing, name, sizes, passes)
        return [inner] * (pricing.models[name].layers - 1) + [inner + end]

    layouts, layers = {**first}, seconds(inputs.module, batch.items)
    if llm.pp > 1:
        every = [level_parts(layers, llm.pp * vpp) for vpp in range(1, len(layers) // llm.pp + 1)]
        chunks = min(every, key=lambda each: rounds_seconds(layers, each, llm.pp, passes))
        layouts[inputs.module] = with_chunks(llm, chunks)
    for name, sizes in batch.streams.items():
        module = pricing.models[name]
        stages = 1 if module.unpipelined_reason else min(llm.pp, module.layers)
        placed: dict[str, Any] = {"pp": stages, "rank_order": llm.rank_order}
        placed["stages"] = level_parts(seconds(name, sizes), stages) if stages > 1 else ()
        ranks = Ranks(sorted(rank for stage in range(stages) for rank in stage_ranks(llm, stage)))
        layouts[name] = with_fields(first[name], ranks=ranks, **placed)
    return layouts


def rounds_seconds(layers: Sequence[float], chunks: Sequence[Layers], stages: int, passes: int) -> float:
    """Seconds of so many passes through a pipeline's chunks, each round of which takes as long as its longest chunk,
    and of filling and draining it; `layers`: of all passes.
    """
    taken = [sum(layers[layer] for layer in chunk) for chunk in chunks]
    rounds = [max(taken[first : first + stages]) for first in range(0, len(taken), stages)]
    return sum(rounds) + (stages - 1) * max(taken) / passes
