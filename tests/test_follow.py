"""A plan as somebody else's trainer follows it: what it is told is what the runtime does, and its example trains."""

import io
import re
import subprocess
import sys
from contextlib import redirect_stdout
from importlib.util import module_from_spec, spec_from_file_location
from itertools import chain
from pathlib import Path
from runpy import run_path

import pytest

from planner.errors import InputError
from planner.files import write
from planner.follow import FollowedPlan, follow
from planner.launch.processes import launch
from planner.plan.plan_file import Group, Layout, Step
from planner.plan.tasks.expand import expand
from planner.plan.tokens.encoder_outputs import fed_spans
from planner.specs.base import Ranks, with_fields
from planner.specs.layers.components import Experts
from tests.plans import encoder_plan, plan_of, uses
from tests.runtime.training_worlds import DECODER, spread

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "docs" / "examples" / "follow_a_plan.py"
MOE = with_fields(DECODER, moe=Experts(experts=8, topk=2, ffn=16))
PIPELINE = spread(4, pp=2, dp=2, zero=1, rows=[[(0, 2), (1, 3)], [(0, 1, 2, 3)], [(0, 2)]])
PLANS = {
    "groups": spread(4, dp=4, zero=3, rows=[[(0, 1), (2,)], [(0, 1, 2, 3)], [(3,)]]),
    "pipeline": PIPELINE,
    "chunks": spread(4, dp=2, pp=2, rank_order="pp-dp", vpp=2, zero=1, rows=[[(0, 1, 2, 3)]] * 4),
    "tensor": spread(8, dp=2, pp=2, tp=2, rank_order="tp-pp-dp", zero=1),
    "ring": spread(4, dp=4, zero=3, splits={(0, 1, 2, 3): {"ulysses": 2, "ring": 2}}),
    "experts": spread(4, MOE, replica=2, dp=2, zero=1, ep=2),
}
FED = encoder_plan()
every = pytest.mark.parametrize("name", PLANS)


@every
def test_tasks_are_those_of_all_ranks_in_one_order(name):
    plan = PLANS[name]
    followed, tasks = FollowedPlan(plan), expand(plan)
    for rank in range(plan.size):
        own = followed.tasks(rank)
        assert [task.id for task in own] == [task.id for task in tasks if rank in task.ranks]
    assert {task.id for rank in range(plan.size) for task in followed.tasks(rank)} == {task.id for task in tasks}


@every
def test_ranks_of_a_group_share_its_tokens_out(name):
    """Each token of each item is on one rank of those that share it, and between layers on one rank of the stage."""
    plan = PLANS[name]
    followed = FollowedPlan(plan)
    for task in expand(plan):
        if task.phase != "F":
            continue
        want = [(item, token) for item, size in zip(task.items, task.sizes, strict=True) for token in range(size)]
        shares = {rank: followed.batch(rank, task) for rank in task.ranks}
        for share in shares.values():
            together = [shares[rank] for rank in share.ranks]
            assert sorted(chain.from_iterable(map(flat, (each.tokens for each in together)))) == want
            assert share.split.ulysses * share.split.ring == len(share.ranks)
            assert all(each.ranks == share.ranks for each in together)
        assert sorted(chain.from_iterable(flat(share.rows) for share in shares.values())) == want


def flat(spans):
    return [(span.item, token) for span in spans for token in range(span.first, span.last)]


@every
def test_places_and_layers_agree_with_the_tasks(name):
    plan = PLANS[name]
    followed = FollowedPlan(plan)
    layout = plan.layouts["llm"]
    places = {rank: followed.mesh("llm", rank) for rank in range(plan.size)}
    for rank, place in places.items():
        assert {dim: len(along.ranks) for dim, along in place.mesh.items()} == layout.mesh
        for dims in ("mesh", "experts"):
            for dim, along in getattr(place, dims).items():
                assert along.ranks[along.index] == rank
                others = [getattr(places[other], dims) for other in along.ranks]
                assert [other[dim].index for other in others] == [*range(len(along.ranks))]
                apart = [[each.index for key, each in other.items() if key != dim] for other in others]
                assert all(each == apart[0] for each in apart)
        computed = {task.layers for task in followed.tasks(rank) if task.phase == "F"}
        assert {*followed.layers("llm", rank)} == computed
        assert set(place.experts) == ({"edp", "ep", "etp"} if layout.ep * layout.etp > 1 else set())


@every
def test_every_group_that_a_rank_needs_is_made(name):
    """Those of its meshes, those it shares sequences with, and all ranks of a stage; in one order without repeats."""
    plan = PLANS[name]
    followed = FollowedPlan(plan)
    groups = followed.groups()
    assert list(groups) == sorted(set(groups)) and all(len(ranks) > 1 for ranks in groups)
    for rank in range(plan.size):
        place = followed.mesh("llm", rank)
        needed = {along.ranks for dim, along in (place.mesh | place.experts).items() if dim != "pp"}
        for task in followed.tasks(rank):
            if task.phase in ("gather", "sync", "update"):
                needed.add(task.ranks)
            if task.phase == "F" and task.ring == 1:
                needed.add(followed.batch(rank, task).ranks)
        assert {ranks for ranks in needed if len(ranks) > 1} <= set(groups)


def test_targets_are_the_tokens_of_a_step():
    for plan in PLANS.values():
        assert FollowedPlan(plan).targets("llm") == sum(plan.uses.items["llm"].values())


@pytest.mark.parametrize("loss", ["token", "sample", "square_root"])
def test_shares_of_all_targets_add_up_to_one(loss):
    for plan in (*PLANS.values(), FED):
        followed = FollowedPlan(with_fields(plan, uses=with_fields(plan.uses, loss=loss)))
        counts, shares = followed.item_targets("llm", 0), followed.target_shares("llm")
        assert sum(share * counts[item] for item, share in shares.items()) == pytest.approx(1, rel=1e-12)
        powers = {"token": 0, "sample": 1, "square_root": 0.5}
        alike = {round(share * counts[item] ** powers[loss], 12) for item, share in shares.items() if counts[item]}
        assert len(alike) == 1 and sum(counts.values()) == followed.targets("llm")


def test_tokens_that_encoders_make_have_no_target():
    followed = FollowedPlan(FED)
    made = sum(FED.uses.items["vit"].values())  # an output for each
    assert followed.targets("llm") == sum(FED.uses.items["llm"].values()) - made > 0
    with pytest.raises(InputError, match="`vit` feeds another module"):
        followed.targets("vit")


def test_routes_bring_every_output_to_the_row_that_it_stands_for():
    """Of the outputs of a rank, to the rows of another: each row that is read comes from one place."""
    followed = FollowedPlan(FED)
    tasks = {task.id: task for task in expand(FED)}
    places, brought = fed_spans(FED), []
    for send in (task for task in tasks.values() if task.phase == "send" and ">" in task.group):
        encoder = next(tasks[id] for id in tasks[send_of_outputs(send, tasks)].after if "/F/" in id)
        routes = followed.routes(send)
        assert routes == followed.routes(next(task for task in tasks.values() if send.id in task.after))
        for route in routes if send.of == "F" else ():
            outputs = flat(followed.batch(route.source, encoder).rows)
            rows = flat(followed.batch(route.target, tasks[route.reader]).rows)
            (place,) = places["vit", route.item]
            for by, number in enumerate(range(route.first, route.last)):
                assert outputs[route.at + by] == (route.item, number)
                assert rows[route.to + by] == (place.target[1], place.first + number)
                brought.append((route.item, number))
    assert sorted(brought) == [(item, n) for item, size in FED.uses.items["vit"].items() for n in range(size)]


def send_of_outputs(send, tasks):
    cell = (send.module, send.micro_batch, send.group)
    return next(
        task.id
        for task in tasks.values()
        if (task.phase, task.of) == ("send", "F") and (task.module, task.micro_batch, task.group) == cell
    )


def test_what_is_not_there_is_refused_by_name(tmp_path):
    followed = FollowedPlan(PIPELINE)
    last = next(task for task in followed.tasks(3) if task.layers[0])
    crossing = next(task for task in FollowedPlan(FED).tasks(0) if ">" in task.group)
    for call, says in (
        (lambda: followed.tasks(4), "no rank 4"),
        (lambda: followed.tasks(0, 1), "no step 1"),
        (lambda: followed.targets("llm", 1), "no step 1"),
        (lambda: followed.targets("vit"), "no module `vit`"),
        (lambda: followed.layers("vit", 0), "no module `vit`"),
        (lambda: followed.layers("llm", 4), "no rank 4"),
        (lambda: followed.routes(last), "not between two modules"),
        (lambda: FollowedPlan(FED).batch(0, crossing), "between two modules"),
        (lambda: followed.mesh("vit", 0), "no module `vit`"),
        (lambda: followed.batch(0, last), "rank 0 does not execute"),
        (lambda: follow(tmp_path / "none.yaml"), "cannot read the file"),
    ):
        with pytest.raises(InputError, match=says) as refused:
            call()
        assert refused.value.where


def test_following_loads_no_torch():
    code = "import sys, planner.follow; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


# ---------------------------------------------------------------------------------------------------------- the example


def losses(plan, path):
    """What the example prints of this plan."""
    write(path, plan)
    return [float(each) for each in re.findall(r"loss (\S+)", launch(said_by_the_example, plan.size, path)[0])]


def said_by_the_example(worker, path):
    """As torchrun starts it: the environment says which rank this is."""
    sys.argv = [str(EXAMPLE), str(path)]
    with redirect_stdout(io.StringIO()) as said:
        run_path(str(EXAMPLE), run_name="__main__")
    return said.getvalue()


def alone(plan):
    """The same items on one rank."""
    items, layout = plan.uses.items["llm"], Layout(ranks=Ranks((0,)), dp=1, dtype="float64")
    step = Step(sync="step", micro_batches=tuple({"g": (item,)} for item in items))
    return plan_of(1, uses(1, {"llm": DECODER}, {"llm": items}), {"llm": layout}, {"g": Group(ranks=Ranks((0,)))}, step)


def test_the_example_refuses_what_it_does_not_do():
    spec = spec_from_file_location("follow_a_plan", EXAMPLE)
    example = module_from_spec(spec)
    spec.loader.exec_module(example)
    whole = spread(2, dp=2, zero=3, rows=[[(0, 1)]], splits={(0, 1): {"ring": 2}})
    parted = spread(2, pp=2, zero=1, order="zb_h1", rows=[[(0, 1)]] * 2)
    for plan, says in (
        (PLANS["tensor"], "tensor"), (PLANS["ring"], "ring"), (PLANS["experts"], "experts"),
        (whole, "ring"), (parted, "I, W"), (FED, "one module"),
    ):  # fmt: skip
        assert says in example.unfit(plan)
    assert example.unfit(PLANS["groups"]) == example.unfit(PIPELINE) == ""


def test_the_example_refuses_a_world_of_another_size(monkeypatch):
    spec = spec_from_file_location("follow_a_plan", EXAMPLE)
    example = module_from_spec(spec)
    spec.loader.exec_module(example)
    size = PIPELINE.size
    for processes, fits in ((str(size), True), (str(size + 1), False), ("1", size == 1)):
        monkeypatch.setenv("WORLD_SIZE", processes)
        assert fits == (example.unlike_world(PIPELINE) == "")
    assert f"--nproc-per-node {size}" in example.unlike_world(PIPELINE)


@pytest.mark.slow
def test_the_example_trains_as_one_process(tmp_path):
    """Its third loss comes from two updates: of gradients that went through groups, a pipeline, and a sum."""
    spread_out, want = losses(PIPELINE, tmp_path / "plan.yaml"), losses(alone(PIPELINE), tmp_path / "alone.yaml")
    assert spread_out == pytest.approx(want, rel=1e-12)
    assert want[2] < want[1] < want[0]
