"""Who holds which part of the features that a loss compares, for all ranks, from the plan alone.

The feature of a sample is the mean over the outputs of its item. Ranks that share an item each have some of them: a
part is a run of consecutive outputs, and the feature is the sum of its parts.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from planner.plan.plan_file import Plan
from planner.plan.task import Task
from planner.plan.tokens.resharding import output_runs
from planner.plan.tokens.token_shards import token_runs
from planner.runtime.exchange.micro_batch_in_flight import InFlightKey, in_flight_key
from planner.specs.workload.items import item_outputs


class FeaturePart(NamedTuple):
    """Outputs of one item that one rank has."""

    key: InFlightKey  # of the micro-batch whose outputs they are
    first: int  # of its rows
    outputs: int
    share: float  # of the feature that each output is: 1 / the outputs of the item
    place: int  # of the feature among those of a loss, (2, samples): all of the first module, then all of the second


def feature_parts(plan: Plan, tasks: Iterable[Task], loss: Task) -> Mapping[int, list[FeaturePart]]:
    """By rank, its parts in a loss, in the order in which it sends them. `tasks`: of the step, of all ranks."""
    modules, places = plan.uses.tasks[loss.group].modules, {sample: place for place, sample in enumerate(loss.items)}
    found: dict[int, list[FeaturePart]] = defaultdict(list)
    for forward in (task for task in tasks if task.phase == "F" and task.module in modules):
        spec, begin = plan.uses.models[forward.module], len(places) * modules.index(forward.module)
        if forward.layers[-1] != spec.layers - 1 or places.keys().isdisjoint(forward.items):
            continue
        key, sizes = in_flight_key(forward, forward.layers[0]), plan.uses.items[forward.module]
        for run in output_runs(token_runs(spec, plan.layouts[forward.module], forward), spec, forward):
            if run.item in places:
                share = 1 / item_outputs(spec, sizes[run.item])
                found[run.rank].append(FeaturePart(key, run.row, run.last - run.first, share, begin + places[run.item]))
    return found
