"""A question in a few words, as a job: its files, written to a folder to go on with; or answer by answer, each checked
before the next is asked for.
"""

import logging
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from planner import files, hf
from planner.errors import InputError
from planner.specs import library
from planner.specs.gpu_clusters import asked_device, cluster_of_gpus, joined, nodes_of
from planner.specs.hardware.cluster import Cluster
from planner.specs.hardware.node_cluster import NodeAdapters, NodeCluster, NodeGpus
from planner.specs.hardware.pool import Pool
from planner.specs.job import Job
from planner.specs.job_batches import folder_lengths
from planner.specs.layers.stack import InputUnit
from planner.specs.model import Model
from planner.specs.named_files import device_kind, read_cluster, read_cluster_or_pool, read_software
from planner.specs.workload.distributions import DISTRIBUTIONS
from planner.specs.workload.length_sources import Distribution, LengthsFile, LengthSource, SamplesFile, Workload
from planner.specs.workload.sample_records import JSON_ENDINGS
from planner.strategies import BEST, strategy_deciding
from planner.units import listed
from planner.workflows.imported_models import imported
from planner.workflows.question_run import ONE_STEP, USUAL_SEQUENCE, RunQuestion, asked_pool, step_sequences, with_run
from planner.workflows.question_samples import USUAL_TEXT, asked_clips, asked_images, asked_samples

LOG = logging.getLogger(__name__)
JOB_FILE, CLUSTER_FILE, MODEL_FILE, PLAN_FILE = "job.yaml", "cluster.yaml", "model.yaml", "plan.yaml"
PAGE_FILE = "front.html"  # of time and money
USUAL_RANK_SAMPLES = 8  # samples of a step for each GPU, where a question does not say how many: assumed
Part = TypeVar("Part", NodeGpus, NodeAdapters)


@dataclass(frozen=True, slots=True)
class Question:
    """Which model on which GPUs, with samples of which lengths, how many a step.

    `model`: a shipped name or a model file; `hf`: a config.json. `gpus`: of the whole cluster, as 64xh100. `lengths`:
    a number of tokens, a distribution, a file of lengths or a folder of tokens or samples; `seq`: the longest sample.
    `images`, `audio`: of each sample, beside text of these lengths, in pixels and seconds. `batch`, None: as usual.
    `of_run`: the whole run, with its pool in place of `gpus`. `build`: transformers builds the config.json's model.
    `mtp`: with its layers that predict ahead. `loader`: a file of loader stages.
    """

    batch: int | None
    model: str = ""
    hf: Path | None = None
    gpus: str = ""
    nodes: int | None = None
    nics: str | None = None
    cluster: str = ""
    lengths: str = ""
    seq: int | None = None
    software: str = "planner"
    images: str = ""
    audio: str = ""
    of_run: RunQuestion = ONE_STEP
    build: bool = False
    mtp: bool = False
    loader: Path | None = None


def write_question(question: Question, folder: Path | None) -> Path:
    """Write the job of a question, with the files that it needs, and return its path.

    None: a folder that is named after the question. Raises InputError, before anything is written, for what is not
    there, and for a file of another question.
    """
    model = question_model(question)
    cluster = question_cluster(question)
    lengths, module = asked_samples(model, question_lengths(question), question.images, question.audio)
    samples = step_samples(question)
    workload = Workload(lengths=lengths, batch_rows=samples, max_tokens=longest(question), module=module)
    read_software(question.software, where="--software")
    if isinstance(cluster, NodeCluster):
        joined(cluster, device_kind(cluster.gpus.device, where="--gpus"))
    target = folder or Path(question_name(question))
    written: dict[str, object] = {}
    if question.hf:
        written[MODEL_FILE] = model
    if cluster:
        written[CLUSTER_FILE] = cluster
    job = Job(
        format=Job.FORMAT,
        name=target.absolute().name,
        model=f"./{MODEL_FILE}" if question.hf else from_folder(question.model),
        cluster=f"./{CLUSTER_FILE}" if cluster else from_folder(question.cluster),
        workload=workload,
        software=from_folder(question.software),
        strategy=asked_strategy(question, module),
        loader=str(question.loader.absolute()) if question.loader else "",
    )
    written[JOB_FILE] = with_run(job, question.of_run)
    device = NodeGpus(question.gpus).device if question.gpus else ""
    if device and asked_device(device) != device:
        LOG.warning(f"{device} is taken as {asked_device(device)}, which has most memory of those with that name")
    for name, content in written.items():
        fix = f"name another folder with -o, or go on with it: planner solve {target / JOB_FILE}"
        files.require_unchanged(target / name, files.dump(content), fix)
    for name, content in written.items():
        files.write(target / name, content)
    return target / JOB_FILE


def asked_strategy(question: Question, module: str) -> str:
    """Who decides: of a run static layouts alone, so that every choice of a pool is decided alike, and soon."""
    if question.of_run.run and not module:
        return strategy_deciding("layouts", 1)
    return strategy_deciding("layouts", 2) if module else BEST


def from_folder(reference: str) -> str:
    """A name as it is, and a path so that it holds from any folder."""
    return str(Path(reference).absolute()) if library.is_path(reference) else reference


def question_name(question: Question) -> str:
    """The folder of a question: model, cluster, lengths and samples of a step. Raises InputError."""
    model = question_model(question)
    usual = USUAL_SEQUENCE if question.of_run.tokens and not (question.images or question.audio) else USUAL_TEXT
    lengths = question.lengths or str(question.seq or usual)
    cluster = re.sub(r"\s", "", question.gpus or question.of_run.pool) or Path(question.cluster).stem
    seen = "".join(f"{each}-" for each in (question.images, question.audio) if each)
    text = f"{model.name}-{cluster}-{seen}{Path(lengths).stem}x{step_samples(question)}"
    return re.sub(r"[^A-Za-z0-9_.+-]+", "-", text)


def step_samples(question: Question) -> int:
    """The samples of a step. Raises InputError."""
    if question.batch is not None:
        return question.batch
    if question.of_run.run:
        return step_sequences(question.seq)
    cluster = question_cluster(question) or read_cluster(question.cluster, where="--cluster")[0]
    assert not isinstance(cluster, Pool), "a pool is of a run"
    return USUAL_RANK_SAMPLES * cluster.size


def question_model(question: Question) -> Model:
    """The model that is asked about. Raises InputError."""
    if bool(question.model) == bool(question.hf):
        message = "both --model and --hf are given" if question.model else "no model is given"
        raise InputError(message, where="--model", fix="--model llama-3-8b, or --hf config.json; planner list models")
    if question.hf:
        return question_import(question).model
    return library.read_named(question.model, Model, where="--model")[0]


def question_import(question: Question) -> hf.ImportedModel:
    """The model of a question's config.json. Raises InputError."""
    assert question.hf is not None, "a question names a config.json"
    file = question.hf / "config.json" if question.hf.is_dir() else question.hf
    return imported_once(question.hf, question.build, question.mtp, files.digest(file) if file.is_file() else "")


@lru_cache(maxsize=1)  # names, samples and answers ask for it, and building takes seconds
def imported_once(path: Path, build: bool, mtp: bool, digest: str) -> hf.ImportedModel:
    """The model of a config.json with this digest."""
    return imported(path, build, mtp)


def question_cluster(question: Question) -> NodeCluster | Cluster | Pool | None:
    """The cluster or the pool to write; None where an existing one is named. Raises InputError."""
    options = {"--gpus": question.gpus, "--cluster": question.cluster, "--pool": question.of_run.pool}
    given = [option for option, value in options.items() if value]
    if len(given) != 1:
        message = f"both {listed(given, 'and')} are given" if given else "no cluster is given"
        raise InputError(message, where="--gpus", fix="--gpus 64xh100, or --cluster h100x64; planner list clusters")
    if question.of_run.pool:
        if question.nodes or question.nics:
            where = "--nodes" if question.nodes else "--nics"
            raise InputError("each kind of a pool has nodes of its own", where=where, fix="per_node, nics in its file")
        return asked_pool(question.of_run.pool)
    if question.cluster:
        read_cluster_or_pool(question.cluster, where="--cluster")
        return None
    gpus = parsed(NodeGpus, question.gpus, "--gpus")
    nics = None if question.nics is None else parsed(NodeAdapters, question.nics, "--nics")
    gpus = NodeGpus(f"{gpus.number}x{asked_device(gpus.device)}")
    kind = device_kind(gpus.device, where="--gpus")
    return cluster_of_gpus(gpus, kind, nodes_of(gpus, kind, question.nodes), nics)


def parsed(kind: type[Part], text: str, option: str) -> Part:
    """A text of an option as a file's value. Raises InputError."""
    try:
        return kind.from_file(text)
    except ValueError as error:
        message, _, fix = str(error).partition(" | ")
        raise InputError(message, where=option, fix=fix) from error


def longest(question: Question) -> int | None:
    """The longest sample that is kept: `seq`, where lengths differ."""
    return question.seq if question.lengths else None


def question_lengths(question: Question) -> LengthSource | int:
    """Where lengths are from. Raises InputError."""
    usual = str(USUAL_TEXT) if question.images or question.audio else ""
    usual = usual or (str(USUAL_SEQUENCE) if question.of_run.tokens else "")
    named = question.lengths or (str(question.seq) if question.seq else usual)
    if not named:
        fix = "--seq 8192, or --lengths wikipedia, a file of lengths, or a folder of tokens; planner list lengths"
        raise InputError("no lengths are given", where="--seq", fix=fix)
    if re.fullmatch("[1-9][0-9]{0,8}", named):
        return int(named)
    if named in DISTRIBUTIONS:
        return Distribution(name=named)
    path = Path(named).absolute()
    if os.path.isdir(path):
        return folder_lengths(path)
    if library.is_file(path) and path.name.endswith(JSON_ENDINGS):
        return SamplesFile(path=str(path))
    if library.is_file(path):
        return LengthsFile(path=str(path))
    known = [*DISTRIBUTIONS]
    fix = files.nearest_word(named, known) or f"one of {', '.join(known)}; a file, or a folder"
    raise InputError(f"there are no lengths `{named}`", where="--lengths", fix=fix)


def reads(question: Question, unit: InputUnit) -> bool:
    """Whether a module of the model reads `patches` of images, or `frames` of sound. Raises InputError."""
    return any(module.input_unit == unit for module in question_model(question).modules.values())


def with_answer(question: Question, name: str, text: str) -> Question:
    """The question with a text for one of its fields, which is checked. Raises InputError."""
    value: Any = text
    if name == "model" and (Path(text).suffix == ".json" or os.path.isdir(text)):
        name, value = "hf", Path(text)
    elif name == "nics":
        value = text or None
    elif name == "batch":
        if not (text.isascii() and text.isdigit() and 0 < int(text[:9]) <= 10**6):
            raise InputError(f"`{text[:40]}` is no number of sequences", fix="a whole number, such as 512")
        value = int(text)
    answered = replace(question, **{name: value})
    ANSWER_CHECKS[name](answered)
    return answered


ANSWER_CHECKS: dict[str, Callable[[Question], object]] = {  # by field: what raises InputError for it
    "model": question_model,
    "hf": question_model,
    "gpus": question_cluster,
    "nics": question_cluster,
    "lengths": question_lengths,
    "images": lambda question: asked_images(question.images),
    "audio": lambda question: asked_clips(question.audio),
    "batch": step_samples,
    "software": lambda question: read_software(question.software),
}
