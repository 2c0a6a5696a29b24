"""Tables that a known law makes, in the form of files."""

import csv
import gzip
from itertools import product
from pathlib import Path

import numpy as np

PEAK = 1000.0  # TFLOP/s


def write(path: Path, header, rows) -> str:
    with gzip.open(path, "wt", newline="") if path.suffix == ".gz" else open(path, "w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return str(path)


def gemm_ms(m, n, k, known):
    flops = 2 * (m + known["m0"]) * (n + known["n0"]) * (k + known["k0"])
    return (flops / (known["share"] * PEAK * 1e12) + known["launch_us"] * 1e-6) * 1e3


def gemm_rows(known, sizes=(512, 1024, 2048, 4096, 8192), tokens=(1024, 2048, 4096, 16384)):
    return [(m, n, k, gemm_ms(m, n, k, known)) for m, n, k in product(tokens, sizes, sizes)]


def noisy(rows, size, seed=0):
    """The last field of each row times a log-normal factor of that size."""
    factors = np.exp(np.random.default_rng(seed).normal(0, size, len(rows)))
    return [(*row[:-1], row[-1] * factor) for row, factor in zip(rows, factors, strict=True)]
