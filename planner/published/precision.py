"""In what numbers a record multiplies matrices."""

import re

from planner.costs.columns import Precision
from planner.published.rows import Row, Unusable

# The first that a row's text contains; what is mixed is named by what its matrices are multiplied in.
SPELLINGS: tuple[tuple[str, Precision | None], ...] = (
    (r"fp4|float4|int8|int4|fp6|tf32", None),
    (r"fp8|float8|e4m3|e5m2", "fp8"),
    (r"bf16|bfloat16|bf-16", "bf16"),
    (r"fp16|float16|half|fp-16", "fp16"),
    (r"fp32|float32|single|full precision", "float32"),
    (r"mixed|amp|16.?bit", "bf16"),
)
WITHOUT_BF16 = "v100"  # its tensor cores multiply fp16 only (NVIDIA V100 data sheet)


def precision(record: Row, device: str) -> tuple[Precision, bool]:
    """Of the matrix products, and whether the record leaves it unsaid. Raises Unusable."""
    text = record.stated("precision").lower()
    usual: Precision = "fp16" if device.startswith(WITHOUT_BF16) else "bf16"
    if not text:
        return usual, True
    for spelling, name in SPELLINGS:
        if re.search(spelling, text):
            if name is None:
                break
            return (usual if name == "bf16" else name), False
    raise Unusable("no model of the precision", record.text("precision"))
