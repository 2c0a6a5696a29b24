"""A job whose model is served, with all files that it names read: its question."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from planner import files
from planner.costs import machine_of, usd_per_hour
from planner.costs.serving import StagePrices, fitted_prices, rated_prices
from planner.errors import Infeasible, InputError
from planner.serving.best_split import ORDERS
from planner.serving.goodput import Question
from planner.serving.splits import DEGREES
from planner.simulate.serving import QueueOrder, ServingSetup, pages_of
from planner.specs import library
from planner.specs.framework.timing_coefficients import TimingCoefficients
from planner.specs.hardware.cluster import Cluster
from planner.specs.hardware.profile import Profile
from planner.specs.job import Job
from planner.specs.layers import Module
from planner.specs.layers.resize import ImageSize
from planner.specs.model import Model
from planner.specs.named_files import read_cluster
from planner.specs.workload.requests.read_requests import Reading, read_requests
from planner.specs.workload.requests.request import Request, at_rate, rate_of
from planner.specs.workload.requests.servegen import Window


@dataclass(frozen=True, slots=True)
class Asked:
    """What is typed beside a job."""

    requests: Path | None = None
    measured: Path | None = None  # a table of passes
    rate: float | None = None  # requests a second, in place of the file's
    setup: ServingSetup = field(default_factory=ServingSetup)
    window: Window = field(default_factory=Window)
    orders: Sequence[QueueOrder] = ORDERS
    any_rate: bool = False  # answer also where requests come quicker than any split serves them
    front: bool = False  # the best of fewer GPUs too
    elastic: bool = False  # and what a policy has that changes the split


@dataclass(frozen=True, slots=True)
class ServedInputs:
    """The question of a job, and where its instances are."""

    job: Job
    path: Path
    model: Model
    cluster: Cluster
    question: Question
    usd_per_hour: float | None  # of all GPUs; None: not known


def served_inputs(reference: str, asked: Asked) -> ServedInputs:
    """Read a job and all that it names. Raises InputError, and Infeasible where a request fits nowhere."""
    job, path = library.read_named(reference, Job)
    if job.service is None:
        where, fix = files.place(path, "service"), "service: {ttft_s: 2, tpot_s: 0.05, percentile: 90}"
        raise InputError("the job promises no service level", where=where, fix=fix)
    model, model_path = library.read_named(job.model, Model, path.parent, f"{path} (model)")
    cluster, cluster_path = read_cluster(job.cluster, path.parent, f"{path} (cluster)")
    if len(cluster.ranks) > 1:
        where, fix = files.place(cluster_path, "ranks"), "a cluster for each kind"
        raise InputError("instances of several kinds of GPU are not served together", where=where, fix=fix)
    llm, encoder = served_modules(model, model_path)
    requests = asked_requests(job, path, asked, encoder)
    require_encoder(requests, encoder is not None, model.name)
    degrees = [job.layout.tp] if job.layout.tp else [*DEGREES]
    able = [tp for tp in degrees if tp <= min(cluster.size, cluster.ranks[0].per_node) and llm.heads % tp == 0]
    if not able:
        where, fix = files.place(path, "layout", "tp"), f"one of {', '.join(map(str, DEGREES))} that fits a node"
        raise InputError("no instance has this tensor-parallel degree", where=where, fix=fix)
    rated = priced(job.model, job.cluster, path.parent, job.limits.memory_margin, able)
    if asked.measured:
        rated = {tp: fitted_prices(rated[tp], asked.measured, model.name) for tp in able[:1]}
    prices = {tp: each for tp, each in rated.items() if each.kv_tokens}
    require_room(requests, prices, asked.requests or path)
    try:
        usd = usd_per_hour(cluster, {cluster.ranks[0].kind: device_of(cluster, path.parent).device})
    except InputError:
        usd = None
    return ServedInputs(job, path, model, cluster, Question(requests, job.service, prices, asked.setup), usd)


def priced(model: str, cluster: str, folder: Path, margin: float, degrees: Sequence[int]) -> dict[int, StagePrices]:
    """Prices by tensor-parallel degree, at the rates of the cluster's device. Raises InputError."""
    llm, encoder = served_modules(*library.read_named(model, Model, folder))
    found, _ = read_cluster(cluster, folder)
    profile, kind = device_of(found, folder), found.ranks[0].kind
    machine = machine_of(found, kind, profile.device, profile.rates, TimingCoefficients())
    return {tp: rated_prices(llm, encoder, machine, tp, margin) for tp in degrees}


def device_of(cluster: Cluster, folder: Path) -> Profile:
    """The profile of a cluster's only kind of GPU. Raises InputError."""
    return library.read_named(cluster.ranks[0].kind, Profile, folder, "cluster (ranks)")[0]


def served_modules(model: Model, path: Path) -> tuple[Module, Module | None]:
    """The module that answers, and the one that encodes images. Raises InputError for models that are not served."""
    answering = [name for name, module in model.modules.items() if module.output_vocabulary and module.causal]
    encoders = [name for name in model.modules if name not in answering]
    where = files.place(path, "modules")
    if len(answering) != 1:
        raise InputError("one module has to answer", where=where, fix="a model with one decoder")
    if len(encoders) > 1:
        fix = "a model with one vision module; sound is not served"
        raise InputError(f"{' and '.join(encoders)} would both encode", where=where, fix=fix)
    answers = model.modules[answering[0]]
    if answers.predicted_tokens > 1:
        fix = "import it without --mtp"
        raise InputError(
            "an answer is generated token by token, without layers that predict ahead", where=where, fix=fix
        )
    return answers, model.modules[encoders[0]] if encoders else None


def asked_requests(job: Job, path: Path, asked: Asked, encoder: Module | None) -> tuple[Request, ...]:
    """The requests that are asked about. Raises InputError."""
    if asked.requests is None and not job.workload.requests:
        fix = "--requests FILE, or workload: {requests: FILE}"
        raise InputError("there are no requests", where=files.place(path, "workload"), fix=fix)
    file = asked.requests or path.parent / job.workload.requests

    def image_tokens(width: int, height: int) -> int:
        if encoder is None:
            raise ValueError(f"the model of {job.name} reads no images | leave out images")
        return max(1, int(sum(encoder.image_parts(ImageSize(width, height)))) // encoder.tokens_per_output)

    requests = read_requests(file, Reading(image_tokens, asked.window))
    if rate_of(requests) <= 0.0 and len(requests) > 1:
        raise InputError("all requests come at once", where=f"{file} (arrival_s)", fix="arrivals at different times")
    if len(requests) < 2:
        raise InputError("there is one request, and no rate", where=str(file), fix="a file of more")
    return at_rate(requests, asked.rate / rate_of(requests)) if asked.rate else requests


def require_encoder(requests: Sequence[Request], encodes: bool, model: str) -> None:
    """Raises InputError for images that a model does not read."""
    if any(each.images for each in requests) and not encodes:
        raise InputError(f"{model} reads no images", where="--requests", fix="a model with a vision module")


def require_room(requests: tuple[Request, ...], prices: dict[int, StagePrices], where: Path) -> None:
    """Raises Infeasible where the model fits nowhere, and InputError for a request that is longer than any room."""
    if not prices:
        raise Infeasible(
            "the model does not fit a node", where="cluster", fix="GPUs with more memory, or more in a node"
        )
    most = max(each.kv_tokens for each in prices.values())
    longest = max(requests, key=pages_of)
    if pages_of(longest) > most:
        message = f"request {longest.id} has {pages_of(longest):,} tokens, and keys and values of {most:,} fit"
        raise InputError(message, where=str(where), fix="leave it out, or give GPUs with more memory")
