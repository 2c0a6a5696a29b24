"""What a job and its cluster say that can hardly be meant: a warning of one line each, and no error."""

import logging
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from planner import files
from planner.specs.hardware.cluster import Cluster

if TYPE_CHECKING:
    from planner.specs.inputs import Inputs

LOG = logging.getLogger(__name__)
USUAL_DTYPE = "bf16"  # where a job gives none
ANOTHERS_RATE = {"bf16": ("fp16",), "fp8": ("bf16", "fp16")}  # whose rate is taken where a device lacks the dtype


def warn_of_implausible(inputs: "Inputs") -> None:
    """Log a line for each thing that can hardly be meant."""
    for doubt in (*cluster_doubts(inputs.cluster, inputs.sources["cluster"]), *job_doubts(inputs)):
        LOG.warning(doubt)


def cluster_doubts(cluster: Cluster, path: Path) -> Iterator[str]:
    """Yield what is unusual: links that are quicker farther away, nodes that are not full."""
    for near, far in pairwise(cluster.levels):
        if far.gb_per_s > near.gb_per_s:
            rates = f"{far.gb_per_s:g} GB/s beyond a {near.name} are more than within one, {near.gb_per_s:g} GB/s"
            yield f"{files.place(path, 'levels')}: {rates}; is that meant?"
    for kind in cluster.ranks:
        rest = kind.count % kind.per_node
        if kind.count > kind.per_node and rest:
            yield f"{files.place(path, 'ranks')}: {kind.count} ranks at {kind.per_node} a node leave a node of {rest}"


def job_doubts(inputs: "Inputs") -> Iterator[str]:
    """Yield what is unusual: a dtype that a device lacks, degrees that divide neither heads nor ranks."""
    job, path = inputs.job, inputs.sources["job"]
    fixed = job.fix.layouts.get(inputs.module)
    dtype = (fixed and fixed.dtype) or job.layout.dtype or USUAL_DTYPE
    for name, device in inputs.devices.items():
        if dtype in ANOTHERS_RATE and dtype not in device.tflops:
            known = next((each for each in ANOTHERS_RATE[dtype] if each in device.tflops), "its fastest dtype")
            yield f"{files.place(path, 'layout', 'dtype')}: {name} has no {dtype}; the rate of {known} is taken"
    heads, ranks = inputs.spec.heads, inputs.cluster.size
    unusual = [str(degree) for degree in job.degrees if heads % degree or ranks % degree]
    if unusual:
        counts = f"the {heads} heads and the {ranks} ranks"
        yield f"{files.place(path, 'degrees')}: {' and '.join(unusual)} do not divide {counts}; is that meant?"
