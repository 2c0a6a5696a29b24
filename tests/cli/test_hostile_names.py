"""No name in a file, and no word that is typed, commands a terminal: what a verb prints and writes shows it as text."""

import csv
import io
import json
import shlex
import sys
import unicodedata
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import files, pipeline
from planner.cli.app import VERBS
from planner.errors import PlannerError
from planner.files.yaml_text import load_yaml
from planner.ledger import append_entry
from planner.ledger.run_ledger import FORMAT
from planner.printable import UNSAFE, one_line, printable, printable_json
from planner.specs.inputs import JobOptions, load_job
from planner.specs.library import shipped_folder
from tests.examples import soaked
from tests.hf.configs import PUBLISHED
from tests.ledger.test_run_ledger import ENTRY
from tests.property.test_mutants import JOB, PLANS, at, routes
from tests.published.made_records import write as write_records
from tests.replay.handmade_traces import Recorder
from tests.test_golden import GOLDEN
from tests.typed import Printed, typed

SIGNS = "\x1b[31m\x1b]0;t\x9b2J\x7f\u202e\u2066\u200b\u2028\ufeff\U000e0041"
ORDINARY = "Zoë naïve 漢字 क्‍ष می‌خواهم 👩‍👧 🇫🇷 ❤️ e\u0301 [bold]x[0]"
NAME = f"a{SIGNS}b {ORDINARY}"


def test_what_is_printable():
    shown = printable(NAME)
    assert shown.startswith(r"a\x1b[31m\x1b]0;t\x9b2J\x7f\u202e\u2066\u200b\u2028\ufeff\U000e0041b ")
    assert shown.endswith(ORDINARY)
    assert printable("\x00\x07\r\n\t") == "\\x00\\x07\\r\n\t"
    assert one_line("a\nb\t" + "c" * 5000).startswith(r"a\nb\tccc") and len(one_line("c" * 5000)) == 2001


@given(st.text(st.characters(codec=None)))
def test_nothing_unsafe_is_left_and_nothing_else_is_changed(text):
    shown = printable(text)
    assert printable(shown) == shown
    assert not {unicodedata.category(sign) for sign in shown if sign not in "\n\t\u200c\u200d"} & {
        "Cc",
        "Cs",
        "Zl",
        "Zp",
    }
    assert not {*map(unicodedata.bidirectional, shown)} & {
        "LRE",
        "RLE",
        "LRO",
        "RLO",
        "PDF",
        "LRI",
        "RLI",
        "FSI",
        "PDI",
    }
    assert json.loads(printable_json(json.dumps(text, ensure_ascii=False))) == text
    if text.isprintable():
        assert shown == text


@given(st.dictionaries(st.text(), st.text() | st.sampled_from([NAME, "👩‍👧", "\u200d", "é\u200d"])))
def test_files_hold_the_very_text(data):
    written = files.dump(data)
    assert load_yaml(written, "")[0] == data and not UNSAFE.search(written)


def renamed(path: Path, accepted: Callable[[], object]) -> None:
    """A file in which the name stands wherever one may: in every text with which the file is still accepted."""
    data = load_yaml(path.read_text(), "")[0]
    for route in routes(data):
        if isinstance(before := at(data, route), str):
            at(data, route[:-1])[route[-1]] = NAME
            path.write_text(files.dump(data))
            try:
                accepted()
            except PlannerError:
                at(data, route[:-1])[route[-1]] = before
    path.write_text(files.dump(data))


STAGES = (GOLDEN / "loader_stages/bgl/loader.yaml").read_text()
SERVED = f"""format: planner.job/1
name: {json.dumps(NAME)}
model: llama-3-8b
cluster: h200x8
workload: {{requests: requests.csv}}
service: {{ttft_s: 1, tpot_s: 0.05}}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files of every kind, with the name in them."""
    folder = tmp_path_factory.mktemp("names")
    texts = {
        "job": JOB,
        "model": (shipped_folder() / "models/tiny-vit.yaml").read_text(),
        "cluster": (shipped_folder() / "clusters/cpu-4.yaml").read_text().replace("kind: cpu", "kind: ./device.yaml"),
        "device": (shipped_folder() / "devices/cpu.yaml").read_text(),
        "plan": (GOLDEN / "sequence_groups/demo/plan.yaml").read_text(),
        "staged": PLANS[1],
        "served": SERVED,
    }
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text)
    for name in ("model", "cluster", "device", "job"):
        renamed(folder / f"{name}.yaml", lambda: load_job(str(folder / "job.yaml"), JobOptions()))
    for name in ("plan", "staged"):
        renamed(folder / f"{name}.yaml", lambda name=name: pipeline.read_scored(folder / f"{name}.yaml"))
    for name in ("plan", "staged", "model"):
        data = load_yaml((folder / f"{name}.yaml").read_text(), "")[0]
        assert NAME in [at(data, route) for route in routes(data)], name
    (folder / "stages.yaml").write_text(STAGES.replace("bgl-eight-stages", json.dumps(NAME)))
    (folder / "edges.csv").write_text("0,1\n1,2\n2,3\n3,0\n")
    (folder / "nodes.csv").write_text("0\n2\n3\n")
    (folder / "broken.yaml").write_text(f"format: planner.plan/1\n{files.dump({NAME: NAME})}")
    config = dict(PUBLISHED["Llama-3.1-8B"][0]) | {NAME: NAME, "hidden_act": NAME, "_name_or_path": NAME}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "lengths.csv").write_text(f"{NAME}\n1\n")
    with (folder / "requests.csv").open("w", newline="") as table:
        rows = [["id", "arrival_s", "text_tokens", "output_tokens"], *([NAME, at, 9000, 2] for at in range(9))]
        csv.writer(table).writerows(rows)
    with (folder / "jobs.csv").open("w", newline="") as table:
        csv.writer(table).writerows(
            [["id", "submit_s", "gpus", "duration_s", NAME], [NAME, 0, 1, 5, NAME], ["b", 1, 9, 5, ""]]
        )
    (folder / "records").mkdir()
    write_records(folder / "records/a.csv", {}, dict.fromkeys(("row_id", "source_id", "model", "notes"), NAME))
    write_records(folder / f"records/{NAME}.csv", {"gpu": NAME}, {"tp": NAME})
    (folder / "tables").mkdir()
    (folder / f"tables/{NAME}.csv").write_text(f"m,n,k,latency,{NAME}\n1,2,3,{NAME},{NAME}\n")
    append_entry(folder / "share/planner/ledger.jsonl", ENTRY)
    with (folder / "share/planner/ledger.jsonl").open("a") as ledger:
        ledger.write(json.dumps({"format": FORMAT, **asdict(ENTRY), "machine": NAME, "plan": NAME}) + "\nno\n")
    (folder / "runs.jsonl").write_bytes((folder / "share/planner/ledger.jsonl").read_bytes())
    Recorder().step(0, 0, 200).launch(NAME, 50, 5, 7, 60, 100).op(NAME, 40, 20).write(folder)
    return folder


COMMANDS: dict[str, tuple[str, ...]] = {
    "demo": (f"demo {shlex.quote(NAME)}",),
    "ask": (
        "ask --hf config.json --gpus 8xh100 --seq 512 --batch 8 --effort 1 -o asked",
        f"ask --model {shlex.quote(NAME)} --gpus 8xh100 --seq 512",
        f"ask --model llama-3-8b --gpus {shlex.quote(NAME)}",
        "ask --model llama-3-8b --gpus 8xh100 --lengths lengths.csv --effort 1",
    ),
    "init": ("init", f"init {shlex.quote(NAME)}"),
    "profile": ("profile model.yaml --ranks 1 --quick -o /dev/null/x", "profile broken.yaml"),
    "solve": (f"solve job.yaml --effort 1 -o {shlex.quote(NAME)}.yaml", "solve job.yaml --effort 1 -o -"),
    "show": ("show plan.yaml", "show staged.yaml --svg shown.svg", "show broken.yaml"),
    "why": ("why plan.yaml", "why plan.yaml 4", f"why plan.yaml {shlex.quote(NAME)}"),
    "why-not": ("why-not plan.yaml items.4.degree=4", f"why-not plan.yaml {shlex.quote(NAME)}=4"),
    "simulate": ("simulate plan.yaml --trace simulated.json", "simulate plan.yaml --measured config.json"),
    "predict": ("predict job.yaml", "predict plan.yaml", "predict job.yaml --lengths lengths.csv"),
    "fits": ("fits job.yaml", "fits plan.yaml", "fits broken.yaml"),
    "run": ("run staged.yaml --steps 1", "run plan.yaml --data records", "run broken.yaml"),
    "samples": (f"samples {shlex.quote(NAME)} --count 2", "samples config.json --count 2"),
    "replay": ("replay trace.json.gz", "replay records", f"replay {shlex.quote(NAME)}"),
    "check": ("check plan.yaml staged.yaml", "check plan.yaml plan.yaml --markdown", "check ."),
    "report": (
        "report plan.yaml -o plan.html --why",
        "report staged.yaml -o staged.html",
        "report simulated.json -o trace.html",
        "report records -o records.html",
        "report runs.jsonl -o runs.html",
        f"report {shlex.quote(NAME)}",
    ),
    "ledger": (
        "ledger records --rows",
        "ledger --rows",
        f"ledger records --source {shlex.quote(NAME)}",
    ),
    "calibrate": ("calibrate tables", "calibrate plan.yaml --measured 2s -o own.yaml", "calibrate records -o fits"),
    "export": ("export staged.yaml --to torch-csv -o order.csv", f"export staged.yaml --to {shlex.quote(NAME)} -o -"),
    "import": ("import hf config.json", "import torch-csv lengths.csv --into staged.yaml -o new.yaml"),
    "schedule": (
        "schedule jobs.csv --gpus 8xh100 -o actions.yaml",
        "schedule jobs.csv --gpus 8xh100 --why 0",
        f"schedule jobs.csv --gpus 8xh100 --why {shlex.quote(NAME)}",
        f"schedule {shlex.quote(NAME)} --gpus 8xh100",
    ),
    "train-policy": (
        "train-policy jobs.csv --gpus 8xh100 -o policy.safetensors",
        f"train-policy {shlex.quote(NAME)} --gpus 8xh100 -o policy.safetensors",
        f"train-policy jobs.csv --gpus 8xh100 --teacher {shlex.quote(NAME)} -o policy.safetensors",
    ),
    "loader": ("loader stages.yaml -o divided.yaml", f"loader {shlex.quote(NAME)}", "loader broken.yaml"),
    "loader-order": (
        "loader-order edges.csv --train-nodes nodes.csv --batch 2",
        f"loader-order {shlex.quote(NAME)} --train-nodes nodes.csv",
        "loader-order lengths.csv --train-nodes nodes.csv",
    ),
    "serve": ("serve served.yaml --order fifo", f"serve {shlex.quote(NAME)}", "serve served.yaml --why nobody"),
    "list": ("list models", f"list {shlex.quote(NAME)}"),
    "schema": ("schema plan", f"schema {shlex.quote(NAME)}"),
}
JSON_TOO = {"show", "why", "simulate", "replay", "ledger"}


def harmless(text: str, what: str) -> None:
    found = UNSAFE.search(text)
    assert not found, f"{what}: {text[max(0, found.start() - 60) : found.end()]!r}"


def run(command: str, folder: Path, monkeypatch) -> Printed:
    for variable in ("XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(variable, str(folder / "share"))
    answers = (NAME, "llama-3-8b", NAME, "8xh100", NAME, "", "512", "8", NAME, "any", f"asked/{NAME.replace('/', '')}")
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join([*answers, ""])))
    return typed(f"planner {command}", folder)


@pytest.mark.slow
@pytest.mark.parametrize("verb", soaked(VERBS, VERBS.keys() - {"profile", "demo"}))  # which measure
@pytest.mark.every(5)
def test_names_in_files_reach_no_terminal_as_they_stand(folder, monkeypatch, verb):
    for command in COMMANDS[verb]:
        done = run(command, folder, monkeypatch)
        assert done.code in (0, 1, 2, 3), (command, done)
        harmless(done.out + done.errors, command)
        if verb in JSON_TOO:
            answer = run(f"{command} --json", folder, monkeypatch)
            harmless(answer.out + answer.errors, command)
            assert answer.code or json.loads(answer.out)
    for page in [*folder.glob("*.html"), *folder.glob("*.svg"), *folder.glob("asked/*.yaml")]:
        harmless(page.read_text(), page.name)
