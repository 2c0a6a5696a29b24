"""Coefficients of kernels and collectives from tables that somebody measured. Needs no device.

`tables` reads, `curve` fits and says what it cannot tell; `gemm`, `attention`, `grouped`, `memory` and `collectives`
know one form each.
"""
