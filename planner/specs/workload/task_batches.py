"""Batches of models with several tasks, each with samples of its own: one is an item of every module of its task.

Samples of a step are numbered task by task, and their items as they are, so that the items of a sample have one number
in all modules.
"""

from collections.abc import Iterator, Mapping
from zlib import crc32

from planner.errors import InputError
from planner.specs.base import with_fields
from planner.specs.model import Model
from planner.specs.workload.items import UNITS_PER_TOKEN, Size, item_tokens, size_faults
from planner.specs.workload.length_sources import StreamDistribution, StreamMix, TaskSamples, Workload
from planner.specs.workload.samples import SampleBatch
from planner.specs.workload.stream_sources import draw_sizes, whole_size


def with_tasks_of(model: Model, workload: Workload) -> Model:
    """Return the model with the tasks that a workload has samples of, and their modules alone. Raises InputError where
    it has none of any, of a task that there is not, or of other modules.
    """
    if model.tasks and not workload.tasks:
        name, task = next(iter(model.tasks.items()))
        sizes = ", ".join(f"{module}: 256" for module in task.modules)
        fix = f"tasks: {{{name}: {{batch_rows: 64, streams: {{{sizes}}}}}}}"
        raise InputError(
            f"{model.name} has {len(model.tasks)} tasks, and no samples of any", where="workload.tasks", fix=fix
        )
    for name, samples in workload.tasks.items():
        where = f"workload.tasks.{name}"
        if name not in model.tasks:
            fix = (
                f"one of {', '.join(model.tasks)}" if model.tasks else "lengths and batch_rows: the model has one loss"
            )
            raise InputError(f"{model.name} has no task `{name}`", where=where, fix=fix)
        modules = model.tasks[name].modules
        if {*samples.streams} != {*modules}:
            message = f"task `{name}` is of {' and '.join(modules)}, and has items of {' and '.join(samples.streams)}"
            raise InputError(message, where=f"{where}.streams", fix="one stream for each of its modules")
    used = {module for name in workload.tasks for module in model.tasks[name].modules}
    left = {name: module for name, module in model.modules.items() if name in used or not model.tasks}
    return with_fields(model, modules=left, tasks={name: model.tasks[name] for name in workload.tasks})


def main_module(model: Model) -> str:
    """Return the module that stands for a model with tasks where one is asked for: the first whose items are of as many
    tokens as inputs, if any is.
    """
    return min(model.modules, key=lambda name: UNITS_PER_TOKEN[model.modules[name].input_unit])


def task_batches(workload: Workload, model: Model, span: tuple[int, int], seed: int) -> Iterator[SampleBatch]:
    """Yield batches of all tasks; `span`: their number, and the first sample. Raises InputError."""
    count, first = span
    for start in range(first, first + count * workload.batch_rows, workload.batch_rows):
        items: dict[str, dict[int, Size]] = {name: {} for name in model.modules}
        tasks: dict[str, tuple[int, ...]] = {}
        end = start
        for name, given in workload.tasks.items():
            begin, end = end, end + given.batch_rows
            tasks[name] = tuple(range(begin, end))
            for module, sizes in sample_sizes(given, name, model, start // workload.batch_rows, seed).items():
                items[module] |= dict(zip(tasks[name], sizes, strict=True))
        main = main_module(model)
        others = {module: sizes for module, sizes in items.items() if module != main}
        own = {sample: item_tokens(size) for sample, size in items[main].items()}
        yield SampleBatch(own, (), streams=others, feeds={name: {} for name in others}, tasks=tasks)


def sample_sizes(given: TaskSamples, name: str, model: Model, batch: int, seed: int) -> Mapping[str, list[Size]]:
    """Return the sizes of the samples of a task in one batch, by module. Raises InputError."""
    found: dict[str, list[Size]] = {}
    for module, stream in given.streams.items():
        spec, begin = model.modules[module], batch * given.batch_rows
        counts = drawn(stream, begin + given.batch_rows, seed ^ crc32(f"{name} {module}".encode()))[begin:]
        found[module] = [whole_size(spec, count) for count in counts]
        for size in {*found[module]}:
            for message, fix in size_faults(spec, module, size):
                raise InputError(message, where=f"workload.tasks.{name}.streams.{module}", fix=fix)
    return found


def drawn(stream: int | StreamDistribution | StreamMix, count: int, seed: int) -> list[int]:
    """Return sizes of so many items, in input units; each of them a number where the stream is one."""
    return [stream] * count if isinstance(stream, int) else draw_sizes(stream, count, seed)
