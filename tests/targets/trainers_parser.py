"""DeepSpeed's and Accelerate's own parsers over many files, in an environment without planner.

Reads JSON lines of `{deepspeed}` or `{accelerate}`, each the text of a file, and `ranks`, `tp`, `sp`, `pp`; writes one
of `{error}` or of what the program makes of it.
"""

import contextlib
import io
import json
import os
import sys
import tempfile

CASES = [json.loads(line) for line in sys.stdin]
os.environ["DS_ACCELERATOR"] = "cpu"

from accelerate.commands.launch import _validate_launch_command, launch_command_parser  # noqa: E402
from accelerate.parallelism_config import ParallelismConfig  # noqa: E402
from accelerate.utils.launch import prepare_multi_gpu_env  # noqa: E402
from deepspeed.runtime import config as deepspeed_config  # noqa: E402

deepspeed_config.dist.get_rank = lambda *_: 0


class Grid:
    """DeepSpeed's grid of processes: what it asks of a script."""

    def __init__(self, case: dict):
        self.replicas = case["ranks"] // (case["tp"] * case["sp"] * case["pp"])

    def get_data_parallel_world_size(self) -> int:
        return self.replicas


def judged(case: dict) -> dict:
    """What a program makes of a file, or why it refuses it."""
    noise = io.StringIO()
    try:
        with contextlib.redirect_stdout(noise), contextlib.redirect_stderr(noise):
            return of_deepspeed(case) if "deepspeed" in case else of_accelerate(case)
    except SystemExit:
        return {"error": noise.getvalue().strip().splitlines()[-1][:200]}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"[:200]}


def of_deepspeed(case: dict) -> dict:
    """Its batch, stage and precision."""
    settings = json.loads(case["deepspeed"])
    config = deepspeed_config.DeepSpeedConfig(settings, mpu=Grid(case))
    return {
        "train_batch_size": config.train_batch_size,
        "train_micro_batch_size_per_gpu": config.train_micro_batch_size_per_gpu,
        "gradient_accumulation_steps": config.gradient_accumulation_steps,
        "zero_optimization.stage": int(config.zero_optimization_stage),
        "bf16.enabled": config.bfloat16_config.enabled,
        "communication_data_type": str(config.communication_data_type).replace("torch.", ""),
        "tensor_parallel.autotp_size": config.tensor_parallel_config.autotp_size or 1,
        "sequence_parallel_size": settings.get("sequence_parallel_size", 1),
        "dp": config.world_size,
    }


def of_accelerate(case: dict) -> dict:
    """What its launcher hands to processes: by the names that the file has them."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(case["accelerate"])
        file.flush()
        args = launch_command_parser().parse_args(["--config_file", file.name, "train.py"])
        args.nondefault = []
        args, said, _ = _validate_launch_command(args)
    os.environ.update(prepare_multi_gpu_env(args))
    mesh = ParallelismConfig()
    sizes = {name: getattr(mesh, f"{name}_size") for name in ("dp_replicate", "dp_shard", "tp", "cp")}
    assert mesh.total_size == args.num_processes == case["ranks"], (
        f"{mesh.total_size} are no {args.num_processes} ranks"
    )
    own = {f"parallelism_config.parallelism_config_{name}_size": size for name, size in sizes.items()}
    names = ("RESHARD_AFTER_FORWARD", "ACTIVATION_CHECKPOINTING", "OFFLOAD_PARAMS", "VERSION", "AUTO_WRAP_POLICY")
    for name in (*names, "STATE_DICT_TYPE"):
        own[f"fsdp_config.fsdp_{name.lower()}"] = os.environ[f"FSDP_{name}"]
    own |= {"num_machines": args.num_machines, "num_processes": args.num_processes}
    own |= {"compute_environment": said.compute_environment.value, "distributed_type": said.distributed_type.value}
    return own | {"mixed_precision": os.environ["ACCELERATE_MIXED_PRECISION"], "dp": mesh.data_parallel_size}


for each in CASES:
    print(json.dumps(judged(each)), flush=True)
