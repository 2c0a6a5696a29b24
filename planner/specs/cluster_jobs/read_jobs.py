"""Jobs and GPUs as people have them: a table, or what Slurm or Kueue print; a cluster's file, or counts of GPUs."""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from planner import files
from planner.errors import InputError
from planner.specs.base import MAX_RANKS
from planner.specs.cluster_jobs.job_records import JobFile
from planner.specs.cluster_jobs.job_tables import job_table
from planner.specs.cluster_jobs.jobs import Fleet
from planner.specs.cluster_jobs.kueue import kueue_jobs
from planner.specs.cluster_jobs.slurm import amount, slurm_jobs
from planner.specs.hardware.cluster import RankKind
from planner.specs.named_files import read_cluster
from planner.units import first_few, plural

PER_NODE = 8  # GPUs of a node, where only counts are given
GPUS = re.compile(r"([0-9]{1,9})x([A-Za-z0-9_.-]+)")
ANSWERS = "what squeue --json, sacct --json or kubectl get workloads -o json prints; or a table as CSV"


def read_jobs(path: Path) -> JobFile:
    """The jobs with GPUs of a file. Raises InputError."""
    read, notes, now = answer_jobs(path) if files.read_head(path, 1) in (b"{", b"[") else job_table(path)
    records = [record for record in read if not record.left_out]
    for why in sorted({record.left_out for record in read} - {""}):
        jobs = [record.id for record in read if record.left_out == why]
        notes.append(f"{plural(len(jobs), 'job')} left out, {why}: {first_few(jobs)}")
    if not records:
        message = f"no job of this file asks for GPUs, {notes[-1]}" if read else "no job of this file asks for GPUs"
        raise InputError(message, where=str(path), fix="give one with jobs that do")
    twice, times = Counter(record.id for record in records).most_common(1)[0]
    if times > 1:
        second = [record for record in records if record.id == twice][1]
        raise InputError(f"job `{twice}` is there twice", where=second.where, fix="give each job an id of its own")
    return JobFile(records, notes, now)


def answer_jobs(path: Path) -> JobFile:
    """The jobs of an answer of Slurm's or Kueue's. Raises InputError."""
    data = files.read_json(path, ANSWERS)
    if isinstance(data, dict) and isinstance(data.get("jobs"), list):
        return JobFile([*slurm_jobs(data["jobs"], str(path))], [], amount(data.get("last_update")))
    if isinstance(data, dict) and isinstance(data.get("items"), list):
        return JobFile([*kueue_jobs(data["items"], str(path))], [])
    raise InputError("it has neither `jobs` nor `items`", where=str(path), fix=ANSWERS)


def read_fleet(cluster: str, gpus: str) -> Fleet:
    """The GPUs of a cluster's file, or of counts such as `8xv100,16xp100`. Raises InputError."""
    if bool(cluster) == bool(gpus):
        fix = "--cluster FILE, or --gpus 8xv100,16xp100"
        raise InputError("one of --cluster and --gpus says what GPUs there are", where="--gpus", fix=fix)
    return Fleet(read_cluster(cluster, where="--cluster")[0].ranks if cluster else counted(gpus.split(",")))


def counted(parts: Sequence[str]) -> list[RankKind]:
    """Kinds of GPUs from counts. Raises InputError."""
    kinds = []
    for part in parts:
        found = GPUS.fullmatch(part.strip())
        if not found or not 1 <= int(found[1]) <= MAX_RANKS:
            raise InputError(f"`{part}` is no count of GPUs", where="--gpus", fix="such as 8xv100,16xp100")
        kinds.append(RankKind(kind=found[2], count=int(found[1]), per_node=PER_NODE))
    if len({kind.kind for kind in kinds}) < len(kinds):
        raise InputError("a kind of GPU is there twice", where="--gpus", fix="give each kind once")
    return kinds
