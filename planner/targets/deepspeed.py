"""DeepSpeed's JSON: fields of a launch ↔ its settings. What each means, and its default, is of the DeepSpeedConfig of
0.19.8. The model, its pipeline and what it recomputes are its script's.
"""

from collections.abc import Mapping

from planner.files import json_text
from planner.specs.layers import Decoder
from planner.targets.asked_rows import MODEL, RECOMPUTE, TOKENS, asked, what_the_script_has
from planner.targets.keyed_file import is_true, named, nested, only, read_yaml
from planner.targets.launch_command import LaunchCommand
from planner.targets.launchers import ConfigFile
from planner.targets.rows import Arguments, Fields, Row, Stated, number
from planner.targets.target import Target, WrittenLaunch

TP, SP, STAGE = "tensor_parallel.autotp_size", "sequence_parallel_size", "zero_optimization.stage"
TRAIN, MICRO, ACCUMULATED = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"
BF16, FP16, SENT = "bf16.enabled", "fp16.enabled", "communication_data_type"
SENT_AS = {"bf16": "bf16", "float32": "fp32"}
PROGRAM, ZERO = "deepspeed", "zero_optimization."


UNPRICED = (
    named(ZERO, "allgather_partitions allgather_bucket_size overlap_comm reduce_scatter reduce_bucket_size")
    | named(ZERO, "contiguous_gradients sub_group_size round_robin_gradients ignore_unused_parameters")
    | named(ZERO, "stage3_max_live_parameters stage3_max_reuse_distance stage3_prefetch_bucket_size")
    | named(ZERO, "stage3_param_persistence_threshold stage3_gather_16bit_weights_on_model_save")
    | named("activation_checkpointing.", "partition_activations contiguous_memory_optimization number_checkpoints")
    | named("activation_checkpointing.", "synchronize_checkpoint_boundary profile")
    | named("", "prescale_gradients gradient_predivide_factor data_types.grad_accum_dtype")
    | named("", "pipeline.pipe_partitioned pipeline.grad_partitioned pipeline.activation_checkpoint_interval")
)  # fmt: skip
OTHER = (
    named("", "comment log_level disable_python_gc dataloader_drop_last")
    | named("", "steps_per_print wall_clock_breakdown dump_state memory_breakdown gradient_clipping seed")
    | named(f"{ZERO}offload_optimizer.", "pin_memory pipeline_read pipeline_write ratio nvme_path")
    | named(f"{ZERO}offload_param.", "pin_memory nvme_path buffer_count buffer_size max_in_cpu")  # without offload
    | named("", "zero_allow_untested_optimizer zero_force_ds_cpu_optimizer")
    | named("optimizer.params.", "lr betas eps weight_decay torch_adam adam_w_mode bias_correction")
    | named("scheduler.", "type params.warmup_min_lr params.warmup_max_lr params.warmup_num_steps")
    | named("scheduler.", "params.total_num_steps params.warmup_type params.warmup_ratio params.cos_min_ratio")
    | named("fp16.", "loss_scale initial_scale_power loss_scale_window hysteresis min_loss_scale auto_cast")
    | named("checkpoint.", "load_universal tag_validation use_node_local_storage")
    | named("tensorboard.", "enabled output_path job_name") | named("wandb.", "enabled project group team")
    | named("flops_profiler.", "enabled profile_step module_depth top_modules detailed output_file")
)  # fmt: skip


def read_context(stated: Stated, fields: Fields) -> Fields:
    """Sequences are sharded by heads alone."""
    size = stated.integer(SP, 1)
    return {"layout.cp": size, "layout.ulysses": size}


def read_zero(stated: Stated, fields: Fields) -> Fields:
    """The data-parallel ranks are what is left. Raises InputError where the degrees do not divide the ranks."""
    tp, cp, pp = (fields[f"layout.{name}"] for name in ("tp", "cp", "pp"))
    if not tp * cp * pp or fields["ranks"] % (tp * cp * pp):
        message = f"tp {tp} · sp {cp} · {pp} stages do not divide {fields['ranks']} ranks"
        named_first = next((each for each in (TP, SP, "pipeline_stages") if each in stated), TP)
        raise stated.error(named_first, message, "other degrees, or another --gpus")
    return {
        "layout.zero": stated.integer(STAGE, 0),
        "layout.dp": fields["ranks"] // (tp * cp * pp),
        "layout.replica": 1,
    }


def write_dtype(fields: Fields) -> Arguments:
    """Gradients are sent in the precision of weights where nothing else is said."""
    own = {BF16: ("true",)} if fields["layout.dtype"] != "float32" else {BF16: ("false",)}
    return own | {SENT: (SENT_AS[fields["layout.gradients"]],)}


def read_dtype(stated: Stated, fields: Fields) -> Fields:
    half = is_true(stated, FP16, False) if FP16 in stated else False
    if half and is_true(stated, BF16, False):
        raise stated.error(FP16, "bf16 and fp16 exclude each other", f"leave out {FP16}")
    mixed = half or is_true(stated, BF16, False)
    if half:
        stated.defaults[FP16] = "true; priced as bf16, at the same rates"
    usual = "bf16" if mixed else "fp32"
    sent = {own: name for name, own in SENT_AS.items()}[stated.choice(SENT, SENT_AS.values(), usual)]
    return {"layout.dtype": "bf16" if mixed else "float32", "layout.gradients": sent}


def write_batch(fields: Fields) -> Arguments:
    micro = fields["layout.micro_batch"]
    steps = fields["sequences"] // (micro * fields["layout.dp"] * fields["layout.replica"])
    return {TRAIN: (str(fields["sequences"]),), MICRO: (str(micro),), ACCUMULATED: (str(steps),)}


def read_batch(stated: Stated, fields: Fields) -> Fields:
    """One of the three follows from the others. Raises InputError where they differ."""
    dp = fields["layout.dp"]
    told = {key: stated.integer(key) for key in (TRAIN, MICRO, ACCUMULATED) if key in stated}
    if TRAIN not in told and MICRO not in told:
        raise stated.error(TRAIN, "the batch is not said", f"add {TRAIN} or {MICRO}")
    steps = told.get(ACCUMULATED) or (told[TRAIN] // (told[MICRO] * dp) if len(told) == 2 and told.get(MICRO) else 1)
    micro = told.get(MICRO) or told[TRAIN] // (dp * steps)
    total = told.get(TRAIN, micro * steps * dp)
    if not total or total != micro * steps * dp:
        message = f"{total} sequences are not micro-batch {micro} · {steps} steps · {dp} replicas"
        raise stated.error(TRAIN if TRAIN in told else MICRO, message, f"{TRAIN}: {micro * steps * dp}")
    return {"layout.micro_batch": micro, "sequences": total}


ROWS: tuple[Row, ...] = (
    MODEL, TOKENS, RECOMPUTE,
    asked("layout.pp", "pipeline_stages", "4", Stated.integer, "1"),
    number("layout.tp", TP, 1),
    Row(("layout.cp",), (SP,), (), lambda fields: {SP: (str(fields["layout.cp"]),)}, read_context),
    Row(("layout.zero", "layout.dp"), (STAGE,), (), lambda f: {STAGE: (str(f["layout.zero"]),)}, read_zero),
    Row(("layout.dtype", "layout.gradients"), (BF16, FP16, SENT), (), write_dtype, read_dtype),
    Row(("layout.micro_batch", "sequences"), (TRAIN, MICRO, ACCUMULATED), (), write_batch, read_batch),
    only("zero_optimization.offload_optimizer.device", "none"),
    only("zero_optimization.offload_param.device", "none"),
    only("activation_checkpointing.cpu_checkpointing", "false"),
    only("optimizer.type", "Adam", "AdamW", "FusedAdam"),
)  # fmt: skip


def write(written: WrittenLaunch) -> str:
    """The JSON of a launch; its first key is a comment, which DeepSpeed does not read."""
    layout = written.launch.layout
    pipeline = f", a PipelineModule of {layout.pp} stages" if (layout.pp or 1) > 1 else ""
    about = ("DeepSpeed 0.19.8, settings checked by its own parser", *written.about)
    comment = {"comment": " | ".join((*about, what_the_script_has(written.launch, pipeline)))}
    return json_text(comment | nested(written.arguments, {})) + "\n"


def read(text: str, name: str, given: Mapping[str, str]) -> LaunchCommand:
    return LaunchCommand(PROGRAM, read_yaml(text, name, given), None)


DEEPSPEED = Target(
    name="deepspeed",
    what="settings",
    software="deepspeed",
    checked="DeepSpeed 0.19.8",
    versions=("0.19",),
    since={},
    modules=(Decoder,),
    rows=ROWS,
    programs=(PROGRAM,),
    unpriced=UNPRICED,
    other=OTHER,
    switches=frozenset(),
    write=write,
    read=read,
    started={
        "0.19": ConfigFile(
            ".json", '"$TRAIN" --deepspeed --deepspeed_config "$CONFIG"', {"TRAIN": "the training script"}
        )
    },
    outside=(
        "module", "tokens", "layout.recompute", "layout.pp", "layout.stages", "layout.schedule",
        "reduces_early", "gathers_early",
    ),
)  # fmt: skip
