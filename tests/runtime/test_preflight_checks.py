"""What cannot be run is refused before anything is launched, with the reason and a way out."""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch

from planner.errors import InputError
from planner.files import write
from planner.plan.plan_file import Group, Layout, OffloadedItem, Step
from planner.runtime import RunOptions, run
from planner.runtime.preflight.preflight_checks import require_runnable
from planner.runtime.run_options import TrainingOptions
from planner.specs.base import Ranks, with_fields
from planner.specs.hardware.cluster import RankKind
from planner.specs.hardware.profile import Device
from planner.specs.layers import Decoder, Vit
from planner.specs.layers.components import Experts
from tests.plan.schedules.made import ordered_plan
from tests.plans import plan_of, sharded_plan, staged_plan, uses

ROOT = Path(__file__).parents[2]
WHOLE = Layout(ranks=Ranks((0, 1)), dp=2, zero=3)
PAIR = Group(ranks=Ranks((0, 1)), split={"ulysses": 2})
DECODER = Decoder(layers=1, hidden=16, heads=8, ffn=16, vocab=16)


def plan_with(layout=WHOLE, group=PAIR, spec=DECODER, entry=0, tokens=8):
    return plan_of(
        2,
        uses(2, {"llm": spec}, {"llm": {0: tokens}}),
        {"llm": layout},
        {"g": group},
        Step(sync="micro_batch", micro_batches=({"g": (entry,)},)),
    )


def on_gpus(plan, count):
    device = Device(kind="cuda", memory_gib=80.0, tflops={"bf16": 1.0}, memory_gb_per_s=10.0)
    kinds = (RankKind(kind="toy", count=count, per_node=8),)
    return with_fields(plan, ranks=kinds, uses=with_fields(plan.uses, devices={"toy": device}))


VIT = {"layers": 1, "hidden": 16, "heads": 8, "ffn": 16, "patch": 2, "out": 8}
EXPERTS = with_fields(DECODER, moe=Experts(experts=2, topk=1, ffn=4))
ODD_EXPERTS = with_fields(
    DECODER, hidden=15, head_dim=2, bias="all", moe=Experts(experts=2, topk=1, ffn=4)
)  # the bias of their outputs is odd, too
REFUSED = {
    "15 wide, cannot be sharded": plan_with(layout=with_fields(WHOLE, etp=2), spec=ODD_EXPERTS),
    "fp8 cannot be run": plan_with(layout=with_fields(WHOLE, dtype="fp8")),
    "tensor parallelism without sequence": plan_with(layout=with_fields(WHOLE, dp=1, tp=2, sequence_parallel=False)),
    "one copy of a token to each node": plan_with(layout=with_fields(WHOLE, ep=2, dispatch="node_level"), spec=EXPERTS),
    "exchanges of tp and ep beside compute": plan_with(layout=with_fields(WHOLE, overlap=("tp", "ep"))),
    "item 0 has 6 tokens": plan_with(spec=Vit(**VIT, merge=2), tokens=6),
    "3 learned positions": plan_with(spec=with_fields(DECODER, positions="learned", max_positions=3)),
}  # fmt: skip


@pytest.mark.parametrize("says", REFUSED)
def test_it_is_refused(says):
    with pytest.raises(InputError) as refused:
        require_runnable(REFUSED[says], RunOptions())
    assert says in refused.value.message
    assert refused.value.fix


ACCEPTED = [
    plan_with(),
    plan_with(with_fields(WHOLE, ranks=Ranks((0,)), dp=1), Group(ranks=Ranks((0,)))),
    staged_plan(2, 2),
    plan_with(entry=OffloadedItem(item=0, offload=0.5)),
    plan_with(layout=with_fields(WHOLE, recompute="selective")),
    plan_with(layout=with_fields(WHOLE, dp=1, cp=2), group=Group(ranks=Ranks((0, 1)))),
    plan_with(layout=with_fields(WHOLE, sequence_parallel=False)),  # of one rank of tp there are no others
    ordered_plan(1, 2, ("F0 I0 F1 B1 W0",)),
    ordered_plan(1, 2, "forward_only"),
    sharded_plan(4, [[(0, 4)], [(0, 2), (2, 1)]]),
]


@pytest.mark.parametrize("plan", ACCEPTED)
def test_it_is_not_refused(plan):
    require_runnable(plan, RunOptions())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"steps": 0}, "0 steps"),
        ({"dtype": "int8"}, "dtype is called `int8`"),
        ({"training": TrainingOptions(learning_rate=float("nan"))}, "rate"),
        ({"training": TrainingOptions(schedule="square")}, "no schedule is called `square`"),
        ({"training": TrainingOptions(warmup=-1)}, "warm-up"),
        ({"training": TrainingOptions(clip=0.0)}, "a norm of 0.0"),
        ({"training": TrainingOptions(betas=(0.9, 1.0))}, "betas"),
        ({"training": TrainingOptions(decay=-0.1)}, "decay by -0.1"),
        ({"max_seconds": 0.0}, "invalid time limit of 0.0 s"),
        ({"metrics": Path(__file__).parent}, "a folder, not a file"),
        ({"metrics": Path(__file__) / "metrics.jsonl"}, "cannot make the folder"),
        ({"save": Path(__file__)}, "this is no folder"),
    ],
)
def test_impossible_options(options, says):
    with pytest.raises(InputError, match=says):
        run(plan_with(), RunOptions(**options), print)


def test_a_plan_for_another_machine():
    count = torch.cuda.device_count() + 2
    with pytest.raises(InputError, match=f"another machine: it wants {count} of toy") as refused:
        run(on_gpus(plan_with(), count), RunOptions(), print)
    assert refused.value.where == "toy (ranks)"


def test_it_says_where_in_the_plan_s_file_or_which_option():
    with pytest.raises(InputError) as refused:
        require_runnable(REFUSED["fp8 cannot be run"], RunOptions(source="my/plan.yaml"))
    assert refused.value.where == "my/plan.yaml (layouts.llm.dtype)"
    with pytest.raises(InputError) as refused:
        require_runnable(REFUSED["item 0 has 6 tokens"], RunOptions(source="my/plan.yaml"))
    assert refused.value.where == "my/plan.yaml (uses.models.llm)"
    with pytest.raises(InputError) as refused:
        require_runnable(plan_with(), RunOptions(source="my/plan.yaml", training=TrainingOptions(clip=0.0)))
    assert refused.value.where == "--clip"


def test_what_needs_no_torch_is_refused_without_importing_it():
    program = """
import sys
from planner.errors import InputError
from planner.runtime import RunOptions, TrainingOptions, run
from planner.plan.plan_file import Plan
from planner import files
plan = files.read(sys.argv[1], Plan)
for options in (RunOptions(steps=0), RunOptions(training=TrainingOptions(clip=0.0)), RunOptions()):
    try:
        run(plan, options, print)
    except InputError:
        assert "torch" not in sys.modules
    else:
        raise SystemExit("not refused")
"""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "plan.yaml"
        write(path, REFUSED["exchanges of tp and ep beside compute"])
        done = subprocess.run([sys.executable, "-c", program, str(path)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_an_illegal_plan():
    plan = plan_with()
    with pytest.raises(InputError, match="illegal plan: item 1 of `llm` is assigned nowhere"):
        run(with_fields(plan, uses=with_fields(plan.uses, items={"llm": {0: 8, 1: 8}})), RunOptions(), print)
