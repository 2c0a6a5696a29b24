"""A planner that has run for long holds no more than one that began."""

import pytest

from tests.online.small_jobs import ahead_of, head_of

BATCHES = 500
KIB_ALLOWED = 4096  # of allocator's slack


def resident_kib():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


@pytest.mark.soak
def test_memory_does_not_grow_over_hundreds_of_batches(tmp_path):
    ahead = ahead_of(tmp_path, head_of(tmp_path, "{deadline_ms: 0}"))
    sizes = []
    for number in range(1, BATCHES + 1):
        while ahead.advance():
            pass
        assert ahead.slots.take(number)
        if number % 50 == 0:
            sizes.append(resident_kib())
    assert sizes[-1] - sizes[1] <= KIB_ALLOWED, sizes
    assert len(ahead.drafts) <= ahead.options.look_ahead
