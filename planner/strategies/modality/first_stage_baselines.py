"""Baselines whose encoders are on the LLM's first stage: its layers in even stages, rebalanced, or rebalanced once.

Encoders have the LLM's tp, as in Megatron-LM; its other degrees are those with which the LLM alone is quickest, of
those with which all fit.
"""

from collections.abc import Iterator
from dataclasses import replace

from planner.errors import Infeasible
from planner.plan.mesh.rank_mesh import stage_ranks
from planner.plan.plan_file import Layout
from planner.specs.base import with_fields
from planner.specs.inputs import Inputs
from planner.specs.workload.length_sources import SampleMix
from planner.specs.workload.sample_batches import read_sample_batches, with_mix
from planner.specs.workload.samples import SampleBatch
from planner.strategies.modality.baseline_trial import Layouts
from planner.strategies.modality.joint_candidates import JointSpace
from planner.strategies.modality.level_stages import with_level_stages
from planner.strategies.modality.module_space import IN_PARTS, MEMORY_SHARES, ModuleOption

LLM_LAYOUTS = 4  # of the LLM, with each share of memory for encoders
REFERENCE_MIX = "5:5"  # for which kept_stages are balanced


def encoder_first_stage(space: JointSpace) -> Iterator[Layouts]:
    """Even stages. Raises Infeasible where no layout fits by the closed form."""
    found: dict[str, tuple[float, float, Layouts]] = {}
    ranks = space.most_ranks(space.inputs.module)
    for share in sorted(MEMORY_SHARES):
        for llm in space.llm(len(ranks)).quickest(LLM_LAYOUTS, beside=share * space.allowed):
            placed = with_fields(llm.layout, ranks=ranks)
            encoders = encoders_beside(space, placed, share)
            if encoders:
                layouts = {space.inputs.module: placed, **{name: each.layout for name, each in encoders.items()}}
                more = sum(each.seconds for each in encoders.values())
                ordered = {name: layouts[name] for name in space.inputs.model.modules}
                found.setdefault(str(ordered), (llm.seconds, llm.seconds + more, ordered))
    if not found:
        raise Infeasible("no layout of the LLM fits beside encoders on its first stage", where="memory")
    alone = sorted(found.values(), key=lambda each: each[:2])
    together = sorted(found.values(), key=lambda each: each[1])
    for pair in zip(alone, together, strict=True):
        yield from (layouts for _, _, layouts in pair)


def rebalanced_stages(space: JointSpace) -> Iterator[Layouts]:
    """Stages rebalanced for this batch."""
    yield from (with_level_stages(space.inputs, layouts) for layouts in encoder_first_stage(space))


def kept_stages(space: JointSpace) -> Iterator[Layouts]:
    """Stages rebalanced for the mix 5:5. Raises Infeasible where samples have no mix."""
    reference = replace(space.inputs, batches=(reference_batch(space.inputs),))
    yield from (with_level_stages(reference, layouts) for layouts in encoder_first_stage(space))


def reference_batch(inputs: Inputs) -> SampleBatch:
    """As many samples of the same data, mixed 5:5. Raises Infeasible where the job does not draw a mix."""
    given = inputs.job.workload.lengths
    if not isinstance(given, SampleMix) or not given.multimodal + given.text_only:
        raise Infeasible("stages are kept from another mix, and samples are not drawn from one", where="workload")
    workload, span = with_mix(inputs.job.workload, REFERENCE_MIX), (1, inputs.first_row)
    base = inputs.sources["job"].parent
    return read_sample_batches(workload, inputs.model, inputs.module, span, inputs.seed, base)[0]


def encoders_beside(space: JointSpace, llm: Layout, share: float) -> dict[str, ModuleOption] | None:
    """The quickest layout of each encoder on the first stage of this LLM, within an equal part of a share of memory, or
    where it has none, within all of that; None where one has none there.
    """
    ranks, found = stage_ranks(llm, 0), dict[str, ModuleOption]()
    for name in space.encoders:
        parts = (share / len(space.encoders), share)
        besides = (max(0.0, (1.0 - part) * space.allowed - space.context) for part in parts)
        options = (option_of_width(space, name, (len(ranks), llm.tp), beside) for beside in besides)
        option = next(filter(None, options), None)
        if option is None:
            return None
        placed = with_fields(option.layout, ranks=ranks, schedule=None, micro_batch=1)
        found[name] = replace(option, layout=placed)
    return found


def option_of_width(space: JointSpace, name: str, mesh: tuple[int, int], beside: float) -> ModuleOption | None:
    """The quickest layout of an encoder on so many ranks with this tp, or where it cannot be sharded so, with the next
    smaller one that can.
    """
    ranks, tp = mesh
    every = space.whole_space(name, ranks, False, IN_PARTS)
    for width in (width for width in range(tp, 0, -1) if tp % width == 0):
        able = every.with_values(tp=width, cp=1)
        if len(able.layouts["tp"]):
            return next(iter(able.without_zero3.quickest(1, beside=beside)), None)
    return None
