"""The space of static layouts: every one that divides evenly, what each costs and needs, and a bound over all."""

from planner.layouts.bounds.divided_layouts import (
    DividedLayout,
    divided_layouts,
    spread_otherwise,
    spread_stages,
)
from planner.layouts.bounds.joint_bound import joint_bound
from planner.layouts.bounds.space_bound import LayoutBounds, layout_bounds, space_bound
from planner.layouts.bounds.split_bound import divisions_near, least_divided
from planner.layouts.bounds.work_bound import may_be_below, mixed_work_bound, work_bound
from planner.layouts.screening.cells import quickest_cell
from planner.layouts.screening.layout_screening import (
    Floats,
    ScreenedLayouts,
    anything_fits,
    closed_form_parts,
    screen,
    screen_each,
)
from planner.layouts.screening.searched_parts import searched_sets, with_searched_parts
from planner.layouts.screening.solved_offload import fixed_offload_hides
from planner.layouts.screening.unequal_batches import assign_least_loaded
from planner.layouts.space.joint_problem import JointProblem, unbounded_jointly, with_joint_fields
from planner.layouts.space.launchable_layouts import layouts_of
from planner.layouts.space.layout_batches import LayoutIndices
from planner.layouts.space.layout_fields import (
    FULL_LAYERS,
    OFFLOADS,
    RECOMPUTE,
    RECOMPUTE_BY_RANGES,
    SCHEDULE,
    SEARCHED_FIELDS,
    TrainingSetup,
    fixed_text,
    layout_of,
    recompute_ranges,
    searched_overlap,
)
from planner.layouts.space.layout_problem import (
    LayoutProblem,
    fixed_fields,
    layout_problem,
    priced_machine,
    priced_problem,
    problems_by_kind,
)
from planner.layouts.space.layout_space import LayoutSpace, layout_at
from planner.layouts.space.plainness import (
    layout_points,
    most_conventional,
    table_points,
    usual_zero,
    with_usual_solutions,
)
from planner.layouts.space.rank_counts import rank_counts
