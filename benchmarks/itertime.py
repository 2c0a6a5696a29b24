"""Measured iterations of Megatron GPTs on one node of A100s (vTrain): half fitted, the other half predicted."""

import csv
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import numpy as np

from benchmarks.registry import Figures
from planner.calibrate.framework_fit import linearised_fit, measured_logs, predicted_seconds
from planner.calibrate.timed_cases import machines_of_cases
from planner.costs.layout_columns import LayoutColumns
from planner.published.published_case import PublishedCase, RecordOrigin, StatedNetwork
from planner.specs.layers import Decoder

FILE = "itertime/vtrain_megatron_gpt_single_node.csv"
GPT = {
    "vocab": 51200,
    "gated": False,
    "norm": "layer",
    "bias": "all",
    "positions": "learned",
    "max_positions": 1024,
    "tied": True,
}
NODE = 8
LAYOUT = {
    "tp": "tensor parallelism",
    "pp": "pipeline parallelism",
    "micro_batch": "micro batch",
    "batch": "global batch",
}


def run(data: Path | None) -> Iterator[Figures]:
    if data is None or not (data / FILE).is_file():
        return
    cases = read(data / FILE)
    seen = np.arange(len(cases)) % 2 == 0
    start = perf_counter()
    halves = [[case for case, here in zip(cases, seen == half, strict=True) if here] for half in (True, False)]
    found = linearised_fit(halves[0], machines_of_cases(halves[0]), full_weight_records=len(cases)).fitted_to()
    errors = np.abs(
        np.exp(
            np.log(predicted_seconds(halves[1], machines_of_cases(halves[1]), found.values)) - measured_logs(halves[1])
        )
        - 1
    )
    yield {
        "rows": len(cases),
        "fit_seconds": round(perf_counter() - start, 1),
        "left_out_median_error": round(float(np.median(errors)), 4),
        "left_out_p90_error": round(float(np.quantile(errors, 0.9)), 4),
        "spearman": round(
            correlation(halves[1], predicted_seconds(halves[1], machines_of_cases(halves[1]), found.values)), 4
        ),
    }


def read(path: Path) -> list[PublishedCase]:
    """Every row as a case of one framework: Megatron-LM as it was before flash attention."""
    with path.open(encoding="utf-8-sig", newline="") as text:
        rows = list(csv.DictReader(text, skipinitialspace=True))
    return [
        case(line, {name.strip("# ").lower(): value for name, value in row.items()}) for line, row in enumerate(rows, 2)
    ]


def case(line: int, row: dict[str, str]) -> PublishedCase:
    hidden = int(row["hidden size"])
    module = Decoder(layers=int(row["layers"]), hidden=hidden, heads=int(row["attention heads"]), ffn=4 * hidden, **GPT)
    setup = LayoutColumns(
        ranks=int(row["gpus"]),
        seq=int(row["sequence length"]),
        sequence_parallel=False,
        dtype="fp16",
        **{name: int(row[column]) for name, column in LAYOUT.items()},
    )
    return PublishedCase(
        origin=RecordOrigin("itertime", str(line), "", FILE, line),
        module=module,
        setup=setup,
        device="a100-80gb",
        software="megatron-2021",
        network=StatedNetwork(NODE),
        settings_text="",
        attention_kernel="newest",
        seconds=float(row["iteration time (ms)"]) / 1000,
        memory_bytes=None,
        memory_rank="worst",
        oom=False,
    )


def correlation(cases: list[PublishedCase], made: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> float:
    """Spearman's, over all of them."""
    first, second = (np.argsort(np.argsort(each)) for each in (made, measured_logs(cases)))
    return float(np.corrcoef(first, second)[0, 1])
