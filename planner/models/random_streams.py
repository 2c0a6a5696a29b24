"""Random streams that depend on their names alone, not on the rank that draws them or the order of draws."""

import hashlib

import torch


def named_generator(device: torch.device, *names: str | int) -> torch.Generator:
    """A random generator on the device whose stream is a function of the names."""
    digest = hashlib.sha256("/".join(map(str, names)).encode()).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(digest[:4], "big"))  # the CPU generator uses only 32 bits
