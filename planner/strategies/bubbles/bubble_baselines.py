"""Plans that encoders in the LLM's gaps are compared with: the same LLM's, its encoders on the first stages.

encoder_first_stage  encoders on the first of even stages (Megatron-LM)
rebalanced_stages    the same, layers moved from the first stage until it is level with the others
balanced_stages      layers of encoders and LLM over stages, the fullest of which has least, exactly; best vpp

These have the LLM's tp and data parallelism, and the ranks, stages and vpp that they need, whatever the job fixes of
those. `balanced_stages` is the baseline that Optimus calls balanced (arXiv 2408.03505) but for two things. There one
chain of all layers is cut into pp · vpp chunks; here encoder and LLM are pipelines of their own on the same ranks,
whose sums are level: no chunk has layers of both, which leaves fewer of them uneven. And there forwards and backwards
of encoders alternate with the LLM's; here all forwards are before it and all backwards behind, which fills and drains a
pipeline once more.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from planner.plan.mesh.rank_mesh import stage_ranks
from planner.plan.plan_file import Alternative, Layout, Plan
from planner.specs.base import Layers, Ranks, with_fields
from planner.specs.inputs import Inputs
from planner.specs.parallelism import Parallelism, decided_fields
from planner.strategies.assignment import micro_batch_count
from planner.strategies.bubbles.level_division import Layered, level_division
from planner.strategies.modality.baseline_trial import Layouts, best_trial
from planner.strategies.modality.baselines import even_where_slower
from planner.strategies.modality.first_stage_baselines import encoder_first_stage
from planner.strategies.modality.joint_alternatives import joint_alternative
from planner.strategies.modality.joint_candidates import JointSpace
from planner.strategies.modality.joint_search import JointTrials
from planner.strategies.modality.level_stages import (
    batch_pricing,
    chunks_of_counts,
    layer_seconds,
    level_counts,
    with_layers,
    with_level_stages,
)
from planner.strategies.static.tried_layouts import TriedLayouts

# Fields that baselines keep where the job fixes them: what a module computes and holds, not where it is.
KEPT = ("tp", "cp", "ulysses", "sequence_parallel", "zero", "recompute", "offload", "optimizer_offload", "dtype")
KEPT += ("gradients", "overlap", "features")
# Of the LLM that is found, as far as the job leaves it open
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
        "balanced_stages": lambda first: with_balanced_stages(trials, first),
    }
    return even_where_slower(
        {name: best_trial(trials, name, map(change, encoder_first_stage(space))) for name, change in changes.items()}
    )


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


def with_balanced_stages(trials: JointTrials, first: Layouts) -> Layouts:
    """The layouts, whose encoders are on the first stage, with layers of encoders on as many first stages as level the
    ranks best, of equals the fewest; in the chunks of the LLM with which the step is estimated to take least.
    """
    inputs, llm = trials.inputs, first[trials.inputs.module]
    if llm.pp == 1:
        return first
    divided = min(
        (stages_divided(inputs, first, stages) for stages in range(1, llm.pp + 1) if llm.pp % stages == 0),
        key=lambda each: each[0],
    )
    _, encoders, counts = divided
    fewest = min(counts)
    chunks = {fewest // parts for parts in range(1, fewest + 1)}
    every = [{**first, **encoders, inputs.module: with_layers(llm, counts, vpp)} for vpp in sorted(chunks)]
    return min(every, key=trials.estimate)


def stages_divided(
    inputs: Inputs, first: Layouts, stages: int
) -> tuple[float, Layouts, tuple[int, ...]]:
    """Seconds of the fullest rank where encoders are on so many first stages, their layouts there, and the LLM's layers
    on each stage: the largest encoder with it, others beside them, each level by itself.
    """
    batch, llm, pricing = inputs.batches[0], first[inputs.module], batch_pricing(inputs, first)
    passes = micro_batch_count(llm, len(batch.items))
    seconds = {
        name: layer_seconds(pricing, name, sizes, passes)
        for name, sizes in ({inputs.module: batch.items} | batch.streams).items()
    }
    beside = [0.0] * llm.pp
    beside[-1] += seconds[inputs.module][1]
    layers = {name: pricing.models[name].layers for name in seconds}
    rising = sorted(batch.streams, key=lambda name: layers[name] * seconds[name][0])
    counts: dict[str, tuple[int, ...]] = {}
    for name in rising:
        beside[stages - 1] += seconds[name][1]
        if name != rising[-1]:
            counts[name] = level_counts(layers[name], seconds[name][0], [0.0] * stages)
            beside[:stages] = (each + seconds[name][0] * more for each, more in zip(beside, counts[name], strict=False))
    both = [Layered(layers[name], seconds[name][0], parts) for name, parts in ((rising[-1], stages), (inputs.module, llm.pp))]
    found = level_division(*both, beside)
    counts[rising[-1]] = found.encoder
    ranks = Ranks(sorted(rank for stage in range(stages) for rank in stage_ranks(llm, stage)))
    placed = {
        name: with_fields(
            first[name],
            ranks=ranks,
            pp=stages,
            stages=chunks_of_counts(each, 1) if stages > 1 else (),
            ahead=passes,
            backward="last",
        )
        for name, each in counts.items()
    }
    return found.seconds, placed, found.llm
