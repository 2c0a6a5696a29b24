"""torchtitan's own parser, of the release that is installed, over many files, in an environment without planner.

Reads JSON lines of `{toml}` or `{argv}` and `ranks`, writes one of `{error}` or of what torchtitan derives. Groups of
ranks are of its own device mesh, over processes that are faked. So is the device that float8 needs.
"""

import contextlib
import dataclasses
import hashlib
import io
import json
import logging
import os
import sys
import tempfile
import warnings

CASES = [json.loads(line) for line in sys.stdin]
os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1")

import torch  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402
from torchtitan.tools import utils  # noqa: E402

utils.has_cuda_capability = lambda *_: True  # what float8 needs, before it is imported

from torchtitan.config.manager import ConfigManager  # noqa: E402
from torchtitan.distributed import ParallelDims, parallel_dims, pipeline_parallel  # noqa: E402

parallel_dims.device_type = "cpu"
logging.disable(logging.INFO)


class Split(Exception):
    """The names of modules in each stage, which torchtitan is about to build."""


def judged(case: dict) -> dict:
    """What the parser makes of a file, or why it refuses it."""
    noise = io.StringIO()
    try:
        with contextlib.redirect_stdout(noise), contextlib.redirect_stderr(noise), warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            return derived(*parsed(case), case["ranks"])
    except SystemExit:
        lines = [line.strip(" │") for line in noise.getvalue().splitlines() if line.strip(" │╭╰─╮╯")]
        return {"error": lines[0][:200] if lines else "refused"}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"[:200]}


def parsed(case: dict) -> tuple:
    """The configuration, and the number of the model's layers."""
    if "argv" in case:
        config = ConfigManager().parse_args(case["argv"])
        return config, config.model_spec.name, len(config.model_spec.model.layers)
    from torchtitan.protocols.train_spec import get_train_spec

    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(case["toml"])
        file.flush()
        config = ConfigManager().parse_args([f"--job.config_file={file.name}"])
    spec = get_train_spec(config.model.name)
    model = spec.model_args[config.model.flavor]
    model.update_from_config(config)
    if config.parallelism.pipeline_parallel_degree > 1 and not spec.pipelining_fn:
        raise RuntimeError(f"Pipeline Parallel is enabled but {config.model.name} does not support pipelining")
    return config, config.model.name, model.n_layers


def derived(config: object, name: str, layers: int, ranks: int) -> dict:
    """Degrees, micro-batches, stages and groups of ranks; and the settings as they came out."""
    own, training = config.parallelism, config.training
    dims = mesh_of(own, ranks)
    replicas = dims.dp_replicate * dims.dp_shard
    total = training.global_batch_size if training.global_batch_size > 0 else training.local_batch_size * replicas
    assert total % (training.local_batch_size * replicas) == 0, "global batch size must be multiple of local batch size"
    micro = own.pipeline_parallel_microbatch_size if dims.pp > 1 else training.local_batch_size
    assert training.local_batch_size % micro == 0, "Batch size must be divisible by microbatch_size"
    assert training.seq_len % dims.seq_len_divisor == 0, "Sequence length must be divisible by seq_len_divisor"
    tokens = dims._global_meshes["dataloading"].mesh  # pp, batch, cp, tp
    groups = {dim: sorted(tokens.movedim(at, -1).reshape(-1, tokens.shape[at]).tolist()) for at, dim in AXES}
    return {
        "dp": replicas,
        "replica": dims.dp_replicate,
        "micro_batches": total // (replicas * micro),
        "stages": stages(config, dims, layers) if dims.pp > 1 else [layers],
        "groups": hashlib.sha256(json.dumps(groups).encode()).hexdigest()[:16],
        "recompute": POLICIES.get(said(config)["policy"]) or config.activation_checkpoint.mode,
        "came_out": {key: value for key, value in flat(said(config)) if key in KEYS},
    }


POLICIES = {"FullAC.Config": "full", "SelectiveAC.Config": "selective", "NoneType": "none"}
AXES = ((0, "pp"), (1, "dp"), (2, "cp"), (3, "tp"))
KEYS: set[str] = set()


def said(config: object) -> dict:
    """The configuration as plain data, without the model."""
    plain = {}
    for each in dataclasses.fields(config):
        value = getattr(config, each.name)
        if each.name != "model_spec":
            plain[each.name] = dataclasses.asdict(value) if dataclasses.is_dataclass(value) else value
    policy = getattr(config, "activation_checkpoint", None)
    plain["policy"] = type(policy).__qualname__
    return plain


def flat(content: dict, path: str = "") -> list:
    """Settings by their dotted names."""
    found = []
    for key, value in content.items():
        found += flat(value, f"{path}{key}.") if isinstance(value, dict) else [(f"{path}{key}", value)]
    return found


def mesh_of(own: object, ranks: int) -> ParallelDims:
    """The device mesh, over ranks of which this is one."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    torch.distributed.init_process_group("fake", rank=0, world_size=ranks, store=FakeStore())
    if hasattr(ParallelDims, "from_config"):
        dims = ParallelDims.from_config(own, ranks)
    else:
        names = {"dp_replicate": "data_parallel_replicate", "dp_shard": "data_parallel_shard", "cp": "context_parallel"}
        names |= {"tp": "tensor_parallel", "pp": "pipeline_parallel", "ep": "expert_parallel"}
        degrees = {dim: getattr(own, f"{name}_degree") for dim, name in names.items()}
        dims = ParallelDims(**degrees, etp=own.expert_tensor_parallel_degree, world_size=ranks)
    dims.build_mesh()
    return dims


def stages(config: object, dims: ParallelDims, layers: int) -> list[int]:
    """Layers of each stage, as torchtitan is about to build them."""

    def split(*args: object, **_: object) -> None:
        raise Split(args[4])

    model = type("Model", (), {"n_layers": layers, "layers": range(layers)})()
    try:
        if hasattr(config, "model_spec"):
            pipeline_parallel._pipeline_module_split = split
            keys = ("training", "device", "loss_fn", "compile_config", "ac_config", "dump_folder", "parallelize_fn")
            rest = dict.fromkeys(keys)
            pipeline_parallel.pipeline_llm(
                None, parallel_dims=dims, parallelism=config.parallelism, model_config=model, **rest
            )
        else:
            pipeline_parallel.pipeline_module_split = split
            pipeline_parallel.pipeline_llm(None, dims, config, None, model, None, None)
    except Split as found:
        return [sum(part.startswith("layers.") for part in parts) for parts in found.args[0]]
    raise AssertionError("no stages were built")


for each in CASES:
    KEYS = set(each.get("keys", ()))
    print(json.dumps(judged(each), default=str), flush=True)
