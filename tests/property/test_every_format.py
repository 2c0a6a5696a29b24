"""Whatever is done to a file of any format, it reads, or each thing that is wrong with it has a line and a fix."""

import random
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from planner import files
from planner.cli.app import app
from planner.errors import InputError, PlannerError
from planner.plan.formats import FORMATS
from planner.plan.plan_file import Plan
from planner.plan.step_files import StepFile
from planner.policies import schedule_jobs
from planner.specs.cluster_jobs.actions_file import PolicyChoice
from planner.specs.hardware.cluster import Cluster
from planner.specs.hardware.node_cluster import NodeCluster
from planner.specs.library import shipped_folder
from tests.cluster_jobs import fleet_of, random_jobs
from tests.property.test_mutants import PLANS, damaged, mutated, only_planner_errors

FOLDERS = {"job": "jobs", "model": "models", "cluster": "clusters", "profile": "devices", "software": "software"}
NODES = "format: planner.cluster/1\nname: mine\nnodes: 8\ngpus: 8xh100\nnics: 8x400Gb\nusd_per_hour: 2.5\n"
THRESHOLDS = (
    "format: planner.check/1\nvalue: 2%\nmemory: 5%\ncases:\n  llama: {value: 3%, gap: 0.01}\n  qwen: {memory: 0.1}\n"
)
ODD_WORDS = (
    *(".nan", "-.inf", "1e999", "9" * 40, "-1", "0x10", "Ü😀", "'\\u2028'", '"\\u0000"', "!!python/none"),
    *("{", "[[", "? "),
)
LOCATED = re.compile(r"file:\d+(:\d+)?( |$)")


TABLES = """\
format: planner.tables/1
name: two
reuse: [{rows: 0.9, lookups: 0.2}, {rows: 0.1, lookups: 0.8}]
tables:
  users: {rows: 1000000, dim: 64, pooling: 3.5, skew: 1.1}
  items: {rows: 20000, dim: 128, dtype: fp16, optimizer: adam, hits: [0.3, 0.6]}
"""


LOADER = Path(__file__).parents[1] / "golden/loader_stages/bgl/loader.yaml"


def texts_of(name: str) -> list[str]:
    """Files of a format that are right."""
    if name == "plan":
        return sorted(PLANS, key=len)[:2]
    if name == "step":
        return [step_text()]
    if name == "actions":
        return [decisions_text()] * 2
    if name == "check":
        return [THRESHOLDS] * 2
    if name == "loader":
        return [LOADER.read_text()] * 2
    if name == "tables":
        return [TABLES] * 2
    shipped = [path.read_text() for path in sorted((shipped_folder() / FOLDERS[name]).glob("*.yaml"))]
    return shipped + [NODES] * (3 if name == "cluster" else 0)


def decisions_text() -> str:
    fleet = fleet_of(a=4, b=4)
    return files.dump(schedule_jobs(random_jobs(1, fleet, 2), fleet, PolicyChoice(order="srtf", restart_s=9.0)).file())


def step_text() -> str:
    plan = files.parse(min(PLANS, key=len), Plan, "plan")
    step = StepFile(
        format=StepFile.FORMAT,
        head="0" * 16,
        number=1,
        first_row=8,
        effort=2,
        step=plan.steps[0],
        feeds={"vit": {0: 1, 1: (1, 2)}},
        left_out={"vit": (2,)},
        items=plan.uses.items,
    )
    return files.dump(step)


def misspelt(text: str, chance: random.Random) -> str:
    """A word replaced by another, misspelt, or by one that no format takes."""
    words = [*re.finditer(r"[\w.]+", text)]
    for word in sorted(
        chance.sample(words, min(len(words), chance.choice([1, 1, 2, 8]))), key=lambda each: -each.start()
    ):
        letters = [*word.group()]
        chance.shuffle(letters)
        new = chance.choice([word.group()[1:], word.group() + "s", "".join(letters), *chance.sample(ODD_WORDS, 2)])
        text = text[: word.start()] + new + text[word.end() :]
    return text


def changed(text: str, chance: random.Random) -> str:
    kind = chance.choice(("data", "bytes", "words", "words"))
    if kind == "words":
        return misspelt(text, chance)
    return mutated(text, chance) if kind == "data" else damaged(text, chance).decode("utf-8", "replace")


def check(name: str, count: int, seed: int) -> None:
    """Every changed file of a format reads, or says where it does not."""
    chance, texts = random.Random(seed), texts_of(name)
    for _ in range(count):
        text = changed(chance.choice(texts), chance)
        form = FORMATS[name][0]
        if form is Cluster and not re.search(r"^(ranks|levels)\b", text, re.MULTILINE):
            form = NodeCluster
        try:
            files.parse(text, form, "file")
        except PlannerError as error:
            assert isinstance(error, InputError) and error.exit_code == 2
            for each in error.errors:
                assert LOCATED.match(each.where) and each.message and each.fix, (each.where, text)
                assert len(str(each).splitlines()) == 3, str(each)


@pytest.mark.parametrize("name", FORMATS)
def test_the_files_are_right_as_they_stand(name):
    for text in texts_of(name):
        files.parse(text, NodeCluster if text == NODES else FORMATS[name][0], "file")


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_changed_files_of_every_format(name):
    check(name, 20, seed=1)


@pytest.mark.soak
@pytest.mark.parametrize("name", FORMATS)
def test_ten_thousand_changed_files_of_every_format(name):
    for seed in range(2, 12):
        check(name, 1000, seed)


@pytest.mark.parametrize("seed", range(12))
def test_the_command_ends_with_an_error_of_the_input_or_an_answer(tmp_path, monkeypatch, seed):
    """Of a job and its cluster: the exit code is 2, or that of an answer, and no other exception escapes."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    chance = random.Random(seed)
    job = "format: planner.job/1\nname: s\nmodel: llama-3-8b\ncluster: ./cluster.yaml\nsoftware: megatron\n"
    job += "workload: {lengths: 512, batch_rows: 8}\nlayout: {tp: 8}\nstrategy: parallel_search\n"
    texts = {"job.yaml": job, "cluster.yaml": NODES}
    name = chance.choice([*texts])
    texts[name] = changed(texts[name], chance)
    for file, text in texts.items():
        Path(tmp_path / file).write_text(text)
    with only_planner_errors():
        done = CliRunner().invoke(app, ["predict", str(tmp_path / "job.yaml"), "--json"])
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
