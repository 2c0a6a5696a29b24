"""Families of sources that are left out of the fit together."""

import numpy as np
import pytest

from benchmarks.families import LABS, family_of, left_out_figures, source_of
from planner.calibrate.framework_fit import linearised_fit
from planner.calibrate.left_out import shipped_coefficients
from planner.calibrate.timed_cases import machines_of_cases, timed_cases
from planner.published import read_published


def test_every_source_that_a_fit_has_seen_is_of_one_lab():
    for source in shipped_coefficients().sources:
        assert len({lab for prefix, lab in LABS.items() if source.startswith(prefix)}) == 1


@pytest.mark.slow
def test_a_family_is_left_out_whole(shared):
    """Two sources of one lab and framework are one, beside a source of another."""
    names = ("internevo_flops", "internevo_zero_tp", "fms_fsdp")
    cases = [case for case in timed_cases(read_published(shared / "published")[0]) if case.origin.source in names]
    assert {family_of(case) for case in cases} == {"InternLM internevo", "IBM fsdp"}
    fit = linearised_fit(cases, machines_of_cases(cases))
    by_source, by_family = (left_out_figures(fit, group) for group in (source_of, family_of))
    assert (by_source["groups"], by_family["groups"]) == (3, 2)
    assert by_source["records"] == by_family["records"] == len(cases)
    assert np.isfinite([by_source["median"], by_family["median"]]).all()
