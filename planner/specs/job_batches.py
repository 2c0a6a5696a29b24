"""The batches of samples that a job asks for: of which module they are items, where their sizes are from, which limits
there are, and what references read.

Samples are the items of one module. A reference, a frozen module whose log-probabilities the loss of that module reads,
has the same samples as items.
"""

import os
from dataclasses import replace
from pathlib import Path

from planner import files
from planner.errors import InputError
from planner.specs.base import with_fields
from planner.specs.job import Job
from planner.specs.model import Model
from planner.specs.workload.length_sources import LengthsFile, SamplesFile, TokensFolder, Workload
from planner.specs.workload.sample_batches import has_samples, read_sample_batches
from planner.specs.workload.sample_folder import CLIPS, IMAGES, has_media, media_files
from planner.specs.workload.samples import SampleBatch, read_batches
from planner.specs.workload.stream_batches import SourcePaths, add_streams
from planner.specs.workload.task_batches import main_module, task_batches
from planner.specs.workload.token_folder import OFFSETS


def sample_module(job: Job, model: Model, path: Path) -> str:
    """Return the module whose items are the workload's samples; of tasks, that which stands for all. Raises InputError
    where the job does not say which.
    """
    if model.tasks:
        return main_module(model)
    if not job.workload.module and len(model.modules) == 1:
        return next(iter(model.modules))
    if job.workload.module not in model.modules:
        named = f"module `{job.workload.module}`" if job.workload.module else "no module"
        raise InputError(
            f"the workload names {named}, the model has {', '.join(model.modules)}",
            where=f"{path} (workload.module)",
            fix="name one of them",
        )
    return job.workload.module


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


def without_references(model: Model) -> Model:
    """Return the model without its references and their edges: what samples have items of."""
    gone = {*model.references}
    if not gone:
        return model
    modules = {name: module for name, module in model.modules.items() if name not in gone}
    edges = tuple(edge for edge in model.edges if not {edge.source, edge.target} & gone)
    return with_fields(model, modules=modules, edges=edges)


def require_read_by_samples(model: Model, samples: str, where: str) -> None:
    """Raises InputError where the loss of another module than that of the samples reads log-probabilities."""
    for edge in model.edges:
        if edge.by == "log_probabilities" and edge.target != samples:
            message = f"`{edge.source}` reads the samples, which are items of `{samples}`, and feeds `{edge.target}`"
            raise InputError(message, where=where, fix=f"edges: [{{from: {edge.source}, to: {samples}}}]")


def with_reference_items(batch: SampleBatch, model: Model, samples: str) -> SampleBatch:
    """Return the batch in which each reference has the samples as items, and reads what encoders feed them."""
    streams, feeds = dict(batch.streams), {name: dict(read) for name, read in batch.feeds.items()}
    for name in model.references:
        streams = {name: dict(batch.items), **streams}
        feeds = {name: {samples: {item: (item,) for item in batch.items}}, **feeds}
        for edge in model.edges:
            if edge.target == name and edge.source in feeds:
                feeds[edge.source][name] = feeds[edge.source][samples]
    return replace(batch, streams=streams, feeds=feeds)


def batches_of(
    workload: Workload, model: Model, module: str, span: tuple[int, int], seed: int, where: SourcePaths
) -> tuple[SampleBatch, ...]:
    """The batches of a workload, with items of all modules; `span`: their number, and the first sample. Raises
    InputError.
    """
    if workload.tasks:
        return tuple(task_batches(workload, model, span, seed))
    if has_samples(workload):
        return tuple(read_sample_batches(workload, model, module, span, seed, where.base))
    if isinstance(workload.lengths, TokensFolder) and has_media(where.base / workload.lengths.path):
        fix = f"lengths: {{from: samples, path: {workload.lengths.path}}}"
        raise InputError("the folder has images or sound beside its tokens", where="workload.lengths", fix=fix)
    samples = read_batches(workload, *span, seed, where.base)
    return tuple(add_streams(samples, workload, model, module, seed, where))


def in_job_file(error: InputError, path: Path) -> InputError:
    """Return an error about a workload with the place in its job's file; any other as it is."""
    if error.where and not error.where.startswith("workload"):
        return error
    route = (error.where or "workload.lengths").split(".")
    return InputError(error.message, where=files.place(path, *route), fix=error.fix)


def replace_lengths(job: Job, path: Path) -> Workload:
    """Return the workload with lengths from a folder of tokens or samples, from a file of samples where the job has
    one, or from a file of lengths with the same column as the job's. Raises InputError where tasks say them.
    """
    if job.workload.tasks:
        message, fix = "tasks say the sizes of their samples themselves", "leave it out, and change workload.tasks"
        raise InputError(message, where="--lengths", fix=fix)
    lengths = job.workload.lengths
    if os.path.isdir(path) or path.name == OFFSETS:
        return with_fields(job.workload, lengths=folder_lengths(path if os.path.isdir(path) else path.parent))
    if isinstance(lengths, SamplesFile):
        return with_fields(job.workload, lengths=SamplesFile(path=str(path)))
    column = lengths.column if isinstance(lengths, LengthsFile) else "tokens"
    return with_fields(job.workload, lengths=LengthsFile(path=str(path), column=column))


def folder_lengths(folder: Path) -> TokensFolder | SamplesFile:
    """Lengths from a folder: of samples where it has images or sound, else of tokens."""
    return SamplesFile(path=str(folder)) if has_media(folder) else TokensFolder(path=str(folder))


def length_files(workload: Workload, base: Path) -> dict[str, Path]:
    """The files that say the sizes of samples, by role."""
    if not isinstance(workload.lengths, LengthsFile | SamplesFile | TokensFolder):
        return {}
    path = base / workload.lengths.path
    if isinstance(workload.lengths, LengthsFile) or not os.path.isdir(path):
        return {"lengths": path}
    media = {of.noun: path / of.index for of in (IMAGES, CLIPS) if of.index in media_files(path)}
    return {"lengths": path / OFFSETS, **{f"lengths of {noun}s": file for noun, file in media.items()}}
