"""What measurements depend on, as text and as digests: machine, versions, code, shapes."""

import hashlib
import os
import platform
import re
from functools import cache
from importlib.metadata import version
from pathlib import Path

import planner
from planner import files
from planner.launch import usable_cores
from planner.specs.layers import Module
from planner.specs.parallelism import Dtype

MEASURED_CODE = ("profiling", "models", "launch")  # packages whose code affects every measurement
NAMES = {  # pattern of torch's name of a GPU → name of its shipped profile
    r"H200": "h200",
    r"H100.*80GB": "h100-80gb",
    r"A100.*80GB": "a100-80gb",
    r"A100.*40GB": "a100-40gb",
}


def device_name(kind: str) -> str:
    """The name of this machine's profile: `cpu`, a shipped device such as `h200`, or a GPU's own name, shortened."""
    return "cpu" if kind == "cpu" else gpu_name(_gpu())


def gpu_count() -> int:
    """GPUs that torch can use here."""
    import torch

    return torch.cuda.device_count()


def gpu_name(torch_name: str) -> str:
    """Profile of a GPU: `NVIDIA A100-SXM4-80GB` is `a100-80gb`; an unknown GPU keeps its name without the vendor."""
    for pattern, name in NAMES.items():
        if re.search(pattern, torch_name):
            return name
    return re.sub(r"[^a-z0-9]+", "-", torch_name.lower().removeprefix("nvidia")).strip("-")


def processor_text(kind: str) -> str:
    """Name of the processor that is measured, for a CPU with its number of cores."""
    return f"{_cpu()}, {usable_cores()} cores" if kind == "cpu" else _gpu()


def versions() -> dict[str, str]:
    """Versions of planner, Python and torch."""
    return {"planner": planner.__version__, "python": platform.python_version(), "torch": version("torch")}


def environment_digest(device: str, kind: str) -> str:
    """Digest of machine, versions and code."""
    return digest(device, processor_text(kind), str(versions()), str(os.environ.get("OMP_NUM_THREADS")), code())


def module_digest(place: str, spec: Module, dtype: Dtype, ranks: int) -> str:
    """Digest of what a module's measurements depend on, given the digest of the environment."""
    return digest(place, files.json_text(spec), dtype, str(ranks))


def collective_digest(place: str, ranks: int) -> str:
    return digest(place, "collectives", str(ranks))


def digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


@cache
def code() -> str:
    """Digest of the code whose speed is measured, and of the code that measures it."""
    root = Path(planner.__file__).parent
    paths = [path for package in MEASURED_CODE for path in sorted((root / package).rglob("*.py"))]
    return digest(*(f"{path.relative_to(root)} {files.digest(path)}" for path in paths))


def _cpu() -> str:
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        found = None
    return found[1].strip() if found else platform.processor() or platform.machine()


def _gpu() -> str:
    import torch

    return torch.cuda.get_device_name()
