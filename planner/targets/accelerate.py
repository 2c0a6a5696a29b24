"""Accelerate's YAML: fields of a launch ↔ FSDP2's settings and its mesh. What each means, and its default, is of the
launcher and the ParallelismConfig of 1.15. Model and batch are its script's.
"""

from collections.abc import Mapping

from planner.files import dump
from planner.specs.layers import Decoder
from planner.targets.asked_rows import MODEL, TOKENS, asked, what_the_script_has
from planner.targets.keyed_file import is_true, named, nested, only, read_yaml
from planner.targets.launch_command import LaunchCommand
from planner.targets.launchers import ConfigFile
from planner.targets.rows import Arguments, Fields, Row, Stated
from planner.targets.target import Target, WrittenLaunch

MESH, FSDP = "parallelism_config.parallelism_config_", "fsdp_config.fsdp_"
TP, CP = f"{MESH}tp_size", f"{MESH}cp_size"
REPLICATE, SHARD = f"{MESH}dp_replicate_size", f"{MESH}dp_shard_size"
RESHARD, RECOMPUTE = f"{FSDP}reshard_after_forward", f"{FSDP}activation_checkpointing"
PROGRAM = "accelerate"
FIXED = {  # what a file says whatever the launch
    "compute_environment": ("LOCAL_MACHINE",),
    "distributed_type": ("FSDP",),
    f"{FSDP}version": ("2",),
    f"{FSDP}auto_wrap_policy": ("TRANSFORMER_BASED_WRAP",),
    f"{FSDP}offload_params": ("false",),
    f"{FSDP}state_dict_type": ("SHARDED_STATE_DICT",),
}
DTYPES = {"bf16": "bf16", "float32": "no"}
UNPRICED = (
    named(FSDP, "backward_prefetch forward_prefetch use_orig_params cpu_ram_efficient_loading sync_module_states")
    | named(MESH, "cp_backend cp_comm_strategy sp_backend") | named("", "dynamo_config.dynamo_backend downcast_bf16")
)  # fmt: skip
OTHER = (
    named("", "debug machine_rank main_process_ip main_process_port main_training_function")
    | named("", "rdzv_backend same_network use_cpu")
    | named("", "tpu_env tpu_use_cluster tpu_use_sudo enable_cpu_affinity gpu_ids")
    | named(FSDP, "transformer_layer_cls_to_wrap min_num_params")
)  # fmt: skip


def write_ranks(fields: Fields) -> Arguments:
    nodes = fields["ranks"] // fields["per_node"]
    return {"num_machines": (str(nodes),), "num_processes": (str(fields["ranks"]),)}


def read_ranks(stated: Stated, fields: Fields) -> Fields:
    """Raises InputError where the file starts other ranks than --gpus says."""
    if "num_processes" in stated and stated.integer("num_processes") != fields["ranks"]:
        told = stated.one("num_processes")
        raise stated.error("num_processes", f"it starts {told} ranks, not {fields['ranks']}", f"--gpus {told}xh100")
    return {}


def write_mesh(fields: Fields) -> Arguments:
    zero, dp, replica = (fields[f"layout.{name}"] for name in ("zero", "dp", "replica"))
    sizes = {REPLICATE: replica if zero else dp * replica, SHARD: dp if zero else 1}
    sizes |= {TP: fields["layout.tp"], CP: fields["layout.cp"]}
    return {key: (str(size),) for key, size in sizes.items()} | {RESHARD: (str(zero == 3).lower(),)}


def read_mesh(stated: Stated, fields: Fields) -> Fields:
    """Without a mesh, all ranks are one of shards. Raises InputError where sizes do not make the ranks."""
    alone = not any(each in stated for each in (REPLICATE, SHARD, TP, CP))
    tp, cp, replicate = stated.integer(TP, 1), stated.integer(CP, 1), stated.integer(REPLICATE, 1)
    shard = stated.integer(SHARD, fields["ranks"] if alone else 1)
    if tp * cp * replicate * shard != fields["ranks"]:
        text = f"replicate {replicate} · shard {shard} · cp {cp} · tp {tp} are no {fields['ranks']} ranks"
        raise stated.error(next(each for each in (SHARD, TP, CP, REPLICATE) if each in stated), text, "sizes that are")
    own = {"layout.tp": tp, "layout.cp": cp}
    if shard * cp == 1 and replicate > 1:
        raise stated.error(REPLICATE, "replicas without shards are no FSDP", f"{SHARD}: {replicate}, {REPLICATE}: 1")
    if shard * cp == 1:
        return own | {"layout.zero": 0, "layout.dp": replicate, "layout.replica": 1}
    return own | {
        "layout.zero": 3 if is_true(stated, RESHARD, True) else 2,
        "layout.dp": shard,
        "layout.replica": replicate,
    }


def write_recompute(fields: Fields) -> Arguments:
    return {RECOMPUTE: (str(fields["layout.recompute"] == "full").lower(),)}


def read_recompute(stated: Stated, fields: Fields) -> Fields:
    return {"layout.recompute": "full" if is_true(stated, RECOMPUTE, False) else "none"}


def write_dtype(fields: Fields) -> Arguments:
    return {"mixed_precision": (DTYPES.get(fields["layout.dtype"], "bf16"),)}


def read_dtype(stated: Stated, fields: Fields) -> Fields:
    kind = stated.choice("mixed_precision", ("no", "false", "bf16", "fp16"), "no")
    if kind == "fp16":
        stated.defaults["mixed_precision"] = "fp16; priced as bf16, at the same rates"
    return {"layout.dtype": "float32" if kind in ("no", "false") else "bf16"}


def read_fixed(stated: Stated, fields: Fields) -> Fields:
    """Raises InputError for another version of FSDP, or where the file does not say what it trains with."""
    stated.value("distributed_type")
    for key in ("compute_environment", f"{FSDP}version", f"{FSDP}offload_params"):
        stated.choice(key, FIXED[key], "1" if key.endswith("version") else FIXED[key][0])
    return {}


ROWS: tuple[Row, ...] = (
    Row((), tuple(FIXED), (), lambda fields: FIXED, read_fixed),
    MODEL, TOKENS,
    asked("layout.micro_batch", "micro_batch_size", "1", Stated.integer),
    asked("sequences", "batch_size", "512", Stated.integer),
    Row((), ("num_machines", "num_processes"), (), write_ranks, read_ranks),
    Row(
        ("layout.tp", "layout.cp", "layout.zero", "layout.dp", "layout.replica"),
        (TP, CP, REPLICATE, SHARD, RESHARD), (), write_mesh, read_mesh,
    ),
    Row(("layout.recompute",), (RECOMPUTE,), (), write_recompute, read_recompute),
    Row(("layout.dtype",), ("mixed_precision",), (), write_dtype, read_dtype),
    only(f"{MESH}sp_size", "1"),
    only(f"{FSDP}activation_checkpointing_offload", "false"), only("use_parallelism_config", "true"),
)  # fmt: skip


def write(written: WrittenLaunch) -> str:
    """The YAML of a launch."""
    launch = written.launch
    batch = f", {launch.sequences} of them a step and {launch.layout.micro_batch} a micro-batch"
    about = ("accelerate 1.15, settings checked by its own parser", *written.about, what_the_script_has(launch, batch))
    return "".join(f"# {line}\n" for line in about) + dump(nested(written.arguments, {}))


def read(text: str, name: str, given: Mapping[str, str]) -> LaunchCommand:
    """Raises InputError for another kind of training, whose settings are not known."""
    stated = read_yaml(text, name, given)
    stated.choice("distributed_type", FIXED["distributed_type"], FIXED["distributed_type"][0])
    return LaunchCommand(PROGRAM, stated, None)


STARTED = ConfigFile(".yaml", '"$TRAIN"', {"TRAIN": "the training script"}, 'accelerate launch --config_file "$CONFIG"')
ACCELERATE = Target(
    name="accelerate",
    what="settings",
    software="fsdp",
    checked="accelerate 1.15.0",
    versions=("1.15",),
    since={},
    modules=(Decoder,),
    rows=ROWS,
    programs=(PROGRAM,),
    unpriced=UNPRICED,
    other=OTHER,
    switches=frozenset(),
    write=write,
    read=read,
    started={"1.15": STARTED},
    outside=(
        "module", "tokens", "sequences", "layout.micro_batch", "layout.gradients", "reduces_early", "gathers_early"
    ),
)  # fmt: skip
