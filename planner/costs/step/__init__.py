"""The closed form of a static step: seconds of stages, pipeline and replicas, for columns of layouts."""

from planner.costs.step.least_split import (
    LinesOfStages,
    behind_first_rank_by_layers,
    lines_of_stages,
    seconds_behind,
)
from planner.costs.step.least_step import (
    StepItems,
    least_busy_seconds,
    least_exchange_seconds,
    least_path_seconds,
    least_step_seconds,
)
from planner.costs.step.stage_seconds import item_seconds, one_rank
from planner.costs.step.static_step import FeedingEncoder, StepSeconds, fed_step_seconds, static_step_seconds
from planner.costs.step.step_constant import first_to_cover
