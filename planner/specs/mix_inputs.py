"""A job with samples of another mix: the same, but for its batches."""

from dataclasses import replace

from planner.errors import InputError
from planner.specs.base import with_fields
from planner.specs.inputs import Inputs, JobOptions, batches_of, in_job_file
from planner.specs.workload.sample_batches import with_mix
from planner.specs.workload.stream_batches import SourcePaths


def inputs_at_mix(inputs: Inputs, mix: str, options: JobOptions) -> Inputs:
    """The inputs of a job that draws its samples, with batches of this mix. Raises InputError."""
    path = inputs.sources["job"]
    workload = with_mix(inputs.job.workload, mix)
    where = SourcePaths(path, inputs.sources["model"], path.parent)
    try:
        batches = batches_of(workload, inputs.model, inputs.module, options, where)
    except InputError as error:
        raise in_job_file(error, path) from error
    return replace(inputs, job=with_fields(inputs.job, workload=workload), batches=batches)
