"""Small jobs of a decoder that sees, whose samples are on groups that change with every micro-batch."""

from collections.abc import Sequence
from pathlib import Path

from planner.specs.inputs import Inputs, JobOptions, load_job
from tests.modality_jobs import IMAGES, ROWS, seeing_job

GROUPED = ("sequence_groups", "data_ranks")
TIGHT = "limits: {tokens_per_rank: 300, inputs_per_rank: {vit: 2000}}\n"  # the longest sample needs two ranks


def grouped_job(
    folder: Path,
    strategy: str,
    ranks: int = 4,
    fixed: str = "",
    more: str = TIGHT,
    data: tuple[Sequence[int], str] = (ROWS, IMAGES),
) -> Inputs:
    """The inputs of a job for one of these strategies; `more`: further lines of it; `data`: rows and images."""
    step = strategy == "data_ranks"
    if step:
        fixed = fixed.replace("llm: {", "llm: {zero: 1, ") if "llm:" in fixed else f"llm: {{zero: 1}}, {fixed}"
    seeing_job(folder, ranks, fixed.rstrip(", "), *data, more)
    text = (folder / "job.yaml").read_text()
    said = f"strategy: {strategy}\nsync: {'step' if step else 'micro_batch'}"
    (folder / "job.yaml").write_text(text.replace("strategy: modality_layout", said))
    return load_job(str(folder / "job.yaml"), JobOptions())
