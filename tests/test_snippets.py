"""What documents show can be typed: commands parse, files read, Python names what there is, output is what comes."""

import ast
import shlex
import shutil
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
import typer
import yaml

from planner import files
from planner.cli.app import app
from planner.plan.formats import FORMATS
from tests.documents import DOCS, HOME, PAGES, Block, blocks, commands, name_of, shown, spans
from tests.examples import soaked
from tests.typed import typed

VERBS = typer.main.get_command(app).commands
BLOCKS = [block for page in PAGES for block in blocks(page)]
YAML = [block for block in BLOCKS if block.language == "yaml"]
PYTHON = [block for block in BLOCKS if block.language == "python" and block.page != "CONTRIBUTING.md"]
RUN = (HOME / "README.md", DOCS / "start.md", DOCS / "looking.md")  # pages whose output is compared
TRAINING = ("planner run", "planner demo")  # whose times are measured, and differ
WHOLE = {"job", "cluster", "model", "profile", "software"}  # formats of which a block is a whole file


def identity(block: Block) -> str:
    return f"{block.page}: {block.text.partition(chr(10))[0]}"


@pytest.mark.parametrize("command", {line: None for page in PAGES for line in commands(page)})
def test_a_command_in_a_block_parses(command):
    _, verb, *words = shlex.split(command)
    assert verb in VERBS
    VERBS[verb].make_context(verb, words)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_command_in_the_text_has_a_verb_and_options_that_there_are(page):
    for span in spans(page):
        verb, *words = span.split()[1:]
        if verb[0] == "-" or not verb[0].isalpha() or verb == "VERB":  # planner --help, planner …
            continue
        assert verb in VERBS, span
        known = {each for parameter in VERBS[verb].params for each in parameter.opts} | {"--help"}
        assert {word.partition("=")[0] for word in words if word.startswith("--")} <= known, span


@pytest.mark.parametrize("block", YAML, ids=identity)
def test_yaml_reads_and_a_whole_file_is_one(block):
    data = yaml.safe_load(block.text.replace("…", "~"))
    kind = str(data.get("format", "")).removeprefix("planner.").partition("/")[0] if isinstance(data, dict) else ""
    if kind in WHOLE:
        forms = FORMATS[kind]
        (form,) = (each for each in forms if len(forms) == 1 or {*data} <= {*each.__struct_fields__})
        files.parse(block.text, form, block.page)


@pytest.mark.parametrize("block", PYTHON, ids=identity)
def test_python_names_what_there_is(block):
    tree = ast.parse(block.text)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("planner"):
            module = import_module(str(node.module))
            for alias in node.names:
                assert hasattr(module, alias.name) or import_module(f"{node.module}.{alias.name}")
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "pipeline":
            assert hasattr(import_module("planner.pipeline"), node.attr), node.attr


@pytest.fixture(scope="module")
def run_once(tmp_path_factory):
    """A folder, and a function that runs a command there: what several pages show once."""
    folder = tmp_path_factory.mktemp("pages")
    shutil.copy(DOCS / "examples/own-model/config.json", folder)
    return folder, cache(lambda command: planner(command, folder))


@pytest.mark.slow
@pytest.mark.parametrize("page", soaked(RUN, RUN[::2]), ids=name_of)
def test_output_is_what_comes(page, run_once, tmp_path, monkeypatch):
    """Every line that is shown comes, in that order. Commands run one after the other in one folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder, run = run_once
    compared = [each for each in shown(page) if not each.command.startswith(TRAINING)]
    assert compared
    for each in compared:
        write_today(page, folder)
        lines = iter(run(each.command))
        for line in each.lines:
            assert line in lines, f"{each.page} shows of `{each.command}` what does not come: {line}"


@pytest.mark.slow
def test_the_first_plan_of_the_page_on_plan_files_is_what_comes(tmp_path, monkeypatch):
    """Its job, solved: every part of the file that is shown is in it, and every edit gives the output that is shown."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    page = DOCS / "plan-file.md"
    (first, second), parts = whole_jobs(page), [each.text for each in blocks(page) if each.language == "yaml"]
    (tmp_path / "job.yaml").write_text(first)
    (tmp_path / "pipeline.yaml").write_text(second)
    (tmp_path / "lengths.txt").write_text("700\n250\n240\n220\n120\n60\n")
    planner("planner solve pipeline.yaml -o static.plan.yaml", tmp_path)
    planner("planner solve job.yaml -o plan.yaml", tmp_path)
    plan = (tmp_path / "plan.yaml").read_text()
    assert all(part in plan for part in parts[1:5])
    for name, text in edits(plan).items():
        (tmp_path / name).write_text(text)
    for each in shown(page):
        if each.command.startswith("planner "):
            lines = planner(each.command, tmp_path)
            assert [line for line in each.lines if line not in lines and not line.startswith("solved in")] == []


def whole_jobs(page: Path) -> list[str]:
    return [each.text for each in blocks(page) if each.text.startswith("format: planner.job/1")][:2]


def edits(plan: str) -> dict[str, str]:
    """The edits by hand of docs/plan-file.md, by the name of their file."""
    first, second = "{g0-1: [1, 4, 5], g2: [2], g3: [3]}", "{g0-3: [0]}"
    moved = plan.replace(f"{first}, {second}", "{g0-1: [1, 4], g2: [2], g3: [3]}, {g0-3: [0, 5]}")
    illegal = plan.replace("{g0-1: [1, 4, 5], g2: [2]", "{g0-1: [1, 4], g2: [2, 5]")
    by_hand = "status: feasible", "status: by_hand"
    return {
        "stale.yaml": moved,
        "edited.yaml": moved.replace(*by_hand),
        "illegal.yaml": illegal.replace(*by_hand),
    }


def planner(command: str, folder: Path) -> list[str]:
    """The lines that a command prints in a folder, errors too."""
    printed = typed(command, folder)
    return [line.rstrip() for each in (printed.out, printed.errors) for line in each.splitlines()]


def write_today(page: Path, folder: Path) -> None:
    """The job with a layout of docs/start.md: the line that it says to add."""
    job = folder / "mine" / "job.yaml"
    lines = [block.text for block in blocks(page) if block.text.startswith("fix:")]
    if job.is_file() and lines:
        (folder / "mine" / "today.yaml").write_text(job.read_text() + lines[0])
