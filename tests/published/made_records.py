"""Records that are made up, of which a test changes what it is about."""

import csv
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from planner.published.record_files import PublishedRecord

HEADER = """row_id source_id source_ref source_commit source_line date_or_version framework task family model params_b
layers hidden ffn heads kv_heads vocab experts topk seq_len gpu system gpu_mem_gb n_gpus gpus_per_node interconnect
precision tp sp cp pp vpp ep etp dp fsdp zero_stage recompute mbs gbs grad_accum other_settings group_id status
step_time_s tokens_per_s_per_gpu tokens_per_s_total samples_per_s tflops_per_gpu mfu_pct hfu_pct peak_mem mem_unit
mem_kind notes"""
COLUMNS = HEADER.split()
# Llama-3-8B on 16 H100: two replicas of tensor parallel 4 and two stages, 8 micro-batches each
USUAL = {
    "row_id": "made-1", "source_id": "made", "framework": "NeMo", "task": "Pre-Training", "family": "llama3",
    "model": "Llama 3.1 8B", "seq_len": "8192", "gpu": "H100", "n_gpus": "16", "precision": "BF16", "tp": "4",
    "cp": "1", "pp": "2", "dp": "2", "recompute": "none", "mbs": "1", "gbs": "16", "status": "ok",
    "step_time_s": "2.0", "group_id": "made",
}  # fmt: skip


def record(changes: Mapping[str, str] | None = None, **cells: str) -> PublishedRecord:
    """The usual record with these cells in place of its own."""
    return PublishedRecord(
        MappingProxyType({**dict.fromkeys(COLUMNS, ""), **USUAL, **(changes or {}), **cells}), "made.csv", 2
    )


def write(path: Path, *rows: Mapping[str, str]) -> Path:
    """A file of the usual record, changed as each of these says."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for number, cells in enumerate(rows, start=1):
            writer.writerow({**dict.fromkeys(COLUMNS, ""), **USUAL, "row_id": f"made-{number}", **cells})
    return path
