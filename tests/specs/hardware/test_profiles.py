"""Every shipped file reads with its reader, says where it is from, and names only what is shipped too."""

import csv
import gzip
from pathlib import Path

import pytest

from planner.files import dump, parse, read
from planner.specs.hardware.cluster import Cluster
from planner.specs.hardware.profile import Profile
from planner.specs.job import Job
from planner.specs.layers import Decoder
from planner.specs.layers.head_widths import head_dim, kv_heads
from planner.specs.model import Model
from planner.specs.parameters import model_parameters
from planner.specs.workload.distributions import DISTRIBUTIONS, draw_mixture
from planner.specs.workload.length_sources import Distribution, LengthsFile, LogNormalMix

PROFILES = Path(__file__).parents[3] / "profiles"
KINDS = {"models": Model, "clusters": Cluster, "devices": Profile, "jobs": Job}
FILES = [(kind, path) for folder, kind in KINDS.items() for path in sorted((PROFILES / folder).glob("*.yaml"))]
JOBS = [path for kind, path in FILES if kind is Job]


def shipped(folder: str, name: str) -> Path:
    return PROFILES / folder / f"{name}.yaml"


def name_of(path: object) -> str:
    return path.stem if isinstance(path, Path) else ""


@pytest.mark.parametrize(("kind", "path"), FILES, ids=name_of)
def test_reads_is_called_as_its_file_and_says_where_it_is_from(kind: type, path: Path) -> None:
    value = read(path, kind)
    assert value.name == path.stem
    assert parse(dump(value), kind, "again") == value
    if not isinstance(value, Job):
        assert value.provenance.source if isinstance(value, Profile) else value.source


@pytest.mark.parametrize("path", [path for kind, path in FILES if kind is Cluster], ids=name_of)
def test_cluster_has_devices_and_rising_levels(path: Path) -> None:
    cluster = read(path, Cluster)
    for kind in cluster.ranks:
        assert shipped("devices", kind.kind).exists()
        assert kind.count % kind.per_node == 0
    sizes = [level.ranks for level in cluster.levels]
    assert sizes == sorted(set(sizes)) and sizes[-1] == cluster.size


@pytest.mark.parametrize("path", JOBS, ids=name_of)
def test_job_names_what_is_shipped(path: Path) -> None:
    job = read(path, Job)
    model = read(shipped("models", job.model), Model)
    cluster = read(shipped("clusters", job.cluster), Cluster)
    assert job.profile == "auto" or shipped("devices", job.profile).exists()
    if job.service:  # its requests go through all modules
        assert "llm" in model.modules
        return
    assert job.workload.module in model.modules if job.workload.module else len(model.modules) == 1 or model.tasks
    assert {*job.workload.tasks} <= {*model.tasks}
    module = model.modules[job.workload.module or next(iter(model.modules))]
    for degree in job.degrees:
        assert module.heads % degree == 0 and kv_heads(module) % degree == 0 and degree <= cluster.size
    if job.limits.tokens_per_rank:
        assert job.workload.max_tokens <= job.limits.tokens_per_rank * max(job.degrees)


@pytest.mark.parametrize("path", JOBS, ids=name_of)
def test_job_has_lengths_that_exist(path: Path) -> None:
    workload = read(path, Job).workload
    lengths = workload.lengths
    if isinstance(lengths, Distribution):
        assert lengths.name in DISTRIBUTIONS
    elif isinstance(lengths, LogNormalMix):
        assert len(draw_mixture(lengths.parts, workload.batch_rows, seed=0)) == workload.batch_rows
    elif isinstance(lengths, LengthsFile):
        assert len(rows_of(path.parent / lengths.path, lengths)) >= workload.batch_rows


def rows_of(path: Path, lengths: LengthsFile) -> list[int]:
    with gzip.open(path, "rt", encoding="utf-8") as text:
        return [int(row[lengths.column]) for row in csv.DictReader(text)]


def test_web_docs_are_4096_lengths_packed_without_a_date() -> None:
    path = PROFILES / "lengths" / "web-docs.csv.gz"
    rows = rows_of(path, LengthsFile(path=path.name))
    assert len(rows) == 4096 and min(rows) >= 1
    assert path.read_bytes()[4:8] == bytes(4)  # gzip's time stamp


@pytest.mark.parametrize("path", [path for kind, path in FILES if kind is Profile], ids=name_of)
def test_profiled_modules_belong_to_shipped_models(path: Path) -> None:
    profile = read(path, Profile)
    for name, costs in profile.modules.items():
        model, _, module = name.partition("/")
        assert costs.layer.layers <= read(shipped("models", model), Model).modules[module].layers
    for collective in profile.collectives.values():
        ranks = [point.ranks for point in collective.points]
        assert ranks == sorted(set(ranks))


@pytest.mark.parametrize("name", ["gpt-7b", "gpt-13b", "gpt-30b"])
def test_flexsp_caps_and_exchanges_follow_its_formulas(name: str) -> None:
    """30 GiB less ZeRO-3's 16 bytes a parameter over 64 ranks; 4 bf16 exchanges a layer in each of two passes."""
    model = read(shipped("models", name), Model)
    costs = read(shipped("devices", "flexsp-a100-40gb"), Profile).modules[f"{name}/llm"]
    job = read(shipped("jobs", f"flexsp-{name}-a100x64"), Job)
    module = model.modules["llm"]
    states_kib = 16 * model_parameters(model) / 64 / 1024
    assert job.limits.tokens_per_rank == int((30 * 1024**2 - states_kib) / costs.layer.activation_kib_per_token)
    assert costs.a2a_mb_per_token == 4 * 2 * module.layers * module.hidden * 2 / 2**20
    assert costs.layer.layers == module.layers


def test_vision_window_and_output_fit_their_modules() -> None:
    model = read(shipped("models", "qwen2.5-vl-7b"), Model)
    vision, llm = model.modules["vision"], model.modules["llm"]
    assert not isinstance(vision, Decoder)
    assert vision.window == (112 // vision.patch) ** 2
    assert vision.out == llm.hidden
    assert head_dim(vision) == 80 and head_dim(llm) == 128
