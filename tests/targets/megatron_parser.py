"""Megatron-LM's own parser over many commands, in an environment that has megatron-core and nothing of planner.

Reads JSON lines of `{program, argv, environment, ranks}`, writes one of `{error}` or of what it derives. Devices and
processes are faked.
"""

import ast
import contextlib
import hashlib
import io
import json
import os
import sys
import types
import typing
from pathlib import Path

import typing_extensions

CASES = [json.loads(line) for line in sys.stdin]  # now: the imports below close it
typing.override = typing_extensions.override  # of Python 3.12
import torch  # noqa: E402

MAJOR = 9  # compute capability of the device that it is told of
torch.cuda.get_device_properties = lambda *_: types.SimpleNamespace(major=MAJOR, minor=0)
torch.cuda.get_device_capability = lambda *_: (MAJOR, 0)

from examples.mimo import pretrain_mimo  # noqa: E402
from examples.mimo.training.args import build_module_grid_specs  # noqa: E402
from megatron.core.hyper_comm_grid import HyperCommGrid  # noqa: E402
from megatron.core.parallel_state import RankGenerator  # noqa: E402
from megatron.training.argument_utils import core_transformer_config_from_args  # noqa: E402
from megatron.training.arguments import parse_args, validate_args  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402

APART, TOGETHER = "examples.mimo.pretrain_mimo", "examples/mimo/train.py"
MOST_RANKS = 1024  # of a process group that is faked, without which no grid of ranks can be asked
GROUPS = ("tp", "cp", "pp", "dp", "dp-cp")
DEGREES = {"tp": "tensor_model_parallel_size", "cp": "context_parallel_size", "pp": "pipeline_model_parallel_size"}


def arguments_of_training():
    """The arguments that the example for all modules on all ranks adds; the rest of it needs packages of its data."""
    source = Path(pretrain_mimo.__file__).with_name("train.py").read_text()
    added = next(node for node in ast.parse(source).body if getattr(node, "name", "") == "add_mimo_args")
    scope: dict = {}
    exec(ast.unparse(added), scope)
    return scope["add_mimo_args"]


MORE = {APART: pretrain_mimo.extra_args_provider, TOGETHER: arguments_of_training()}


def grid_groups(spec: object, prefix: str) -> dict[str, list]:
    """The groups of ranks of one module's grid."""
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=MOST_RANKS)
    dims = ("tp", "cp", "dp", "pp")
    shape = [getattr(spec, dim) for dim in dims]
    grid = HyperCommGrid(shape=shape, dim_names=[*dims], rank_offset=spec.rank_offset, backend="fake")
    return {
        f"{prefix}{name}": sorted(map(sorted, grid.get_rank_enum([dim for dim in dims if dim in name.split("-")])))
        for name in GROUPS
    }


def judged(case: dict) -> dict:
    """What the parser makes of a command, or why it refuses it."""
    global MAJOR
    MAJOR = case["major"]
    os.environ.pop("CUDA_DEVICE_MAX_CONNECTIONS", None)
    os.environ.update(case["environment"], WORLD_SIZE=str(case["ranks"]), RANK="0")
    sys.argv = [case["program"], *case["argv"]]
    apart, more = case["program"] == APART, MORE.get(case["program"])
    noise = io.StringIO()
    try:
        with contextlib.redirect_stdout(noise), contextlib.redirect_stderr(noise):
            args = parse_args(more)
            said = {name: getattr(args, name) for name in dests(case["argv"], args)}
            args = pretrain_mimo._parse_and_validate() if apart else validate_args(args) or args
            args.apply_rope_fusion = False  # a kernel of Transformer Engine, which is not installed
            config = core_transformer_config_from_args(args)
        return derived(args, config, said)
    except SystemExit:
        return {"error": noise.getvalue().strip().splitlines()[-1]}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"}


def dests(argv: list[str], args: object) -> list[str]:
    """The attributes that these arguments set, where they are called alike."""
    names = [word.removeprefix("--").replace("-", "_") for word in argv if word.startswith("--")]
    return [name for name in names if hasattr(args, name)]


def one(value: object) -> list:
    """What a list of one is made to."""
    return value if isinstance(value, list) and len(value) == 1 else []


def derived(args: object, config: object, said: dict) -> dict:
    """Degrees, micro-batches, chunks and groups of ranks; and the arguments that validation changed."""
    sizes = {name: getattr(args, dest) for name, dest in DEGREES.items()}
    order = "tp-cp-ep-pp-dp" if args.use_tp_pp_dp_mapping else "tp-cp-ep-dp-pp"
    ranks = RankGenerator(**sizes, ep=1, dp=args.data_parallel_size, order=order)
    groups = {name: sorted(map(sorted, ranks.get_ranks(name))) for name in GROUPS}
    if hasattr(args, "llm_tp"):
        encoder, llm = build_module_grid_specs(args, args.world_size, "encoder")
        groups = grid_groups(llm, "") | grid_groups(encoder, "encoder ")
    batch = args.micro_batch_size * args.data_parallel_size
    return {
        "dp": args.data_parallel_size,
        "micro_batches": args.global_batch_size // batch,
        "vpp": args.virtual_pipeline_model_parallel_size or 1,
        "groups": hashlib.sha256(json.dumps(groups).encode()).hexdigest()[:16],
        "layers": config.num_layers,
        "kv_heads": config.num_query_groups,
        "ffn": config.ffn_hidden_size,
        "changed": sorted(
            name for name, value in said.items() if getattr(args, name, None) not in (value, *one(value))
        ),
    }


for case in CASES:
    print(json.dumps(judged(case)), flush=True)
