"""Files that nobody means well with: right ones with a hostile value, damaged bytes, odd encodings, and odd paths."""

import gzip
import json
import os
import random
import re
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from planner import files, pipeline
from planner.calibrate.kernel_tables import read_table
from planner.check.actions_case import read_actions, replay
from planner.export import export_plan, import_order_into
from planner.graphs import read_graph
from planner.hf import read as read_hf
from planner.ledger.run_ledger import append_entry, read_entries
from planner.models.checkpoints.safetensors_files import SafetensorsCheckpoint
from planner.plan.plan_file import Plan
from planner.plan.step_files import StepFile
from planner.published.read_published import read_published
from planner.replay import read_kineto_trace
from planner.simulate import build_trace, read_steps
from planner.simulate.trace_writer import trace_json
from planner.specs.cluster_jobs.job_records import Speeds, cluster_job
from planner.specs.cluster_jobs.job_tables import read_throughputs
from planner.specs.cluster_jobs.read_jobs import read_fleet, read_jobs
from planner.specs.framework.software import Software
from planner.specs.hardware.cluster import Cluster
from planner.specs.hardware.profile import Profile
from planner.specs.inputs import JobOptions, load_job
from planner.specs.library import shipped_folder
from planner.specs.loader import LoaderFile
from planner.specs.model import Model
from planner.specs.workload.expert_counts import read_counts
from planner.specs.workload.requests.read_requests import Reading, read_requests
from planner.specs.workload.sample_folder import open_sample_folder
from planner.specs.workload.sample_records import read_sample_file
from planner.specs.workload.samples import read_lengths
from planner.strategies import divide_loader
from planner.targets import TARGETS, read_target
from tests.hf.configs import PUBLISHED
from tests.ledger.test_run_ledger import ENTRY
from tests.plans import staged_plan
from tests.property.test_every_format import step_text
from tests.property.test_mutants import PLANS as PRICED
from tests.property.test_mutants import damaged, in_time
from tests.published.made_records import write as write_records
from tests.replay.handmade_traces import Recorder
from tests.simulate.test_trace_reader import simulated
from tests.specs.cluster_jobs.test_read_jobs import WORKLOAD
from tests.targets.torchtitan_parsers import file_of as torchtitan_file
from tests.targets.trainers_parsers import file_of as trainer_file
from tests.test_golden import GOLDEN

MIB = 2**20
BYTES = 500 * MIB  # that reading a file may take at most
SIGNS = (
    "\x1b[31m",
    "\x1b]0;t\x07",
    "\x9b2J",
    "\u202e",
    "\u2066",
    "\u200b",
    "\u2028",
    "\r",
    "\x00",
    "\x7f",
    "[bold]x[/]",
)
NESTED = ("[" * 30, "[" * 5000, "{a: " * 5000, "[[]]", "{}", "[1, 2]", "*a", "&a x", "&a [*a]", "{<<: {a: 1}}", "<<")
VALUES = (
    *("1e400", "-1e400", ".nan", "NaN", ".inf", "-Infinity", "-0", "-0.0", "-1", "0", "1e-400", "1e308", "0x1F"),
    *("9" * 30, "9" * 5000, "0." + "1" * 5000, "1e" + "9" * 50, "1_000", "null", "~", "true", "yes", "2024-01-01"),
    *("", "''", '""', "|", "\t", "\\", '"', "'", "`", "#", ":", "? ", "--- a", "...", "%TAG ! x", "!!binary aGk="),
    *("!!python/object/apply:os.system [id]", "x" * 10**5, "é" * 10**5, "..", "../../../../etc/passwd", "/dev/zero"),
    *("/dev/stdin", "/proc/self/mem", "./job.yaml", ".", *NESTED),
    *(json.dumps(f"a{sign}b") for sign in SIGNS),
    *(f"a{sign}b" for sign in SIGNS),
)
WORD = re.compile(r"[^\s,\[\]{}:\"]+")
LAUGHS = "a: &a [x, x]\n" + "".join(f"{b}: &{b} [{f'*{a}, ' * 9}]\n" for a, b in pairwise("abcdefgh"))
WHOLE = (b"", b"\0" * 4096, b"[" * 10**5, b"{" * 10**5, b"\n" * 10**6, LAUGHS.encode(), b"\xff" * 99)
OUTSIDE = ("/dev/zero", "/dev/full", "/proc/self/mem", "/proc/kmsg", "/", "nul\0byte", "x" * 5000)
JOB = """format: planner.job/1
name: small
model: gpt-7b
cluster: a100x64
workload: {lengths: {from: file, path: lengths.csv}, batch_rows: 3, max_tokens: 4096}
layout: {tp: 8}
strategy: parallel_search
"""


class Reader(NamedTuple):
    """What is read: a right file, made in a folder, and how it is read."""

    make: Callable[[Path], Path]
    read: Callable[[Path], object]


def text_file(name: str, text: str | Callable[[], str], read: Callable[[Path], object]) -> Reader:
    """A file of this text."""

    def make(folder: Path) -> Path:
        (folder / name).write_text(text if isinstance(text, str) else text())
        return folder / name

    return Reader(make, read)


def imports(program: str, ranks: int = 64) -> Callable[[Path], object]:
    """Reads a launch file as the import does, before anything is written."""
    given = {"model": "llama-3-8b", "seq_length": "4096", "micro_batch_size": "1", "batch_size": "64"}
    own = {argument for row in TARGETS[program].rows for argument in row.arguments}
    known = {"ranks": ranks, "per_node": 8, "blackwell": False}

    def read(path: Path) -> object:
        asked = {name: value for name, value in given.items() if name in own}
        text = files.read_text(path, files.LAUNCH)
        return read_target(TARGETS[program], text, str(path), asked, lambda command: known)

    return read


def shipped(folder: str, name: str, kind: type) -> Reader:
    """A file of profiles/."""
    path = shipped_folder() / folder / f"{name}.yaml"
    return text_file(path.name, path.read_text, lambda path: files.read(path, kind))


def job(folder: Path) -> Path:
    (folder / "lengths.csv").write_text("tokens\n100\n200\n300\n")
    (folder / "job.yaml").write_text(JOB)
    return folder / "job.yaml"


def recorded(folder: Path) -> Path:
    return Recorder().step(0, 0, 200).launch("sgemm", 50, 5, 7, 60, 100).op("aten::mm", 40, 20).write(folder)


def ledger(folder: Path) -> Path:
    append_entry(folder / "runs.jsonl", ENTRY)
    return folder / "runs.jsonl"


def tokens(folder: Path) -> Path:
    np.save(folder / "tokens.npy", np.arange(9, dtype="uint16"))
    np.save(folder / "offsets.npy", np.array([0, 4, 9]))
    return folder / "offsets.npy"


def tensors(folder: Path) -> Path:
    header = json.dumps({"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}).encode()
    (folder / "m.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(24))
    return folder / "m.safetensors"


@cache
def staged() -> Plan:
    """A plan with a pipeline whose micro-batches are alike, and prices."""
    return files.parse(PRICED[1], Plan, "staged")


def samples(path: Path) -> list[object]:
    return [*read_sample_file(path)]


def kernels(path: Path) -> object:
    return read_table(path, dict.fromkeys(("m", "n", "k", "latency")))


def decisions(path: Path) -> object:
    return replay(read_actions(path), path)


def requests_of(path: Path) -> object:
    return read_requests(path, Reading(lambda width, height: width * height))


def cluster_jobs(path: Path) -> object:
    """The jobs of a file, as those of a cluster that has seen much."""
    fleet = read_fleet("", "64xh100,64xa100,16xp100")
    return [cluster_job(record, fleet, Speeds(), 0.0) for record in read_jobs(path).records if record.duration_s]


EXAMPLE = Path(__file__).parents[1] / "docs" / "examples" / "one-cluster"
LOADER = GOLDEN / "loader_stages" / "bgl" / "loader.yaml"
TURNS = GOLDEN / "serving" / "images-then-long-prompts" / "actions.yaml"
ACTIONS = GOLDEN / "schedule" / "one-cluster" / "actions.yaml"
SAMPLE = '{"text": 512, "images": [[1280, 960]], "audio": [7.2]}\n'
READERS: dict[str, Reader] = {
    "job": Reader(job, lambda path: load_job(str(path), JobOptions())),
    "model": shipped("models", "tiny-vit", Model),
    "cluster": shipped("clusters", "a100x64", Cluster),
    "profile": shipped("devices", "cpu", Profile),
    "software": shipped("software", "megatron", Software),
    "step": text_file("step.yaml", step_text, lambda path: files.read(path, StepFile)),
    **{
        f"plan of {path.parent.name}": text_file("plan.yaml", path.read_text, pipeline.read_scored)
        for path in sorted(GOLDEN.rglob("plan.yaml"))
        if (path.parent / "job.yaml").exists()
    },
    "actions": text_file("actions.yaml", ACTIONS.read_text, decisions),
    "loader": text_file("loader.yaml", LOADER.read_text, lambda path: divide_loader(files.read(path, LoaderFile))),
    "edges": text_file("edges.csv", "u,v\n0,1\n1,2\n", read_graph),
    "serving actions": text_file("actions.yaml", TURNS.read_text, decisions),
    "job table": text_file("jobs.csv", (EXAMPLE / "jobs.csv").read_text, cluster_jobs),
    "throughputs": text_file("rates.csv", (EXAMPLE / "throughputs.csv").read_text, read_throughputs),
    "queue": text_file("queue.json", (EXAMPLE / "queue.json").read_text, cluster_jobs),
    "workloads": text_file("kueue.json", json.dumps({"items": [WORKLOAD]}, indent=1), cluster_jobs),
    "lengths": text_file("lengths.csv", "id,tokens\n1,100\n2,200\n", lambda path: read_lengths(path, "tokens")),
    "lines": text_file("lengths.txt", "100\n200\n", lambda path: read_lengths(path, "tokens")),
    "samples": text_file("samples.jsonl", SAMPLE * 2, samples),
    "sample list": text_file("samples.json", f"[{SAMPLE}, {SAMPLE}]", samples),
    "sample table": text_file("samples.csv", "text,images\n5,640x480+9x9\n", samples),
    "counts": text_file("counts.csv", "1,2,3\n4,5,6\n", read_counts),
    "config": text_file("config.json", json.dumps(PUBLISHED["Llama-3.1-8B"][0], indent=1), read_hf),
    "trace": text_file(
        "trace.json", lambda: trace_json(build_trace([[simulated(staged_plan(2, 2))]], "toy")), read_steps
    ),
    "recording": Reader(recorded, read_kineto_trace),
    "ledger": Reader(ledger, read_entries),
    "records": Reader(
        lambda folder: write_records(folder / "a.csv", {}, {"tp": "2"}), lambda path: read_published(path.parent)
    ),
    "kernels": text_file("gemm.csv", "m,n,k,latency\n1,2,3,0.5\n4,5,6,0.7\n", kernels),
    "requests": text_file(
        "requests.csv", "arrival_s,text_tokens,output_tokens,image_tokens\n0,5,2,9+9\n1.5,7,1,\n", requests_of
    ),
    "schedule": text_file(
        "order.csv",
        lambda: export_plan(staged(), "torch-csv").text,
        lambda path: import_order_into("torch-csv", path, staged()),
    ),
    "toml": text_file("x.toml", lambda: torchtitan_file("moe-fp8", "0.2"), imports("torchtitan", 256)),
    "flags": text_file("x.sh", lambda: torchtitan_file("uneven", "0.3"), imports("torchtitan")),
    "settings": text_file("x.json", lambda: trainer_file("deepspeed", "accumulated"), imports("deepspeed", 8)),
    "settings in YAML": text_file("x.yaml", lambda: trainer_file("accelerate", "hsdp-tp"), imports("accelerate")),
    "tokens": Reader(tokens, lambda path: open_sample_folder(path.parent)),
    "tensors": Reader(tensors, SafetensorsCheckpoint),
    "digest": text_file("any", "text", files.digest),
}


def hostile(raw: bytes, chance: random.Random) -> bytes:
    """A file with something done to it."""
    kind = chance.choice(["value"] * 6 + ["damage", "damage", "encoding", "whole"])
    text = raw.decode("latin-1")
    if kind == "damage":
        return chance.choice([damaged(text, chance), raw[: chance.randrange(len(raw))]])
    if kind == "whole":
        return chance.choice(WHOLE)
    if kind == "encoding":
        sign = chance.choice(["utf-16", "utf-32", "utf-8-sig", "utf-16-be"])
        others = [raw.replace(b"\n", b"\r\n"), raw.replace(b"\n", b"\r"), b"\xff\xfe" + raw, raw.replace(b" ", b"\0")]
        return chance.choice([text.encode(sign), *others, gzip.compress(raw), gzip.compress(raw)[:-9], raw + raw])
    words = [*WORD.finditer(text)]
    for word in sorted(chance.sample(words, min(len(words), chance.choice([1, 1, 2]))), key=lambda each: -each.start()):
        text = text[: word.start()] + chance.choice(VALUES).encode().decode("latin-1") + text[word.end() :]
    return text.encode("latin-1")


def odd_paths(folder: Path, right: Path) -> dict[str, Path]:
    """Paths that are no files, or endless ones, beside a right file in its folder."""
    suffix = "".join(right.suffixes)
    made = {name: folder / f"{name}{suffix}" for name in ("pipe", "loop", "dangling", "zero", "sparse", "bomb")}
    os.mkfifo(made["pipe"])
    for name, target in (("loop", made["loop"]), ("dangling", "nowhere"), ("zero", "/dev/zero")):
        made[name].symlink_to(target)
    made["sparse"].touch()
    os.truncate(made["sparse"], 2**30)
    made["bomb"].write_bytes(bomb())
    return made | {"folder": folder} | {name: Path(name) for name in OUTSIDE}


@cache
def bomb(size: int = 3 * 2**30) -> bytes:
    """A gzipped file of spaces that unpacks to so many bytes: one member for each block of it."""
    return gzip.compress(b" " * (64 * MIB), mtime=0) * (size // (64 * MIB))


@contextmanager
def limited() -> Iterator[None]:
    """In time, and with BYTES more of memory than there are now."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + BYTES, hard))
    try:
        with in_time():
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (before, hard))
