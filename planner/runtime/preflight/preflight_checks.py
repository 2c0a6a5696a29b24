"""Checks before launch: refuses plans and options that this runtime cannot execute, and plans for another machine.

Checks that need no torch come first: importing it takes seconds.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import get_args

from planner.errors import InputError
from planner.files import require_folder, require_writable
from planner.launch import DeviceKind
from planner.plan.mesh.rank_mesh import expert_layouts, expert_shards
from planner.plan.plan_file import Layout, Plan, assignments
from planner.plan.tasks.expand import expand
from planner.plan.tokens.encoder_outputs import layout_stages
from planner.runtime.checkpoint.resume_checks import require_resumable, require_save_folder
from planner.runtime.preflight.data_checks import require_data
from planner.runtime.preflight.table_checks import require_plain_run, table_refusals
from planner.runtime.preflight.task_checks import require_drawn_items, task_refusals
from planner.runtime.run_options import RunOptions, training_checks
from planner.specs.layers import Module
from planner.specs.parallelism import Dtype
from planner.specs.run_option_help import OnSpike
from planner.specs.workload.items import packed_documents, part_lengths

Refusal = tuple[str, str, str]  # message, where, fix

FP8 = "matrix products in fp8 cannot be run yet"
DRIVERS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")  # of NVIDIA, AMD, WSL: without one there is no GPU


@contextmanager
def errors_in_plan_file(name: str, place: str = "") -> Iterator[None]:
    """Names the plan file in any InputError raised inside: `NAME (its own place, or else `place`)`."""
    try:
        yield
    except InputError as error:
        where = error.where or place
        raise InputError(error.message, where=f"{name} ({where})" if where else name, fix=error.fix) from error


def require_runnable(plan: Plan, options: RunOptions) -> None:
    """Raises InputError with the first reason why the plan cannot be run with these options."""
    name = options.source or plan.name
    require_quick_checks(plan, options)
    with errors_in_plan_file(name):
        require_executable(plan)
    require_models(plan, options, name)


def require_quick_checks(plan: Plan, options: RunOptions) -> None:
    """Runs the subset of `require_runnable` that takes no time and imports no torch. Raises InputError."""
    require_options(options)
    options.step_count(plan)
    require_save_folder(options)
    require_resumable(plan, options)
    with errors_in_plan_file(options.source or plan.name):
        require_supported(plan)
        require_driver(plan)
    require_plain_run(plan, options)
    require_drawn_items(plan, options)
    require_features_folder(plan, options)
    steps_elsewhere = options.steps_folder(plan)
    if options.on_spike == "rollback" and steps_elsewhere:
        message = "a run whose steps are planned meanwhile cannot skip any"
        raise InputError(message, where="--on-spike rollback", fix="plan all steps ahead, or leave it out")
    if options.memory_snapshot is not None and device_kind(plan) == "cpu":
        raise InputError("torch counts no memory of the CPU", where="--memory-snapshot", fix="leave it out")


def require_features_folder(plan: Plan, options: RunOptions) -> None:
    """Raises InputError where a plan keeps features on a disk and nothing says where, or the other way round."""
    kept = [f"`{name}`" for name, layout in plan.layouts.items() if layout.features == "disk"]
    if kept and options.features is None:
        message = f"the plan keeps features of {' and '.join(kept)} on a disk, and nothing says in which folder"
        raise InputError(message, where="--features", fix="--features DIR; ranks of a node share it")
    if options.features is not None and not kept:
        raise InputError("the plan keeps no features on a disk", where="--features", fix="leave it out")


def require_options(options: RunOptions) -> None:
    if options.steps is not None and options.steps < 1:
        raise InputError(f"{options.steps} steps are not enough", where="--steps", fix="run at least one")
    known = get_args(Dtype)
    if options.dtype is not None and options.dtype not in known:
        raise InputError(f"no dtype is called `{options.dtype}`", where="--dtype", fix=f"one of {', '.join(known)}")
    if options.dtype == "fp8":
        raise InputError(FP8, where="--dtype", fix="bf16")
    for valid, message, where, fix in (*training_checks(options.training), *option_checks(options)):
        if not valid:
            raise InputError(message, where=where, fix=fix)


def option_checks(options: RunOptions) -> Iterator[tuple[bool, str, str, str]]:
    """For each option of a folder or a time, whether it is valid, and message, place and fix if not."""
    every, keep_every = options.save_every, options.keep_every
    limit, hang = options.max_seconds, options.hang_seconds
    yield every is None or every >= 1, f"cannot save every {every} steps", "--save-every", "1, or more"
    yield every is None or options.save is not None, "nothing says where to save", "--save-every", "--save DIR"
    yield options.keep >= 1, f"cannot keep {options.keep} checkpoints", "--keep", "1, or more"
    yield (
        keep_every is None or keep_every >= 1,
        f"cannot keep checkpoints of every {keep_every} steps",
        "--keep-every",
        "1, or more",
    )
    yield (
        not options.allow_different or options.weights is not None,
        "nothing says which weights may differ from the plan's model",
        "--allow-different",
        "--weights DIR, or leave it out",
    )
    yield options.on_spike in get_args(OnSpike), f"invalid {options.on_spike}", "--on-spike", "log or rollback"
    yield (
        options.on_spike == "log" or options.save is not None,
        "nothing says where to save",
        "--on-spike",
        "--save DIR",
    )
    fix = "--save DIR, with --save-every STEPS: the steps since the last checkpoint are trained again"
    yield not options.elastic or options.save is not None, "nothing says where to save", "--elastic", fix
    yield options.spike_steps >= 1, f"a spike of {options.spike_steps} steps", "--spike-steps", "1, or more"
    compared = options.check_replicas
    yield compared is None or compared >= 1, f"every {compared} steps", "--check-replicas", "1, or more"
    yield limit is None or limit > 0, f"invalid time limit of {limit} s", "--max-time", "such as 10m"
    yield hang is None or hang > 0, f"a rank cannot hang after {hang} s", "--hang-after", "such as 60s"


def require_supported(plan: Plan) -> None:
    """Raises InputError for the first feature of the plan that this runtime does not support. Needs no torch."""
    for message, where, fix in refusals(plan):
        raise InputError(message, where=where, fix=fix)


def require_executable(plan: Plan) -> None:
    """Raises InputError for unsupported features, and for task lists on which ranks would deadlock."""
    from planner.runtime.preflight.deadlocks import require_no_deadlock, task_lists

    require_supported(plan)
    for number in range(len(plan.steps)):
        tasks = expand(plan, number)
        require_no_deadlock(plan, task_lists(tasks), f"steps[{number}]")


def refusals(plan: Plan) -> Iterator[Refusal]:
    """Features of the plan that this runtime does not support."""
    for at, edge in enumerate(plan.edges):
        if edge.by == "log_probabilities":
            message = (
                f"a loss that reads log-probabilities of `{edge.source}` cannot be run yet: planner's is of tokens"
            )
            yield message, f"edges[{at}].by", "follow the plan in a trainer of your own (planner.follow)"
    yield from table_refusals(plan, device_kind(plan) == "cuda")
    yield from task_refusals(plan)
    for name, layout in plan.layouts.items():
        if layout.dtype == "fp8":
            yield FP8, f"layouts.{name}.dtype", "dtype: bf16"
        yield from expert_refusals(layout, plan.uses.models[name], f"layouts.{name}")
        if not layout.sequence_parallel and layout.tp > 1:
            message = "tensor parallelism without sequence parallelism cannot be run yet"
            yield message, f"layouts.{name}.sequence_parallel", "sequence_parallel: true"
        if plan.uses.models[name].borrows_embedding:
            message = f"words of `{name}` are looked up in a table on the ranks of another module: that cannot be run"
            yield message, f"uses.models.{name}.shared_words", "shared_words: false, for a table of its own"
        if layout.offloaded_parts:
            message = f"activations of {' and '.join(layout.offloaded_parts)} alone cannot be offloaded yet"
            yield message, f"layouts.{name}.offload", "offload: a share of all activations"
        if layout.optimizer_offload:
            message = "an optimizer whose moments are in host memory cannot be run yet"
            yield message, f"layouts.{name}.optimizer_offload", "optimizer_offload: 0"
        if layout.overlap:
            message = f"exchanges of {' and '.join(layout.overlap)} beside compute cannot be run yet"
            yield message, f"layouts.{name}.overlap", "leave `overlap` out"


def expert_refusals(layout: Layout, spec: Module, where: str) -> Iterator[Refusal]:
    """Unsupported features of each layout of the experts."""
    for at in expert_layouts(layout, spec):
        etp = at.etp
        if spec.bias == "all" and spec.hidden % etp:
            message = f"biases of the experts' outputs, {spec.hidden} wide, cannot be sharded over etp = {etp}"
            yield message, f"{where}.etp", "an etp that divides the hidden size"
        if at.dispatch == "node_level" and expert_shards(at) > 1:
            message = "one copy of a token to each node with experts of it cannot be run yet"
            yield message, f"{where}.dispatch", "dispatch: all_to_all, or all_gather"


def require_models(plan: Plan, options: RunOptions, name: str) -> None:
    """Raises InputError where models cannot be built, or items, data, weights or checkpoint do not match the plan."""
    from planner.models import unsupported
    from planner.models.checkpoints import require_checkpoint, require_same_function
    from planner.models.inputs import check_batch
    from planner.runtime.checkpoint.stored_states import require_stored_states

    for module, spec in plan.uses.models.items():
        reason = unsupported(spec) if module in plan.layouts else None
        sizes = plan.uses.items.get(module, {})
        with errors_in_plan_file(name, f"uses.models.{module}"):
            if reason:
                message, _, fix = reason.partition(" | ")
                raise InputError(message, fix=fix)
            check_batch(spec, packed_documents([*sizes], [*map(part_lengths, sizes.values())]))
    for edge in plan.edges:
        depths, reader = len(plan.uses.models[edge.source].feature_depths), edge.target
        first = layout_stages(plan.uses.models[reader], plan.layouts[reader])[0] if depths else ()
        if len(first) < depths:
            what = f"features of `{edge.source}` are added behind the first {depths} layers, of which the first stage"
            raise InputError(f"{what} has {len(first)}", where=f"layouts.{reader}", fix="a longer first stage")
    require_data(plan, options)
    if options.weights is not None:
        decoders = [plan.uses.models[name] for name in plan.layouts if not plan.uses.models[name].feature_width]
        if len(decoders) != 1:
            message = f"--weights is for plans with one decoder, this one has {len(decoders)}"
            raise InputError(message, where="--weights", fix="leave them out")
        models = {name: plan.uses.models[name] for name in plan.layouts}
        require_checkpoint([*models.values()], options.weights)
        require_same_function(models, options.weights, frozenset(options.allow_different))
    if options.resume is not None:
        require_stored_states(options.resume)


def device_kind(plan: Plan) -> DeviceKind:
    """Kind of processor of the plan's ranks. Raises InputError when they are of several kinds."""
    kinds = {plan.uses.devices[entry.kind].kind for entry in plan.ranks}
    if len(kinds) > 1:
        raise InputError("the plan's ranks are on CPUs and on GPUs", where="ranks", fix="use one kind of rank")
    return "cuda" if kinds == {"cuda"} else "cpu"


def require_devices(plan: Plan, local_ranks: int) -> DeviceKind:
    """Kind of processor of the plan's ranks. Raises InputError when this machine has fewer than `local_ranks`."""
    import torch

    kind = device_kind(plan)
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if kind == "cuda" and gpus < local_ranks:
        raise another_machine(plan, gpus)
    return kind


def require_driver(plan: Plan) -> None:
    """Raises InputError where the plan is for GPUs and this machine has no GPU driver. Needs no torch."""
    if device_kind(plan) == "cuda" and not any(Path(driver).exists() for driver in DRIVERS):
        raise another_machine(plan, 0)


def another_machine(plan: Plan, gpus: int) -> InputError:
    wanted = " and ".join(f"{entry.count} of {entry.kind}" for entry in plan.ranks)
    return InputError(
        f"a plan for another machine: it wants {wanted}, this one has {gpus or 'no'} GPUs",
        where="ranks",
        fix="run it there, or plan the job for a cluster like this one",
    )


def require_outputs(options: RunOptions) -> None:
    """Raises InputError where metrics, checkpoint or memory snapshots cannot be written."""
    if options.metrics is not None:
        require_writable(options.metrics, "--metrics")
    if options.save is not None:
        require_folder(options.save, f"--save {options.save}")
    if options.features is not None:
        require_folder(options.features, f"--features {options.features}")
    if options.record is not None:
        require_folder(options.record, f"--record {options.record}")
    if options.memory_snapshot is not None:
        require_folder(options.memory_snapshot, f"--memory-snapshot {options.memory_snapshot}")


def unenforced_shares(plan: Plan) -> str:
    """A warning if the plan shares devices between tasks, else an empty string. A rank executes its tasks one after the
    other, each with its whole device: losses are the same, times are not those that were predicted.
    """
    micro_batches = (micro_batch for step in plan.steps for micro_batch in step.micro_batches)
    if all(a.share == 1 for micro_batch in micro_batches for a in assignments(plan, micro_batch)):
        return ""
    return "shares of devices are not enforced here: tasks run one after the other, each on its whole device"
