"""Attention's coefficients come back, by head_dim, causal or not."""

from itertools import product

import pytest

from planner.calibrate.kernel_fits import attention_curve, fit_attention, read_attention
from planner.errors import InputError
from tests.calibrate.generated_tables import PEAK, noisy, write

HEADER = ("batch_size", "isl", "num_heads", "head_dim", "window_size", "kv_cache_dtype", "latency")
SHARE, S0, LAUNCH_US = 0.6, 700.0, 20.0


def rows(causal, head_dim=128, lengths=(1024, 2048, 4096, 16384)):
    made = []
    for batch, s, heads in product((1, 4, 16), lengths, (16, 32)):
        flops = 4 * causal * heads * head_dim * s * (s + S0) * batch
        made.append(
            (batch, s, heads, head_dim, 0, "bfloat16", (flops / (SHARE * PEAK * 1e12) + LAUNCH_US * 1e-6) * 1e3)
        )
    return made


@pytest.mark.parametrize("causal", [True, False])
def test_known_coefficients_come_back(tmp_path, causal):
    other = [
        (1, 4096, 32, 64, 0, "bfloat16", 9.0),
        (1, 4096, 32, 128, 128, "bfloat16", 9.0),
        (1, 4096, 32, 128, 0, "fp8", 9.0),
    ]
    path = write(tmp_path / "t.csv", HEADER, rows(0.5 if causal else 1.0) + other)
    attention = fit_attention(read_attention(path, 128), PEAK, causal)
    assert attention.values == pytest.approx({"share": SHARE, "s0": S0, "launch_us": LAUNCH_US}, rel=1e-3)
    assert attention_curve(attention).backward_share == pytest.approx(SHARE * 63 / 73, rel=1e-3)
    assert attention.summary.p90_error < 1e-4


def test_noise_moves_them_little(tmp_path):
    path = write(tmp_path / "t.csv", HEADER, noisy(rows(0.5), 0.03))
    assert fit_attention(read_attention(path, 128), PEAK).values["share"] == pytest.approx(SHARE, rel=0.05)


def test_one_length_cannot_tell_s0(tmp_path):
    path = write(tmp_path / "t.csv", HEADER, rows(0.5, lengths=(4096,)))
    attention = fit_attention(read_attention(path, 128), PEAK)
    assert attention.summary.held == ("s0",)
    assert attention.values["share"] == pytest.approx(SHARE * 4096 / (4096 + S0), rel=1e-3)  # s0 counts into the share


def test_a_head_dim_that_is_not_there_is_refused(tmp_path):
    path = write(tmp_path / "t.csv", HEADER, rows(0.5))
    with pytest.raises(InputError, match="0 configurations"):
        fit_attention(read_attention(path, 64), PEAK)
