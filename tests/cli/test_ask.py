"""`planner ask` answers a question of one line as `planner solve` would the job that it writes; `init` asks for it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from planner import files
from planner.cli.app import app
from planner.errors import InputError
from planner.plan.plan_file import Plan
from planner.specs.inputs import JobOptions, load_job
from planner.specs.job import Job
from planner.specs.named_files import read_cluster
from planner.workflows.questions import Question, write_question
from tests.hf.configs import LLAMA_8B

SMALL = ("--model", "llama-3-8b", "--gpus", "8xh100", "--seq", "4096", "--batch", "16", "--effort", 1)


def planner(*words: object, code: int = 0, given: str | None = None):
    done = CliRunner().invoke(app, [*map(str, words)], input=given)
    assert done.exit_code == code, (done.output, done.exception)
    return done


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.soak
def test_a_question_is_answered_as_its_job_is_solved(here):
    answer = json.loads(planner("ask", *SMALL, "--json").stdout)
    folder = Path("llama-3-8b-8xh100-4096x16")
    assert answer["plan"] == str(folder / "plan.yaml") and answer["job"] == str(folder / "job.yaml")
    solved = json.loads(planner("solve", folder / "job.yaml", "-o", "again.yaml", "--effort", 1, "--json").stdout)
    assert files.read("again.yaml", Plan) == files.read(folder / "plan.yaml", Plan)
    assert {key: answer[key] for key in solved if key not in ("plan", "seconds", "steps")} == {
        key: value for key, value in solved.items() if key not in ("plan", "seconds", "steps")
    }
    job = files.read(folder / "job.yaml", Job)
    assert (job.strategy, job.workload.lengths, job.workload.batch_rows, job.software) == ("best", 4096, 16, "planner")


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """The folder that a question wrote, and what it printed."""
    folder = tmp_path_factory.mktemp("asked")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        return folder / "asked", planner("ask", *SMALL, "-o", "asked").stdout


def test_the_same_question_is_the_same_job_and_another_does_not_overwrite_it(here):
    planner("init", given=ANSWERS)
    before = Path("mine/job.yaml").read_text()
    planner("init", given=ANSWERS)
    assert Path("mine/job.yaml").read_text() == before
    done = CliRunner().invoke(app, ["init"], input=ANSWERS.replace("4096", "2048"))
    assert done.exit_code and "there is another file already" in str(done.exception)
    assert Path("mine/job.yaml").read_text() == before


ANSWERS = "llama-3-8b\n8xh100\n\n4096\n16\n\nmine\n"


@pytest.mark.slow
def test_init_asks_the_same_one_by_one(here, asked):
    said = planner("init", given=ANSWERS).stdout
    assert "planner solve mine/job.yaml" in said
    for name in ("job.yaml", "cluster.yaml"):
        assert Path("mine", name).read_text() == (asked[0] / name).read_text().replace("asked", "mine")


def test_init_asks_again_after_a_wrong_answer(here):
    wrong = ANSWERS.replace("llama-3-8b", "lama-3-8b\nllama-3-8b").replace("8xh100", "many\n8xh101\n8xh100")
    said = planner("init", given=wrong).output
    assert "did you mean `llama-3-8b`" in said and "no number of GPUs" in said and "no device is called `h101`" in said
    assert files.read("mine/job.yaml", Job).model == "llama-3-8b"


@pytest.mark.parametrize(
    ("words", "nodes", "per_node", "far"),
    [
        (("--gpus", "64xh100"), 8, 8, 50),
        (("--gpus", "64xh100", "--nodes", "16", "--nics", "4x200Gb"), 16, 4, 25),
        (("--gpus", "4xh100"), 1, 4, None),
        (("--gpus", "12xh100", "--nics", "8x400Gb"), 1.5, 8, 50),
        (("--gpus", "144xgb200"), 2, 72, 50),
    ],
)
def test_gpus_are_of_the_whole_cluster(here, words, nodes, per_node, far):
    given = {words[number].removeprefix("--"): words[number + 1] for number in range(0, len(words), 2)}
    given["nodes"] = int(given["nodes"]) if "nodes" in given else None
    write_question(Question(model="llama-3-8b", lengths="4096", batch=16, **given), Path("q"))
    cluster, _ = read_cluster("q/cluster.yaml")
    assert (cluster.size, cluster.ranks[0].per_node) == (nodes * per_node, per_node)
    assert [level.gb_per_s for level in cluster.levels[1:]] == ([far] if far else [])
    assert load_job("q/job.yaml", JobOptions()).cluster == cluster


def test_a_model_of_hugging_face_and_lengths_of_a_file(here):
    Path("config.json").write_text(json.dumps(LLAMA_8B))
    Path("lengths.txt").write_text("100\n200\n" * 20)
    asked = {"gpus": "8xh100", "lengths": "lengths.txt", "software": "any"}
    write_question(Question(16, hf=Path("config.json"), **asked), Path("mine"))
    assert {path.name for path in Path("mine").iterdir()} >= {"model.yaml", "job.yaml"}
    inputs = load_job("mine/job.yaml", JobOptions())
    assert set(inputs.batches[0].items.values()) == {100, 200} and inputs.job.software == "any"


SEEN = Question(model="qwen2.5-omni-7b", gpus="8xh200", batch=4, seq=100)


@pytest.mark.parametrize(
    ("images", "audio", "line"),
    [
        ("1280x960", "", '"images": [[1280, 960]]'),
        ("1280x960+640x480", "7.2", '"images": [[1280, 960], [640, 480]], "audio": [7.2]'),
        ("64x64*3", "7.2+3*2", '"images": [[64, 64], [64, 64], [64, 64]], "audio": [7.2, 3, 7.2, 3]'),
        ("", "", '"images": []'),
    ],
)
def test_samples_are_those_of_a_file_that_says_the_same(here, images, audio, line):
    given = load_job(str(write_question(replace(SEEN, images=images, audio=audio), Path("asked"))), JobOptions())
    Path("same.jsonl").write_text(f'{{"text": 100, {line}}}\n' * 4)
    said = load_job(str(write_question(replace(SEEN, seq=None, lengths="same.jsonl"), Path("said"))), JobOptions())
    assert given.batches == said.batches and (given.module, given.job.strategy) == ("llm", "modality_layout")
    assert all(bool(given.batches[0].streams[name]) == bool(of) for name, of in (("vision", images), ("audio", audio)))


def test_what_is_left_out_is_as_usual(here, caplog):
    """Of two A100 the one with more memory, 8 samples a GPU, and 512 tokens of text beside an image."""
    question = Question(None, model="qwen2.5-vl-7b", gpus="32xa100", images="1280x960")
    inputs = load_job(str(write_question(question, None)), JobOptions())
    assert inputs.sources["job"].parent.name == "qwen2.5-vl-7b-32xa100-1280x960-512x256"
    assert [*inputs.devices] == ["a100-80gb"] and "a100 is taken as a100-80gb" in caplog.text
    assert [*inputs.batches[0].items.values()] == [512 + 1564] * 256


@pytest.mark.parametrize(
    ("words", "message", "fix"),
    [
        ("--model llama-3-8b --gpus 8xh100 --images 1280x960", "no module of llama-3-8b reads one", "leave images out"),
        ("--model qwen2.5-vl-7b --gpus 8xh100 --audio 7.2", "no module of qwen2.5-vl-7b reads one", "leave sound out"),
        ("--model qwen2.5-vl-7b --gpus 8xh100 --images 1280", "`1280` is neither sizes", "1280x960*4"),
        ("--model qwen2.5-vl-7b --gpus 8xh100 --images coc", "`coc` is neither", "did you mean `coco`"),
        ("--model qwen2.5-vl-7b --gpus 8xh100 --images 0x9", "no size of an image", "at least 1"),
        ("--model qwen2.5-vl-7b --gpus 8xh100 --images 9x9*0", "says no number of times", "1280x960*4"),
        ("--model qwen2.5-omni-7b --gpus 8xh100 --audio 0", "0 seconds are no length", "--audio 7.2"),
        ("--model qwen2.5-vl-7b --gpus 8xh100", "no lengths are given", "--seq 8192"),
        ("--model t5-11b --gpus 8xh100 --seq 512", "samples have nothing for `encoder`", "workload.streams"),
        ("--gpus 8xh100 --seq 1", "no model", "--model llama-3-8b"),
        ("--model lama-3-8b --gpus 8xh100 --seq 1", "`lama-3-8b`", "did you mean"),
        ("--model llama-3-8b --seq 1", "no cluster", "--gpus 64xh100"),
        ("--model llama-3-8b --gpus 8xh100", "no lengths", "--seq 8192"),
        ("--model llama-3-8b --gpus 8 --seq 1", "no number of GPUs", "8xh100"),
        ("--model llama-3-8b --gpus 8xh100 --lengths wikipdia", "wikipdia", "did you mean"),
        ("--model llama-3-8b --gpus 8xh100 --cluster h100x64 --seq 1", "both", "--gpus"),
        ("--model llama-3-8b --gpus 8xh100 --nodes 3 --seq 1", "3 nodes", "--nodes"),
        ("--model llama-3-8b --gpus 8xh100 --seq 1 --software megatronn", "megatronn", "did you mean"),
    ],
)
def test_a_question_that_is_not_whole_says_what_is_missing(here, words, message, fix):
    done = CliRunner().invoke(app, ["ask", "--batch", "1", *words.split()])
    assert message in done.exception.message and fix in done.exception.fix
    assert not [path for path in here.iterdir() if path.name != "cache"]


@pytest.mark.parametrize("gpus", ["16xcpu", "12xcpu"])
def test_nodes_that_nothing_joins_are_refused_before_anything_is_written(here, gpus):
    words = ("ask", "--model", "tiny-omni", "--gpus", gpus, "--seq", 64)
    refused = CliRunner().invoke(app, [*map(str, words)])
    assert isinstance(refused.exception, InputError) and refused.exception.where == "--nics"
    assert "--nics" in refused.exception.fix and not [*here.iterdir()]
    question = Question(None, "tiny-omni", gpus=gpus, seq=64, nics="1x10Gb")
    assert load_job(str(write_question(question, None)), JobOptions()).cluster.size == int(gpus[:2])
