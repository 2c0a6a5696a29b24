"""What kernels take by their shapes, and the coefficients of each kind's formula from a table of timings.

    matrix product     2(m + m0)(n + n0)(k + k0)/(share·peak) + launch
    thin product       bytes/(share·bandwidth) + launch                                          at most 16 rows
    flash attention    4·causal·heads·head_dim·s(s + s0)·batch/(share·peak) + launch             forward
    experts, grouped   products of each expert as separate kernels / share + two launches
    collective         latency + bytes/bandwidth                                                 within one node

Only shapes of training (many tokens, wide layers) are fitted. Errors on smaller ones, which are bound by launches and
by reading weights, are reported apart. A thin product reads weights that are larger than any cache once, and computes
next to nothing: it gives the share of the memory's bandwidth. An expert's products are [tokens × hidden]·[hidden ×
2 inter], gate and up at once, and [tokens × inter]·[inter × hidden]; tokens = num_tokens·topk/num_experts if balanced.

Bytes of a collective are those that the cost model prices: the whole gathered buffer of an all-gather or a
reduce-scatter, the buffer sent of an all-to-all, an all-reduce or a p2p. NCCL's tests count that buffer too, here in
elements.
"""

from collections.abc import Iterator

import numpy as np

from planner.calibrate.curve_fit import BoundedCoefficient, FittedCurve, KernelFormula, fit_curve
from planner.calibrate.kernel_tables import Array, KernelTable, Mask, read_table
from planner.specs.hardware.device_rates import AttentionCurve, GemmCurve
from planner.units import GB, US

PEAK_SHARE = BoundedCoefficient("share", 1e-3, 1.0, 0.1, prior=None)
LAUNCH = BoundedCoefficient("launch_us", 0.0, 1e4, 10.0)
TERA = 1e12
TOKENS, WIDTH = 1024, 512  # least m, and least n and k, of a product in training; TOKENS of a sequence in attention
TOKEN_MULTIPLE = 16  # m must be a multiple: fp8 kernels require it, and run up to 15 % slower where they must pad
DTYPES = {"bf16": "bfloat16", "fp8": "fp8"}  # names of dtypes in tables
THIN_ROWS = 16  # one tile: with more rows, compute begins to count
ELEMENT_BYTES = 2  # of bf16, and of half
LEAST_WEIGHT_BYTES = 128e6  # over twice the last-level cache of an A100 (40 MB) or an H100 (50 MB)
HEADS = 16  # least heads times batch that fill a device in training
# Tables hold the forward pass alone. Backward is assumed to reach 63/73 of forward's share, as FlashAttention-2's best
# shares of an A100's peak do (arXiv 2307.08691, section 4.1); its FLOPs are 2.5 times forward's.
BACKWARD_SHARE = 63 / 73
EXPERT_AXES = ("num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size")
EXPERT_TOKENS = 256  # least tokens of an expert in training; least inner width: WIDTH
COLLECTIVES = {
    "all_gather": "all_gather",
    "all_reduce": "all_reduce",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "all_to_all": "all_to_all",
    "send_recv": "p2p",
}
LEAST_MESSAGE = 4 * 2**20  # bytes that training sends at least; NCCL sends smaller buffers by other protocols


# ------------------------------------------------------------------------------------------------- matrix products


def read_gemm(path: str, dtype: str = "bf16", system: str = "") -> KernelTable:
    """Matrix products of one dtype. Raises InputError.

    Columns m, n, k, latency; gemm_dtype and system where the table has them.
    """
    chosen = {"gemm_dtype": DTYPES.get(dtype, dtype), "system": system}
    return read_table(path, dict.fromkeys(("m", "n", "k", "latency")), chosen).only(**chosen)


def fit_gemm(table: KernelTable, peak_tflops: float, inside: Mask | None = None) -> FittedCurve:
    """The curve of matrix products; `inside` (rows,): those that are fitted, by default of training's shapes. Raises
    InputError, as `fit_curve` does.
    """
    peak = peak_tflops * TERA

    def seconds(kernels: KernelTable, values: dict[str, float]) -> Array:
        m, n, k = (kernels.numbers[axis] + values.get(f"{axis}0", 0.0) for axis in "mnk")
        whole: Array = 2 * m * n * k / (values["share"] * peak) + values["launch_us"] * US
        return whole

    added = (BoundedCoefficient(name, 0.0, 1e5, 100.0) for name in ("m0", "n0", "k0"))
    m, n, k = (table.numbers[axis] for axis in "mnk")
    training = (m >= TOKENS) & (m % TOKEN_MULTIPLE == 0) & (n >= WIDTH) & (k >= WIDTH)
    form = KernelFormula((PEAK_SHARE, *added, LAUNCH), ("m", "n", "k"), seconds)
    fastest = seconds(table, {"share": 1.0, "launch_us": 0.0})
    return fit_curve(form, table, np.asarray(training) if inside is None else inside, fastest)


def fit_memory_bandwidth(gemms: KernelTable, gb_per_s: float) -> FittedCurve:
    """The share of the bandwidth that thin bf16 products reach. Raises InputError where there are too few."""

    def moved(kernels: KernelTable) -> Array:
        m, n, k = (kernels.numbers[axis] for axis in "mnk")
        total: Array = ELEMENT_BYTES * (m * n + n * k + m * k)
        return total

    def seconds(kernels: KernelTable, values: dict[str, float]) -> Array:
        return moved(kernels) / (values["share"] * (gb_per_s * GB)) + values["launch_us"] * US

    thin = gemms.where(gemms.numbers["m"] <= THIN_ROWS)
    form = KernelFormula((PEAK_SHARE, LAUNCH), ("m", "n", "k"), seconds)
    return fit_curve(form, thin, np.asarray(moved(thin) >= LEAST_WEIGHT_BYTES))


# ------------------------------------------------------------------------------------------------------- attention


def read_attention(path: str, head_dim: int) -> KernelTable:
    """Rows of one head_dim, without a sliding window, with keys and values in bf16. Raises InputError.

    Columns batch_size, isl, num_heads, latency; head_dim, window_size, kv_cache_dtype where the table has them.
    """
    needed = dict.fromkeys(("batch_size", "isl", "num_heads", "latency"))
    chosen = {"kv_cache_dtype": "bfloat16"}
    table = read_table(path, {**needed, "head_dim": float(head_dim), "window_size": 0.0}, chosen).only(**chosen)
    return table.where((table.numbers["head_dim"] == head_dim) & (table.numbers["window_size"] == 0))


def fit_attention(table: KernelTable, peak_tflops: float, causal: bool = True) -> FittedCurve:
    """The curve of one head size; `causal`: half of the scores are masked. Raises InputError, as `fit_curve` does."""
    peak = peak_tflops * TERA / (0.5 if causal else 1.0)

    def seconds(kernels: KernelTable, values: dict[str, float]) -> Array:
        batch, s, heads, width = (kernels.numbers[axis] for axis in axes)
        flops = 4 * batch * heads * width * s * (s + values["s0"])
        whole: Array = flops / (values["share"] * peak) + values["launch_us"] * US
        return whole

    axes = ("batch_size", "isl", "num_heads", "head_dim")
    coefficients = (PEAK_SHARE, BoundedCoefficient("s0", 0.0, 1e5, 100.0), LAUNCH)
    filled = table.numbers["num_heads"] * table.numbers["batch_size"] >= HEADS
    fastest = seconds(table, {"share": 1.0, "s0": 0.0, "launch_us": 0.0})
    form = KernelFormula(coefficients, axes, seconds)
    return fit_curve(form, table, np.asarray((table.numbers["isl"] >= TOKENS) & filled), fastest)


def attention_curve(fit: FittedCurve) -> AttentionCurve:
    """The curve of both passes from a fit of the forward one."""
    values = fit.rounded
    return AttentionCurve(**values, backward_share=round(values["share"] * BACKWARD_SHARE, 4))


# --------------------------------------------------------------------------------------------------------- experts


def read_grouped(path: str) -> KernelTable:
    """Balanced rows with all experts on one device: rows of several devices time one of them without naming it. Raises
    InputError.
    """
    numbers = {**dict.fromkeys(EXPERT_AXES), "moe_ep_size": 1.0, "latency": None}
    table = read_table(path, numbers, {"distribution": "balanced"}).only(distribution="balanced")
    return table.where(table.numbers["moe_ep_size"] == 1)


def fit_grouped(table: KernelTable, gemm: GemmCurve, peak_tflops: float) -> FittedCurve:
    """The share of `gemm`'s rate that grouped kernels reach. Raises InputError where there are too few."""

    def tokens_and_width(kernels: KernelTable) -> tuple[Array, Array]:
        tokens, _, inter, topk, experts, tp = (kernels.numbers[axis] for axis in EXPERT_AXES)
        return tokens * topk / experts, inter / tp

    def seconds(kernels: KernelTable, values: dict[str, float]) -> Array:
        tokens, width = tokens_and_width(kernels)
        m, hidden = tokens + gemm.m0, kernels.numbers["hidden_size"]
        gate_and_up = m * (2 * width + gemm.n0) * (hidden + gemm.k0)
        down = m * (hidden + gemm.n0) * (width + gemm.k0)
        separate = kernels.numbers["num_experts"] * 2 * (gate_and_up + down) / (gemm.share * (peak_tflops * TERA))
        whole: Array = separate / values["share"] + 2e-6 * gemm.launch_us
        return whole

    tokens, width = tokens_and_width(table)
    inside = np.asarray((tokens >= EXPERT_TOKENS) & (width >= WIDTH))
    return fit_curve(KernelFormula((PEAK_SHARE,), EXPERT_AXES, seconds), table, inside)


# ----------------------------------------------------------------------------------------------------- collectives


def read_collectives(path: str, **words: str) -> KernelTable:
    """Rows in half precision whose columns have these words (such as system, version). Raises InputError.

    Columns op_name, num_gpus, message_size in elements, latency.
    """
    chosen = {"nccl_dtype": "half", **words}
    numbers = dict.fromkeys(("num_gpus", "message_size", "latency"))
    return read_table(path, numbers, {"op_name": None, **chosen}).only(**chosen)


def fit_collectives(table: KernelTable) -> Iterator[tuple[str, FittedCurve]]:
    """Yield the line of every kind of collective over every number of ranks, by `kind/ranks`. Raises InputError where
    one has too few sizes.
    """
    for name in sorted(set(table.words["op_name"].tolist()) & set(COLLECTIVES)):
        of_kind = table.only(op_name=name)
        for ranks in sorted(set(of_kind.numbers["num_gpus"].tolist())):
            line = fit_line(of_kind.where(of_kind.numbers["num_gpus"] == ranks))
            yield f"{COLLECTIVES[name]}/{ranks:.0f}", line


def fit_line(table: KernelTable, *, large: bool = True) -> FittedCurve:
    """Fit latency_us and gb_per_s of one kind over one number of ranks; `large`: of sizes that training sends alone.
    Raises InputError, as `fit_curve` does.
    """

    def seconds(kernels: KernelTable, values: dict[str, float]) -> Array:
        sent = kernels.numbers["message_size"] * ELEMENT_BYTES
        whole: Array = values["latency_us"] * US + sent / (values["gb_per_s"] * GB)
        return whole

    coefficients = (
        BoundedCoefficient("gb_per_s", 1e-3, 1e5, 100.0, prior=None),
        BoundedCoefficient("latency_us", 0.0, 1e6, 10.0),
    )
    inside = table.numbers["message_size"] * ELEMENT_BYTES >= LEAST_MESSAGE if large else table.seconds > 0
    return fit_curve(KernelFormula(coefficients, ("message_size",), seconds), table, np.asarray(inside))
