"""Shipped profiles of devices and frameworks, and models, each read once: thousands of records name the same few."""

from functools import lru_cache

from planner.specs import library
from planner.specs.framework.software import Software
from planner.specs.hardware.profile import Profile
from planner.specs.model import Model


@lru_cache(maxsize=64)
def device_profile(name: str) -> Profile:
    """A device's profile. Raises InputError."""
    return library.read_named(name, Profile)[0]


@lru_cache(maxsize=64)
def framework_software(name: str) -> Software:
    """A framework's coefficients. Raises InputError."""
    return library.read_named(name, Software)[0]


@lru_cache(maxsize=64)
def shipped_model(name: str) -> Model:
    """A shipped model. Raises InputError."""
    return library.read_named(name, Model)[0]


@lru_cache(maxsize=1)
def model_names() -> tuple[str, ...]:
    """Names of all shipped models."""
    return tuple(library.shipped_names(Model))
