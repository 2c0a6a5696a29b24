"""What CONTRIBUTING shows of each table is true: through its one line alone, the example works from the outside."""

import ast
import json
import re
import types
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from planner import export, files, hf, pipeline, scoring, strategies, targets
from planner.cli import app as cli
from planner.cli import options as cli_options
from planner.cli.verbs import export as cli_export
from planner.costs import objective
from planner.costs.layout_columns import LayoutColumns
from planner.costs.step.static_step import static_step_seconds
from planner.errors import InputError
from planner.hf import decoders, families
from planner.models import build, init_weights
from planner.models.inputs.training_items import synthetic_batch
from planner.plan import plan_file
from planner.plan.schedules import explicit
from planner.policies import orders
from planner.scoring.bounds import step_bounds as bounds
from planner.specs import base
from planner.specs.base import with_fields
from planner.specs.job import Job
from planner.specs.layers import Decoder
from planner.specs.layers import decoder as specs_decoder
from planner.specs.model import Model
from planner.specs.parameters import model_parameters, parameter_counts
from planner.specs.shapes import layer_flops
from planner.strategies import sequence_groups
from tests.check.small_plans import write_job
from tests.costs.machines import shipped
from tests.hf.configs import LLAMA_8B, PUBLISHED
from tests.modality_jobs import seeing_job
from tests.plan.schedules.made import ordered_plan
from tests.scoring.priced import priced

model_build = import_module("planner.models.build")  # whose name in planner.models is the function's
PREFIX: dict[str, Any] = {"layers": 2, "hidden": 32, "heads": 4, "ffn": 64, "vocab": 64}
TEXT = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
SECTIONS = re.findall(r"^### .*?\n(.*?)```python\n(.*?)```\n\nIn `(\w+)`: `([^\n]*)`$", TEXT, re.DOTALL | re.MULTILINE)
EXAMPLES = {line.partition(":")[0].strip('"'): (code, table, line) for _, code, table, line in SECTIONS}
TABLES: dict[str, tuple[dict[str, Any], tuple[types.ModuleType, ...]]] = {  # and whose names the example's file imports
    "STRATEGIES": (strategies.STRATEGIES, (strategies, sequence_groups, scoring, plan_file, base)),
    "BOUNDS": (bounds.BOUNDS, (bounds,)),
    "EXPORTERS": (export.EXPORTERS, (export, plan_file)),
    "TARGETS": (targets.TARGETS, (targets, targets.rows, targets.megatron_layers, targets.target, specs_decoder)),
    "ORDER_READERS": (export.ORDER_READERS, (export, explicit)),
    "FAMILIES": (hf.FAMILIES, (hf, decoders, families)),
    "OBJECTIVES": (objective.OBJECTIVES, (objective,)),
    "NETWORKS": (model_build.NETWORKS, (model_build, specs_decoder)),
    "ORDERS": (orders.ORDERS, (orders,)),
    "VERBS": (cli.VERBS, (cli_export, cli_options)),
}


def test_every_table_has_an_example():
    assert {table for _, table, _ in EXAMPLES.values()} == TABLES.keys()
    named = re.findall(r"^\| .*? \| `([A-Z_]+)` in `", TEXT, re.MULTILINE)
    assert named == [*TABLES]


@pytest.fixture
def added(monkeypatch):
    """The example of a table, by its line: a function that adds it and gives its names."""

    def add(name: str) -> dict[str, Any]:
        code, table, line = EXAMPLES[name]
        entries, modules = TABLES[table]
        known = {name: value for module in modules for name, value in vars(module).items()}
        made = types.ModuleType(f"planner.strategies.{name}", ast.get_docstring(ast.parse(code)))
        vars(made).update({name: value for name, value in known.items() if not name.startswith("__")})
        exec(code, vars(made))
        monkeypatch.setitem(__import__("sys").modules, made.__name__, made)
        ((key, entry),) = eval(f"{{{line}}}", vars(made)).items()
        assert key not in entries
        monkeypatch.setitem(entries, key, entry)
        return vars(made)

    return add


def planner(*words: object, code: int = 0) -> str:
    """What the command says."""
    done = CliRunner().invoke(cli.build_app(), [*map(str, words)])
    assert done.exit_code == code, done.output
    return done.stdout


@pytest.fixture
def job(tmp_path):
    """A job on four ranks that says more."""

    def write(more: str = "") -> Path:
        path = write_job(tmp_path)
        path.write_text(path.read_text() + more)
        return path

    return write


def test_a_strategy(added, job, tmp_path):
    added("alone")
    planner("solve", job("strategy: alone\n"), "-o", tmp_path / "plan.yaml")
    plan = pipeline.read_plan(tmp_path / "plan.yaml")
    assert plan.made.strategy == "alone"
    assert len(plan.steps[0].micro_batches) == len(plan.uses.items["llm"])
    assert pipeline.check(tmp_path / "plan.yaml", tmp_path / "plan.yaml", pipeline.Tolerances()) == []


@pytest.mark.slow
def test_a_strategy_that_refines_a_plan(added, tmp_path):
    """It starts from layouts of several modules, changes their plan, and `best` chooses it on a job of its own."""
    added("there_and_back")
    rows, fixed = (
        (400, 300, 250, 200, 500, 100, 450, 150),
        "llm: {pp: 4, schedule: 1f1b, zero: 1, micro_batch: 1}, vit: {dp: 4}",
    )
    job = seeing_job(tmp_path, fixed=fixed, rows=rows).file
    job.write_text(job.read_text().replace("strategy: modality_layout", "strategy: best"))
    planner("solve", job, "-o", tmp_path / "plan.yaml")
    plan = pipeline.read_plan(tmp_path / "plan.yaml")
    assert plan.made.strategy == plan.made.decided["order"] == "there_and_back"
    assert plan.made.decided["layouts"] == "modality_layout"
    (base,) = [each.value for each in plan.alternatives if each.strategy == "modality_layout" and each.value][:1]
    assert plan.outcome.bound < plan.outcome.value < 0.98 * base
    assert pipeline.check(tmp_path / "plan.yaml", tmp_path / "plan.yaml", pipeline.Tolerances()) == []


@pytest.fixture
def bounds_in_order():
    """Afterwards the bounds are those before, in their order, which says which of equal ones is named."""
    before = dict(bounds.BOUNDS)
    yield
    bounds.BOUNDS.clear()
    bounds.BOUNDS.update(before)


def test_a_bound(bounds_in_order, added, job, tmp_path):
    """The best is named in the plan: this one where nothing else is known of packings."""
    best = pipeline.solve(str(job())).plan
    added("constants")
    assert pipeline.solve(str(job())).plan == best  # others say more
    for name in [name for name, each in bounds.BOUNDS.items() if name != "constants" and not each.same_work]:
        del bounds.BOUNDS[name]
    planner("solve", job(), "-o", tmp_path / "plan.yaml")
    plan = pipeline.read_plan(tmp_path / "plan.yaml")
    assert plan.outcome.bound_by == "constants" and 0 < plan.outcome.bound < plan.outcome.value
    assert "by constants" in planner("show", tmp_path / "plan.yaml")
    planner("report", tmp_path / "plan.yaml", "-o", tmp_path / "page.html")
    assert bounds.BOUNDS["constants"].proof in (tmp_path / "page.html").read_text()


def test_an_exporter(added, job, tmp_path):
    """Of any plan of one module; what it cannot have is refused, and not written."""
    added("counts")
    files.write(tmp_path / "staged.yaml", priced(ordered_plan(2, 4, "1f1b")))
    said = planner("export", tmp_path / "staged.yaml", "--to", "counts", "-o", tmp_path / "counts.txt")
    assert " ".join(said.split()) == f"table written to {tmp_path / 'counts.txt'}"
    assert [line.split()[1] for line in (tmp_path / "counts.txt").read_text().splitlines()] == ["4"]

    plan = ordered_plan(2, 4, "1f1b")
    several = with_fields(plan, layouts={**plan.layouts, "vit": plan.layouts["llm"]})
    with pytest.raises(InputError, match="of one module"):
        export.export_plan(several, "counts")


def test_a_program_that_trains(added, tmp_path):
    """Its file starts what a job fixes, and is read as that job; a plan that no row says is refused by its field."""
    added("own")
    job, lines = tmp_path / "job.yaml", tmp_path / "own.txt"
    text = "format: planner.job/1\nname: own\nmodel: llama-3-8b\ncluster: h100x64\nsoftware: any\n"
    text += "workload: {lengths: 4096, batch_rows: 64}\n"
    text += "fix: {layouts: {llm: {tp: 4, zero: 0, overlap: [], micro_batch: 2}}}\n"
    job.write_text(text)
    planner("export", job, "--to", "own", "-o", lines)
    assert "width: 4\n" in lines.read_text() and "replicas" not in lines.read_text()
    planner("import", "own", lines, "--gpus", "64xh100", "-o", tmp_path / "again")
    again = files.read(tmp_path / "again" / "job.yaml", Job)
    assert (again.fix.layouts["llm"].tp, again.fix.layouts["llm"].micro_batch) == (4, 2)
    job.write_text(text.replace("micro_batch: 2", "pp: 2"))
    refused = CliRunner().invoke(cli.build_app(), ["export", str(job), "--to", "own", "-o", str(tmp_path / "no")])
    assert isinstance(refused.exception, InputError) and "layout.pp: 2" in refused.exception.message


def test_a_reader_of_orders(added, tmp_path):
    """Its order comes into a plan with another one, which states the time of a plan that was made with it."""
    added("words")
    for name in ("gpipe", "1f1b"):
        files.write(tmp_path / f"{name}.yaml", priced(ordered_plan(2, 4, name)))
    (tmp_path / "order").write_text("F0 F1 F2 F3 B0 B1 B2 B3\n" * 2)
    planner("import", "words", tmp_path / "order", "--into", tmp_path / "1f1b.yaml", "-o", tmp_path / "new.yaml")
    new, old = (pipeline.read_plan(tmp_path / f"{name}.yaml") for name in ("new", "gpipe"))
    assert new.steps[0].order == {"llm": tuple(["F0 F1 F2 F3 B0 B1 B2 B3"] * 2)}
    assert new.made.strategy == "words" and pipeline.verify(new)[0].step_seconds == pipeline.verify(old)[0].step_seconds


def test_a_family(added, tmp_path):
    added("helium")
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA_8B, "mlp_bias": False, "new": 8, "model_type": "helium"}))
    said = planner("import", "hf", tmp_path, "-o", tmp_path / "model.yaml", "--json")
    assert "new 8" in said and "left out: mlp_bias" not in said
    assert model_parameters(files.read(tmp_path / "model.yaml", Model)) == PUBLISHED["Llama-3.1-8B"][1]


def test_an_objective(added, job, tmp_path):
    added("device_hours")
    planner("solve", job("objective: device_hours\n"), "-o", tmp_path / "plan.yaml")
    plan = pipeline.read_plan(tmp_path / "plan.yaml")
    assert plan.outcome.value == pytest.approx(plan.prediction.step_seconds * 4 / 3600)
    assert "device h" in planner("show", tmp_path / "plan.yaml")
    worse = with_fields(plan, outcome=with_fields(plan.outcome, bound=2 * plan.outcome.value))
    files.write(tmp_path / "worse.yaml", worse)
    done = CliRunner().invoke(cli.build_app(), ["check", str(tmp_path / "plan.yaml"), str(tmp_path / "worse.yaml")])
    assert done.exit_code != 0 and "device h, and takes" in str(done.exception)


def test_a_kind_of_module(added):
    """It is counted, priced and built by its answers alone: all tokens see each other, in twice as many pairs."""
    kind = added("Prefix")["Prefix"]
    prefix, usual = kind(**PREFIX), Decoder(**PREFIX)
    assert parameter_counts(prefix) == parameter_counts(usual)
    assert layer_flops(prefix)[0] == 2 * layer_flops(usual)[0]

    alone, machine = LayoutColumns(ranks=1, seq=4096.0, batch=1), shipped("h100-80gb")
    slower = static_step_seconds(prefix, alone, machine).seconds / static_step_seconds(usual, alone, machine).seconds
    assert 1 < slower < 2
    losses = []
    for module in (prefix, usual):
        network = build(module)
        init_weights(network, 0)
        losses.append(network(synthetic_batch(module, [(0, 8)], 0)))
        losses[-1].backward()
    assert losses[0] != losses[1] and all(parameter.grad is not None for parameter in network.parameters())


def test_an_order_of_jobs(added, tmp_path):
    """Who asks for all four GPUs gets them before who came first."""
    added("widest")
    (tmp_path / "jobs.csv").write_text("id,submit_s,gpus,duration_s\nsmall,0,1,10\nwide,0,4,10\n")
    answer = planner(
        "schedule", tmp_path / "jobs.csv", "--gpus", "4xa", "--order", "widest", "--why", "small", "--json"
    )
    assert "10 s: start on 0 of a" in json.loads(answer)["story"][2]


def test_a_verb(added, job, tmp_path):
    added("ranks")
    planner("solve", job(), "-o", tmp_path / "plan.yaml")
    assert planner("ranks", tmp_path / "plan.yaml") == "4 ranks\n"
    assert json.loads(planner("ranks", tmp_path / "plan.yaml", "--json")) == {"ranks": 4}
    assert "Print how many ranks a plan needs." in planner("--help")


def test_every_verb_of_the_table_is_a_command_with_help():
    for name, verb in cli.VERBS.items():
        assert verb.__doc__ and verb.__doc__.split("\n")[0] in planner(name, "--help").replace("\n  ", " ")
