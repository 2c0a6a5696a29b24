"""Whatever is done to a file, only a PlannerError comes of it: no other exception, no hang, no exhausted memory.

Files are mutated twice over: as data (keys lost and repeated, values of other types, of other places, absurd in size)
and as bytes (cut short, bits flipped, pieces lost and repeated). What still reads and is legal is priced, and jobs are
solved.
"""

import copy
import random
import signal
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import files, pipeline
from planner.errors import PlannerError
from planner.files.yaml_text import load_yaml
from planner.plan.legal.plan_laws import violations
from planner.plan.plan_file import Plan, Prices, TaskPlacement
from planner.plan.schedules import schedule_slots
from planner.plan.schedules.explicit import slot_lines
from planner.scoring.score import score
from planner.specs.base import with_fields
from planner.specs.hardware.cluster import Cluster
from planner.specs.hardware.profile import ModuleCosts, PassCosts, PassFit, Profile
from planner.specs.inputs import JobOptions, resolve_job
from planner.specs.job import Job
from planner.specs.model import Model
from tests.examples import examples
from tests.plan.schedules.made import ordered_plan
from tests.plans import encoder_plan, sharded_plan, staged_plan

ROOT = Path(__file__).parents[2]
FORMATS = {"jobs": Job, "models": Model, "clusters": Cluster, "devices": Profile}
SPECS = [
    (kind, path.read_text()) for name, kind in FORMATS.items() for path in (ROOT / "profiles" / name).glob("*.yaml")
]
SECONDS = 60  # a case takes milliseconds: this is for machines that do other things too
ODD = [
    *(None, True, -1, 0, 1, 2, 3, 10**3, 10**9, 10**17, 10**30, -(10**17), 0.5, -0.0, 1e300, 1e-300, "x", "²", "\0"),
    *("0-3", "0-99999999", "5-3", "a: b {", "-", "nan", "all", "llm", "vit", "..", "/etc", "x" * 300, "./job.yaml"),
    *("vit.F0", "vit.F0[5-3]", "llm.F1@1", "llm[0-1]", "v0>llm", "idle0", "1f1b", "gpipe", "step"),
    *("zb_h1", "forward_only", "F0 F1 B0 B1", "F0 I0 W0", "F0@1 B0@1", "W0 I0 F0", ["F0 B0"], ["F0 F1 B0 B1", 3]),
    *([], {}, [1], {"a": 1}, [[[]]], {"llm": {}}, {"all": [0]}, {"item": 0, "offload": 0.5}),
]  # fmt: skip
JOB = """\
format: planner.job/1
name: small
model: ./model.yaml
cluster: ./cluster.yaml
profile: ./device.yaml
workload:
  lengths: {from: mix, parts: [{weight: 0.8, median: 196, sigma: 0.4}, {weight: 0.2, median: 900, sigma: 0.5}]}
  batch_rows: 12
  max_tokens: 2048
layout: {zero: 3, dtype: float32}
degrees: [1, 2, 4]
"""


def priced(plan: Plan) -> str:
    fit = PassFit(ms_per_token2=1e-5, ms_per_token=1e-3, ms=0.1)
    costs = ModuleCosts(
        source="analytic",
        spread=0.1,
        layer=PassCosts(forward=fit, backward=fit, activation_kib_per_token=1.0),
        update_ns_per_parameter=1.0,
    )
    prices = Prices(profile="made up", modules=dict.fromkeys(plan.layouts, costs))
    return files.dump(with_fields(plan, uses=with_fields(plan.uses, degrees=(1, 2, 4), prices=prices)))


PLANS = [
    priced(encoder_plan((TaskPlacement(do="vit.F1[0-1]", on="v1", beside="llm.send.F0@0"),))),
    priced(staged_plan(3, 4)),
    priced(ordered_plan(2, 4, "zb_h2", dp=2)),
    priced(ordered_plan(2, 2, slot_lines(schedule_slots("interleaved", 2, 2, 2), 2), 2)),
    priced(ordered_plan(2, 2, ("F0 I0 F1 W0 B1", "F0 B0 F1 I1 W1"), dp=2, zero=3)),
    priced(sharded_plan(4, [[(0, 2), (2, 1)], [(0, 4)]])),
    *(path.read_text() for path in sorted((ROOT / "tests/golden").rglob("plan.yaml"))),
]


@contextmanager
def only_planner_errors():
    """And within the time."""
    with in_time():
        try:
            yield
        except PlannerError as error:
            assert str(error)


@contextmanager
def in_time():
    """Within SECONDS. Pytest runs tests in the main thread, where signals are."""

    def late(*_):
        raise TimeoutError(f"this takes longer than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


# ------------------------------------------------------------------------------------------------------- mutations


def routes(data, route=()) -> list[tuple]:
    """The way to every value below the top."""
    found = [route] if route else []
    pairs = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in pairs:
        found += routes(value, (*route, key))
    return found


def at(data, route):
    for step in route:
        data = data[step]
    return data


def mutate(data, chance: random.Random) -> None:
    """One thing changed, somewhere."""
    everywhere = routes(data)
    if not everywhere:
        return
    route = chance.choice(everywhere)
    parent, key = at(data, route[:-1]), route[-1]
    value = parent[key]
    kind = chance.choice(("lose", "repeat", "odd", "odd", "elsewhere", "shape", "nudge"))
    if kind == "lose":
        del parent[key]
    elif kind == "repeat" and isinstance(parent, list):
        parent.insert(key, copy.deepcopy(value))
    elif kind == "repeat":
        parent[chance.choice([f"{key}x", "x", 5, -1, None, 1.5, True])] = copy.deepcopy(value)
    elif kind == "elsewhere":
        parent[key] = copy.deepcopy(at(data, chance.choice(everywhere)))
    elif kind == "shape" and isinstance(value, dict):
        parent[key] = list(value.values()) if chance.random() < 0.5 else dict(reversed(value.items()))
    elif kind == "shape" and isinstance(value, list):
        parent[key] = dict(enumerate(value)) if chance.random() < 0.5 else value[::-1]
    elif kind == "nudge" and isinstance(value, (int, float)):
        parent[key] = value + chance.choice([-1, 1, 2, -2])
    else:
        parent[key] = copy.deepcopy(chance.choice(ODD))


def mutated(text: str, chance: random.Random) -> str:
    data = load_yaml(text, "mutant")[0]
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        mutate(data, chance)
    return files.dump(data)


def damaged(text: str, chance: random.Random) -> bytes:
    data = bytearray(text.encode())
    for _ in range(chance.choice([1, 1, 2, 5])):
        place = chance.randrange(max(1, len(data)))
        kind = chance.choice(("cut", "flip", "lose", "repeat"))
        if kind == "cut":
            del data[place:]
        elif kind == "flip" and data:
            data[place] ^= 1 << chance.randrange(8)
        elif kind == "lose":
            del data[place : place + chance.randrange(20)]
        else:
            start = chance.randrange(max(1, len(data)))
            data[place:place] = data[start : start + chance.randrange(40)]
    return bytes(data)


CHANCES = st.integers(0, 2**32).map(random.Random)

# ----------------------------------------------------------------------------------------------------------- laws


def use(plan: Plan) -> None:
    """Legal plans are worth something, and read back."""
    if not violations(plan):
        for number in range(len(plan.steps)):
            assert score(plan, number).step_seconds >= 0
        assert files.parse(files.dump(plan), Plan, "again") == plan


@pytest.mark.soak
@examples(300)
@given(CHANCES)
def test_mutated_plans(chance):
    text = mutated(chance.choice(PLANS), chance)
    with only_planner_errors():
        use(files.parse(text, Plan, "plan"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("mutants")


@pytest.mark.slow
@examples(300)
@given(CHANCES)
def test_mutated_specs(chance):
    kind, text = chance.choice(SPECS)
    text = mutated(text, chance)
    with only_planner_errors():
        files.parse(text, kind, "spec")


@examples(300)
@given(chance=CHANCES)
def test_damaged_specs(folder, chance):
    kind, text = chance.choice(SPECS)
    (folder / "spec.yaml").write_bytes(damaged(text, chance))
    with only_planner_errors():
        files.read(folder / "spec.yaml", kind)


@pytest.mark.slow
@examples(150)
@given(chance=CHANCES)
def test_jobs_whose_files_are_mutated(folder, chance):
    cluster = (ROOT / "profiles/clusters/cpu-4.yaml").read_text().replace("kind: cpu", "kind: ./device.yaml")
    texts = {
        "job": JOB + chance.choice(["", "limits: {tokens_per_rank: 1024}\n", "fix: {items: {1: {degree: 2}}}\n"]),
        "model": (ROOT / "profiles/models/tiny-vit.yaml").read_text(),
        "cluster": cluster,
        "device": (ROOT / "profiles/devices/cpu.yaml").read_text(),
    }
    for _ in range(chance.choice([1, 1, 2])):
        name = chance.choice(sorted(texts))
        texts[name] = mutated(texts[name], chance)
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text)
    with only_planner_errors():
        job = files.read(folder / "job.yaml", Job)
        use(pipeline.decide(resolve_job(job, folder / "job.yaml", JobOptions(effort=1))).plan)
