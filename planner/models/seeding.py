"""Random numbers that depend on what they are for, and not on who draws them or in which order."""

import hashlib

import torch


def generator_for(device: torch.device, *names: str | int) -> torch.Generator:
    """A generator whose stream is a function of the names."""
    digest = hashlib.sha256("/".join(map(str, names)).encode()).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(digest[:4], "big"))  # 32 bits: all that the CPU's uses
