"""What a job says of modules' inputs: `limits.inputs_per_rank` and `workload.max_inputs` name modules of its model."""

from pathlib import Path

from planner import files
from planner.errors import InputError
from planner.specs.job import Job
from planner.specs.model import Model
from planner.specs.workload.sample_batches import has_samples


def require_limited_modules(job: Job, model: Model, samples: str, path: Path) -> None:
    """Raises InputError where a job, read from `path`, limits the inputs of a module that the model does not have.
    `samples`: the module whose items are the workload's samples.
    """
    encoders = [name for name in model.modules if name != samples]
    for route, named, known in (
        (("limits", "inputs_per_rank"), job.limits.inputs_per_rank, [*model.modules]),
        (("workload", "max_inputs"), job.workload.max_inputs, encoders),
    ):
        for name in (name for name in named if name not in known):
            where = files.place(path, *route, name)
            if name == samples:
                message = f"what `{samples}` reads of a sample is limited in tokens"
                raise InputError(message, where=where, fix="workload.max_tokens")
            fix = (files.nearest_word(name, known) or f"one of {', '.join(known)}") if known else "leave it out"
            raise InputError(f"{model.name} has no module `{name}`", where=where, fix=fix)
    augmented = job.workload.repeated.augmented if job.workload.repeated else ()
    for name in (name for name in augmented if name not in encoders):
        where = files.place(path, "workload", "repeated", "augmented")
        fix = f"one of {', '.join(encoders)}" if encoders else "leave it out"
        raise InputError(f"`{name}` is no encoder of {model.name}", where=where, fix=fix)
    if job.workload.max_inputs and not has_samples(job.workload):
        where = files.place(path, "workload", "max_inputs")
        fix = "workload.lengths: {from: samples, path: samples.jsonl}, or leave it out"
        raise InputError("only samples with images and sound have inputs of encoders", where=where, fix=fix)
