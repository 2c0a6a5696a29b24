"""Plans of jobs that place encoders on the first stage, on all ranks or apart train as one process does; and so do
those whose encoder splits a long image or video over ranks that have short ones too, or serves several micro-batches.
"""

import pytest

from planner.specs.inputs import JobOptions, load_job
from planner.strategies.assignment.encoder_orders import EncoderOrder
from planner.strategies.static.layouts_plan import plan_of_layouts, plan_together
from planner.strategies.static.placement import placed_layouts
from tests.examples import soaked
from tests.placed_jobs import EVERY_RANK, LONG_IMAGE, LONG_VIDEO, NO_CLIPS, NO_IMAGES, PLACEMENTS, ROWS, placed_job
from tests.runtime.multi_module_plans import require_those_of_one_process
from tests.runtime.training_worlds import asked_for, run_all

pytestmark = pytest.mark.slow
OTHERS = {
    "a long image": (EVERY_RANK, LONG_IMAGE),
    "a long video": (EVERY_RANK, LONG_VIDEO),
    "served": ({"llm": "pp: 2", "vit": "dp: 4", "ear": "dp: 4, zero: 3"}, {}),
}


ORDERS = {"served": [{"vit": EncoderOrder(serves=3), "ear": EncoderOrder(serves=2, ahead=2, at_once=True)}]}
SIX = {  # some samples have several images, some none; the last image but one is read by two
    "rows": ROWS[:6], "images": "patches,row\n16,0\n16+8,3\n32,2\n12,0+1\n64,5\n", "clips": "row,frames\n0,8\n5,12+4\n",
}  # fmt: skip
READ = {  # of the whole batch
    "images and sound": SIX,
    "no images": {**SIX, "images": NO_IMAGES},
    "text alone": {**SIX, "images": NO_IMAGES, "clips": NO_CLIPS},
}


CASES = [(name, read) for name in PLACEMENTS for read in READ]
BARE = ("first stage", "1 + 3")  # of which batches without images run often
RARE = (
    "first stage, ranks turned",
    "first stage of tensors",
    "2 + 2",
    "disjoint",
    "pipelines of encoders",
    "overlapping",
)  # for the soak, as other batches
LEFT = ("first stage", "no images"), ("1 + 3", "text alone")  # each of both on one of them; the others in the soak
OFTEN = [
    (name, read)
    for name, read in CASES
    if (name, read) not in LEFT and (name in BARE or (read == "images and sound" and name not in RARE))
]


@pytest.fixture(scope="module")
def trained(request, tmp_path_factory):
    plans = {
        (name, read): plan_together(
            load_job(placed_job(tmp_path_factory.mktemp("job"), PLACEMENTS[name], **READ[read]), JobOptions())
        )
        for name, read in asked_for(request, "placed", "read")
    }
    for name in asked_for(request, "other"):
        fixed, other = OTHERS[name]
        path = placed_job(tmp_path_factory.mktemp("job"), fixed, **other)
        inputs = load_job(path, JobOptions())
        plans[name, ""] = plan_of_layouts(inputs, placed_layouts(inputs, True), orders=ORDERS.get(name, ()))
    return plans, run_all(4, plans)


@pytest.mark.parametrize(("placed", "read"), soaked(CASES, OFTEN))
def test_each_placement_trains_as_one_process_does(trained, placed, read):
    """Whatever the batch reads: an encoder without any item has neither passes nor gradients, and holds up nobody."""
    name = placed, read
    plans, results = trained
    require_those_of_one_process(plans[name], results[name].verify)


@pytest.mark.parametrize("other", soaked(OTHERS, ["a long image", "served"]))
def test_long_images_and_those_of_several_micro_batches_train_as_one_process_does(trained, other):
    plans, results = trained
    require_those_of_one_process(plans[other, ""], results[other, ""].verify)


def test_long_images_and_videos_are_split(tmp_path):
    image, video = (
        plan_together(load_job(placed_job(tmp_path, fixed, **other), JobOptions()))
        for fixed, other in (OTHERS["a long image"], OTHERS["a long video"])
    )
    assert [group.split for name, group in image.groups.items() if name == "vit.g0-3"] == [{"ulysses": 4}]
    assert {"vit.g0-3", "vit.dp1"} <= {*image.steps[0].micro_batches[0]["vit"]}  # rank 1 is in both
    assert video.groups["vit.g2-3"].split == {"ulysses": 2}
