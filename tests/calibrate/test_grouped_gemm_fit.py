"""A grouped kernel that is a product of one expert's tokens after the other has share 1, and so on."""

from itertools import product

import pytest

from planner.calibrate.kernel_fits import fit_grouped, read_grouped
from planner.specs.hardware.device_rates import GemmCurve
from tests.calibrate.generated_tables import PEAK, gemm_ms, write

HEADER = (
    "num_tokens",
    "hidden_size",
    "inter_size",
    "topk",
    "num_experts",
    "moe_tp_size",
    "moe_ep_size",
    "distribution",
)
CURVE = GemmCurve(share=0.8, m0=64.0, k0=100.0)
KNOWN = {"share": 0.8, "m0": 64.0, "n0": 0.0, "k0": 100.0, "launch_us": 0.0}


def rows(share):
    made = []
    for tokens, hidden, inter, experts in product((4096, 16384), (2048, 4096), (1024, 2048), (8, 32)):
        each = tokens * 4 / experts
        ms = experts * (gemm_ms(each, 2 * inter, hidden, KNOWN) + gemm_ms(each, hidden, inter, KNOWN)) / share
        made += [(tokens, hidden, inter, 4, experts, 1, 1, "balanced", ms)]
        made += [(tokens, hidden, inter, 4, experts, 1, 1, "skewed", ms * 1.2)]
        made += [(tokens, hidden, inter, 4, experts, 1, 4, "balanced", ms * 50)]  # one of four devices: which?
    return made


@pytest.mark.parametrize("share", [0.4, 0.9])
def test_the_share_comes_back(tmp_path, share):
    path = write(tmp_path / "t.csv", (*HEADER, "latency"), rows(share))
    grouped = fit_grouped(read_grouped(path), CURVE, PEAK)
    assert grouped.values["share"] == pytest.approx(share, rel=1e-3)
    assert grouped.summary.p90_error < 1e-4
