"""Plans as trainers have them today, for the same job and by the same simulation: what one decision over all modules
is compared with, and never slower than.

encoder_first_stage  encoders on the LLM's first stage with its tp, stages of even layers (Megatron-LM)
rebalanced_stages    the same, layers moved from the first stage until it is level with the others, if that is quicker
kept_stages          the same, rebalanced for a mix of 5:5, and kept for this batch
equal_dp_apart       every module on cards of its own: equal dp, tp 1, cp 1, any pp (MindSpeed-MM)
fsdp_all             every module under ZeRO-3 over all ranks (VeOmni, torchtitan)

Each is the best of a few layouts, and is given recomputation where it does not fit without.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from planner.strategies.assignment.encoder_orders import STREAMED
from planner.strategies.modality.apart_baselines import equal_dp_apart, fsdp_all
from planner.strategies.modality.baseline_trial import FOLLOWING, Layouts, best_trial
from planner.strategies.modality.first_stage_baselines import encoder_first_stage, kept_stages, rebalanced_stages
from planner.strategies.modality.joint_candidates import JointSpace
from planner.strategies.modality.joint_search import NO_LIMITS, JointTrials, Limits
from planner.strategies.static.tried_layouts import TriedLayouts

BASELINES: dict[str, Callable[[JointSpace], Iterator[Layouts]]] = {
    "encoder_first_stage": encoder_first_stage,
    "rebalanced_stages": rebalanced_stages,
    "kept_stages": kept_stages,
    "equal_dp_apart": equal_dp_apart,
    "fsdp_all": fsdp_all,
}

BASELINE_TEXTS = {  # what each is, in a few words
    "encoder_first_stage": "encoders on the first of even stages",
    "rebalanced_stages": "encoders on the first stage, which has fewer layers",
    "balanced_stages": "encoders on several stages, whose layers and the LLM's are level together",  # ../bubbles
    "kept_stages": "encoders on the first stage, whose layers are those for a mix of 5:5",
    "equal_dp_apart": "every module on ranks of its own, of equal dp, without tp and cp",
    "fsdp_all": "every module under ZeRO-3 over all ranks",
}

AHEAD = "equal_dp_apart", "fsdp_all"  # whose encoders run a micro-batch ahead
UNEVEN = "rebalanced_stages", "balanced_stages", "kept_stages"  # of which trainers would keep even ones if quicker


def baseline_trials(trials: JointTrials, space: JointSpace, limits: Limits = NO_LIMITS) -> list[TriedLayouts]:
    """Every baseline simulated, its name as its kind: its plan, or why there is none."""
    found = {
        name: best_trial(trials, name, candidates(space), limits, STREAMED if name in AHEAD else FOLLOWING)
        for name, candidates in BASELINES.items()
    }
    return even_where_slower(found)


def even_where_slower(found: dict[str, TriedLayouts]) -> list[TriedLayouts]:
    """Baselines by name. Stages are left even where rebalancing makes them slower, as it may where the first one keeps
    too few layers for its chunks.
    """
    even = found["encoder_first_stage"]
    for name, each in found.items():
        if name in UNEVEN and each.plan and even.seconds < each.seconds:
            found[name] = replace(even, kind=name)
    return [*found.values()]
