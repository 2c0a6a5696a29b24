"""Knobs are named, positive, and those that a record depends on."""

from dataclasses import replace

from planner.calibrate.knobs import (
    CHIPS,
    COMMON,
    OWN,
    SHARES,
    SPARSE,
    TRAITS,
    Knob,
    knobs,
    pace_of,
    with_pace,
    with_traits,
)
from planner.specs.library import names, read
from planner.specs.profile import Profile
from planner.specs.rates import Rates
from planner.specs.timing import Timing
from tests.calibrate.made import case


def test_every_trait_is_a_field_of_timing():
    assert set(TRAITS) <= set(Timing.__struct_fields__)
    assert set(SHARES) | set(SPARSE) | set(OWN) <= set(TRAITS)
    assert all(prior.value > 0 and prior.width > 0 for prior in TRAITS.values())


def test_a_share_is_at_most_one():
    timing = with_traits(Timing(), "nemo", {Knob("nemo", name): 7.0 for name in SHARES})
    assert all(getattr(timing, name) == 1.0 for name in SHARES)
    assert timing.tp_exposed_backward == timing.tp_exposed


def test_another_frameworks_values_change_nothing():
    assert with_traits(Timing(), "nemo", {Knob("fsdp", "passes"): 3.0}) == Timing()


def test_a_row_without_experts_tells_nothing_of_them():
    assert not {coefficient.name for coefficient in knobs([case(0, "one")])} & set(SPARSE)


def test_a_trait_of_one_framework_is_not_common_to_all():
    shared = {coefficient.name for coefficient in knobs([replace(case(0, "one"), software=COMMON)])}
    assert not shared & set(OWN)


def test_boards_with_one_chip_share_its_pace():
    for board, chip in CHIPS.items():
        assert board in names(Profile) and chip in names(Profile)
        assert pace_of(case(0, "one", device=board)) == pace_of(case(0, "one", device=chip)) == Knob(chip, "bf16")
    rates = with_pace(Rates(source="fitted", spread=0.1), "h800", {Knob("h100-80gb", "bf16"): 0.8})
    assert rates.sustained == {"bf16": 0.8}


def test_shipped_boards_of_one_chip_sustain_the_same():
    for board, chip in CHIPS.items():
        mine, other = (read(name, Profile)[0].rates for name in (board, chip))
        if mine and other:
            assert mine.sustained == other.sustained, f"{board} and {chip}"
