"""Plans of jobs that place encoders on the first stage, on all ranks or apart train as one process does."""

import pytest

from planner.specs.inputs import JobOptions, load_job
from planner.strategies.static.joint_plan import plan_together
from tests.placed_jobs import NO_CLIPS, NO_IMAGES, PLACEMENTS, placed_job
from tests.runtime.multi_module_plans import require_those_of_one_process
from tests.runtime.training_worlds import run_all

pytestmark = pytest.mark.slow


TEXT_ALONE = {"images": NO_IMAGES, "clips": NO_CLIPS}
READ = {"images and sound": {}, "no images": {"images": NO_IMAGES}, "text alone": TEXT_ALONE}  # of the whole batch


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    plans = {
        (name, read): plan_together(load_job(placed_job(tmp_path_factory.mktemp("job"), fixed, **files), JobOptions()))
        for name, fixed in PLACEMENTS.items()
        for read, files in READ.items()
    }
    return plans, run_all(4, plans)


@pytest.mark.parametrize("read", READ)
@pytest.mark.parametrize("placed", PLACEMENTS)
def test_each_placement_trains_as_one_process_does(trained, placed, read):
    """Whatever the batch reads: an encoder without any item has neither passes nor gradients, and holds up nobody."""
    name = placed, read
    plans, results = trained
    require_those_of_one_process(plans[name], results[name].verify)
