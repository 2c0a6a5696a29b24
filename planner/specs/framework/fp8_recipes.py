"""Recipes of fp8: what shares a scale, and what that costs in casts.

With one scale for a tensor (tensorwise), or for blocks along both dims (Transformer Engine's recipes), what was cast
once is used in all products, and gathered in fp8. With a scale for each row (rowwise, torchao's axiswise) each product
needs its operands cast along its own inner dim, in two kernels (amax, then cast), after a gather in bf16. So it is in
NVFP4, with a scale for 16 elements of a row, and one for the tensor (Transformer Engine's NVFP4BlockScaling).
"""

from typing import Literal

from planner.specs.base import with_fields
from planner.specs.framework.timing_coefficients import TimingCoefficients

Fp8Recipe = Literal["tensorwise", "rowwise"]
# Casts of rowwise recipes over those of others. torchao's README (0.9, torchao/float8): Llama 3 8B with FSDP on 8 H100
# trains 1.25 times as many tokens a second as in bf16 with tensorwise scales, 1.10 times as many with rowwise ones.
ROWWISE_CASTS = 3.0


def with_recipe(timing: TimingCoefficients, recipe: Fp8Recipe) -> TimingCoefficients:
    """Coefficients of a framework that casts by this recipe."""
    if recipe == "tensorwise":
        return timing
    return with_fields(timing, cast=timing.cast * ROWWISE_CASTS, gathers_fp8=False)
