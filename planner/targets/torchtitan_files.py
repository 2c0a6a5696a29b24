"""The files of torchtitan: a TOML of 0.2.2, and a script that starts 0.3.0 with flags, written and read."""

from collections.abc import Mapping
from shlex import quote

from planner.errors import InputError
from planner.specs.layers import Decoder
from planner.targets.keyed_file import named, nested, read_toml, toml_text
from planner.targets.launch_command import LaunchCommand, read_launch
from planner.targets.launch_script import Script, script_text
from planner.targets.launchers import ConfigFile
from planner.targets.rows import Arguments, Stated
from planner.targets.target import Target, WrittenLaunch
from planner.targets.torchtitan import EXPERTS_FP8, PARTS, ROWS, SINCE, UNTIL_2
from planner.targets.torchtitan_models import CONFIGS, config_of

RELEASES = {"0.3": "0.3.0", "0.2": "0.2.2"}
PROGRAM = "torchtitan.train"
MODE = "activation_checkpoint.mode"
SUBCOMMAND = "activation_checkpoint:"
LISTS = {"model.converters": 1, PARTS: 2, f"{EXPERTS_FP8}.fqns": 1}  # and how deep
OF_CONFIG = frozenset(("model.name", "model.flavor", "model.converters", MODE))  # what no flag says
HOLES = {
    "HF_ASSETS_PATH": "folder with tokenizer and config of the model, as Hugging Face has them",
    "DATASET_PATH": "folder or name of the dataset",
}
DATA = {"--hf_assets_path": ('"$HF_ASSETS_PATH"',), "--dataloader.dataset_path": ('"$DATASET_PATH"',)}
TOML_DATA = {"model.hf_assets_path": ("$HF_ASSETS_PATH",), "training.dataset_path": ("$DATASET_PATH",)}


UNPRICED = (
    named("parallelism.", "context_parallel_rotate_method context_parallel_load_balancer disable_loss_parallel")
    | named("parallelism.", "pipeline_parallel_expert_parallel_overlap spmd_backend enable_fsdp_symm_mem")
    | named("activation_checkpoint.", "per_op_sac_force_recompute_mm_shapes_by_fqns early_stop memory_budget")
    | named("activation_checkpoint.", "preserve_rng_state determinism_check force_recompute_mm_shapes_by_fqns")
    | named("compile.", "components backend")
    | named("optimizer.", "implementation early_step_in_backward")
    | named("quantize.linear.float8.", "precompute_float8_dynamic_scale_for_fsdp recipe_name filter_fqns emulate")
    | named("debug.", "moe_force_load_balance deterministic detect_anomaly batch_invariant spmd_typechecking")
)
OTHER = (
    named("job.", "dump_folder description print_config save_config_file")
    | named("profiling.", "enable_profiling save_traces_folder profile_freq profiler_active profiler_warmup")
    | named("profiling.", "enable_memory_snapshot save_memory_snapshot_folder")
    | named("profiler.", "enable_profiling save_traces_folder profile_freq enable_memory_snapshot")
    | named("metrics.", "log_freq enable_tensorboard disable_color_printing save_tb_folder save_for_all_ranks")
    | named("metrics.", "enable_wandb")
    | named("model.", "hf_assets_path tokenizer_path print_after_conversion")
    | named("optimizer.", "lr beta1 beta2 eps weight_decay")
    | named("lr_scheduler.", "warmup_steps total_steps decay_ratio decay_type min_lr_factor")
    | named("training.", "dataset dataset_path max_norm steps gc_freq gc_debug")
    | named("training.dataloader.", "num_workers persistent_workers pin_memory prefetch_factor")
    | named("dataloader.", "dataset dataset_path num_workers persistent_workers pin_memory prefetch_factor infinite")
    | named("checkpoint.", "enable folder interval initial_load_path initial_load_model_only initial_load_in_hf")
    | named("checkpoint.", "last_save_model_only last_save_in_hf export_dtype async_mode keep_latest_k load_step")
    | named("checkpoint.", "exclude_from_loading enable_first_step_checkpoint create_seed_checkpoint load_only")
    | named("checkpoint.", "enable_ft_dataloader_checkpoints initial_load_in_hf_quantized")
    | named("comm.", "init_timeout_seconds train_timeout_seconds trace_buf_size save_traces_folder")
    | named("comm.", "save_traces_file_prefix")
    | named("validation.", "enable dataset dataset_path local_batch_size seq_len freq steps")
    | named("validator.", "enable freq steps")
    | named("debug.", "seed deterministic_warn_only print_config save_config_file enable_structured_logging")
    | named(
        "quantize.linear.mx.", "mxfp8_dim1_cast_kernel_choice recipe_name filter_fqns"
    )  # of converters that no plan
    | named("quantize.grouped_mm.mx.", "recipe_name fqns")  # can have
    | {"hf_assets_path", "dump_folder"}
)


def write(written: WrittenLaunch) -> str:
    """The file of a launch. Raises InputError where 0.3.0 has no configuration of its model in its precision."""
    about = (f"torchtitan {RELEASES[written.version]}, settings checked by its own parser", *written.about)
    if written.version == "0.2":
        file = "Start it on each node: torchrun … -m torchtitan.train --job.config_file FILE, $… filled in."
        head = "\n".join(f"# {line}" for line in (*about, file))
        return f"{head}\n\n{toml_text(nested({**written.arguments, **TOML_DATA}, LISTS))}"
    config = config_of(written.arguments)
    if config is None:
        precision = "fp8" if "model.converters" in written.arguments else "bf16"
        message = f"torchtitan 0.3.0 has no configuration of {written.arguments['model.flavor'][0]} in {precision}"
        raise InputError(message, where="--version", fix="--version 0.2, or a configuration of your own")
    flags = {name: own for name, own in written.arguments.items() if name not in OF_CONFIG}
    launch = written.launch
    arrays: dict[str, Arguments] = {
        "MODEL": {"--module": (CONFIGS[config].name,), "--config": (config,)},
        "SETTINGS": dict(flag(name, own) for name, own in flags.items()),
        "DATA": DATA,
        "RECOMPUTE": {f"{SUBCOMMAND}{written.arguments[MODE][0]}": ()},  # a subcommand: behind every flag
    }
    nodes = launch.ranks // launch.per_node
    return script_text(
        Script((*about, "Run it on each node."), HOLES, {}, arrays, f"-m {PROGRAM}", nodes, launch.per_node)
    )


def flag(name: str, values: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """A setting as a flag: `--a.b VALUE`; truths are `--a.b` and `--a.no-b`."""
    section, _, key = name.rpartition(".")
    if values in (("true",), ("false",)):
        return f"--{section}.{'' if values == ('true',) else 'no-'}{key}", ()
    return f"--{name}", tuple(quote(value) for value in values)


def read(text: str, name: str, given: Mapping[str, str]) -> LaunchCommand:
    """What a TOML, or a script with flags, starts. Raises InputError, also for settings of the other form's version."""
    if name.endswith(".toml"):
        stated = read_toml(text, name, given)
        wrong = next((each for each in stated.values if each in SINCE), None)
        version = "0.3, which has flags in place of TOML"
        command = LaunchCommand(PROGRAM, stated, None)
    else:
        command = read_launch(text, name, given, ())
        stated = settings_of(command.stated)
        wrong = next((each for each in stated.values if each in UNTIL_2), None)
        version = "0.2, which has TOML"
    if wrong:
        raise stated.error(wrong, f"this is a setting of torchtitan {version}", "leave it out, or the other form")
    return command._replace(stated=stated)


def settings_of(flags: Stated) -> Stated:
    """Flags as settings, beside those of the configuration that they name. Raises InputError."""
    values: dict[str, tuple[str, ...]] = {}
    places: dict[str, str] = {}
    for name, own in flags.values.items():
        section, _, key = name.removeprefix("--").replace("-", "_").rpartition(".")
        off = key.startswith("no_") and not own
        setting = f"{section}.{key.removeprefix('no_') if off else key}".removeprefix(".")
        words = tuple(word for word in own if not word.startswith(SUBCOMMAND))
        values[setting], places[setting] = words or ("false" if off else "true",), flags.places[name]
        for word in own[len(words) :]:
            values[MODE], places[MODE] = (word.removeprefix(SUBCOMMAND),), flags.places[name]
    if "job.config_file" in values:
        raise flags.error("--job.config_file", "the settings are in that file", "import the TOML itself")
    found = Stated(values, places, flags.file, {key.removeprefix("--"): own for key, own in flags.unknown.items()})
    name = found.choice("config", CONFIGS)
    config = CONFIGS[name].arguments()
    if found.value("module") != CONFIGS[name].name:
        raise found.error("module", f"{name} is of --module {CONFIGS[name].name}", f"--module {CONFIGS[name].name}")
    implied = {key: (value,) for key, value in config.items() if key not in values}
    found.defaults.update({key: f"{own[0]}, by {name}" for key, own in implied.items() if not key.startswith("model.")})
    told = {key: value for key, value in values.items() if key not in ("module", "config")}
    return Stated(implied | told, places, flags.file, found.unknown, found.defaults)


TORCHTITAN = Target(
    name="torchtitan",
    what="settings",
    software="torchtitan",
    checked="torchtitan 0.2.2 and 0.3.0",
    versions=("0.3", "0.2"),
    since=SINCE,
    modules=(Decoder,),
    rows=ROWS,
    programs=(PROGRAM, "train.py"),
    unpriced=UNPRICED,
    other=OTHER,
    switches=frozenset(),
    write=write,
    read=read,
    started={"0.2": ConfigFile(".toml", f'-m {PROGRAM} --job.config_file "$CONFIG"', HOLES)},
    outside=("module", "reduces_early", "gathers_early"),
)
