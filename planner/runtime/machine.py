"""What ran it, for the labels of measured numbers."""

import platform
from pathlib import Path

import torch

from planner.launch.worker import cores


def machine(device: torch.device, ranks: int) -> str:
    """`4 processes on 2 cores of Intel(R) Xeon(R) Processor`, `8 x NVIDIA H200`."""
    if device.type == "cuda":
        return f"{ranks} x {torch.cuda.get_device_name(device)}"
    processes = "1 process" if ranks == 1 else f"{ranks} processes"
    return f"{processes} on {cores()} cores of {processor()}"


def processor() -> str:
    """As Linux calls it, else its architecture."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, "") or platform.machine()
