"""Published records as a known framework would have run them."""

from dataclasses import replace

import numpy as np

from planner.calibrate.coefficients import GENERIC, CoefficientName
from planner.calibrate.framework_fit import predicted_seconds
from planner.calibrate.timed_cases import machines_of_cases
from planner.costs.layout_columns import LayoutColumns
from planner.published.published_case import PublishedCase, RecordOrigin, StatedNetwork
from planner.specs.framework.timing_coefficients import FRAMEWORK_PRIORS
from planner.specs.layers import Decoder

DENSE = Decoder(layers=32, hidden=4096, heads=32, kv_heads=8, ffn=14336, vocab=128256)
LARGE = Decoder(layers=80, hidden=8192, heads=64, kv_heads=8, ffn=28672, vocab=128256)
NODE = 8


def case(number, source, software="nemo", module=DENSE, device="h100-80gb", **setup):
    given = {"ranks": 64, "seq": 4096, "batch": 128, "zero": 1, **setup}
    return PublishedCase(
        origin=RecordOrigin(source, str(number), source, f"{source}.csv", number + 2),
        module=module,
        setup=LayoutColumns(**given),
        device=device,
        software=software,
        network=StatedNetwork(NODE, None, 50.0),
        settings_text="",
        attention_kernel="newest",
        seconds=1.0,
        memory_bytes=None,
        memory_rank="worst",
        oom=False,
    )


def grid(source, software="nemo", device="h100-80gb"):
    """Some thirty setups that tell traits apart."""
    found = []
    for module in (DENSE, LARGE):
        for tp, pp, ranks in ((1, 1, 16), (2, 1, 64), (8, 1, 64), (4, 4, 64), (8, 4, 512)):
            for batch in (128, 512, 1024):
                found.append(dict(module=module, tp=tp, pp=pp, ranks=ranks, batch=batch))
    return [case(n, source, software, device=device, **each) for n, each in enumerate(found)]


def truth(software=("nemo",), **traits):
    """Values of each framework: the priors', but for these."""
    values = {
        CoefficientName(name, trait): prior.value
        for name in (GENERIC, *software)
        for trait, prior in FRAMEWORK_PRIORS.items()
    }
    values |= {CoefficientName(name, trait): value for name in (GENERIC, *software) for trait, value in traits.items()}
    return values | {CoefficientName("h100-80gb", "bf16"): 0.85}


def measured(cases, values, noise=0.0, seed=0):
    """The cases with the seconds that these values give."""
    factors = np.exp(np.random.default_rng(seed).normal(0, noise, len(cases))) if noise else np.ones(len(cases))
    seconds = predicted_seconds(cases, machines_of_cases(cases), values) * factors
    return [replace(each, seconds=float(value)) for each, value in zip(cases, seconds, strict=True)]
