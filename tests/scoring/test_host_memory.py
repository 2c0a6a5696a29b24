"""Memory of hosts: what devices no longer hold is there, ranks of a node share it, and none has more than there is."""

from dataclasses import replace

import pytest

from planner.errors import Infeasible
from planner.plan.node_storage import FREE_SHARE, host_bytes
from planner.scoring import require_memory, score
from planner.specs.base import with_fields
from planner.specs.hardware.cluster import NodeStorage
from planner.specs.named_files import read_software
from planner.strategies import parallel_search
from planner.strategies.static.fixed_layout import fixed_layout
from planner.strategies.static.layouts_plan import draft_of_layouts
from planner.strategies.static.memory_fit import memory_fit_of_job
from planner.units import GIB
from tests.static_jobs import small_cluster, static_inputs

LENGTH = 2048
FIXED = "tp: 1, cp: 1, pp: PP, vpp: 1, dp: DP, zero: 1, micro_batch: 1, recompute: none, offload: SHARE"


def inputs_with(folder, pp=1, share=0.2, host_gib=None, ranks=16, moments=0.0):
    fixed = FIXED.replace("PP", str(pp)).replace("DP", str(ranks // pp)).replace("SHARE", str(share))
    fixed += f", optimizer_offload: {moments}"
    cluster = small_cluster(folder, "h100-80gb", ranks)
    inputs = static_inputs(folder, "llama-3-8b", cluster, [LENGTH] * ranks, fixed)
    software = read_software("any")[0].framework
    cluster = with_fields(inputs.cluster, storage=NodeStorage(host_gib=host_gib))
    timing = with_fields(inputs.timing, host_update_ns=1.0)
    return replace(inputs, software=software, cluster=cluster, timing=timing)


def plan_with(folder, **options):
    inputs = inputs_with(folder, **options)
    return draft_of_layouts(inputs, {inputs.module: fixed_layout(inputs)})


@pytest.mark.parametrize("options", [{"pp": 1}, {"pp": 4}, {"share": 0.0, "moments": 0.5}, {"pp": 2, "moments": 1.0}])
@pytest.mark.every(2)
def test_what_devices_no_longer_hold_is_in_the_memory_of_their_hosts(tmp_path, options):
    """Bytes are conserved: of the first rank of a stage, whose activations are at their peak while passes run."""
    moved = score(plan_with(tmp_path, **options))
    kept = score(plan_with(tmp_path, **{**options, "share": 0.0, "moments": 0.0}))
    hosts = moved.plan_memory.hosts_over_step(moved.spans, moved.tasks).peaks
    factor = 1.0 + moved.plan_memory.accounting(0).fragmentation
    passes = [each.plan_memory.over_step(each.spans, each.tasks, updates=False).peaks for each in (kept, moved)]
    for rank in (0, 15):
        assert (passes[0][rank] - passes[1][rank]) / factor == pytest.approx(hosts[rank], rel=1e-6)
    assert moved.host_memory.offloaded == pytest.approx(max(sum(hosts[:8]), sum(hosts[8:])))
    assert kept.host_memory is None


def test_a_host_has_what_the_cluster_says_or_what_machines_with_its_devices_have(tmp_path):
    assumed, stated = inputs_with(tmp_path), inputs_with(tmp_path, host_gib=100)
    assert host_bytes(stated.cluster, stated.devices, 9) == 100 * GIB
    device = assumed.device
    assert host_bytes(assumed.cluster, assumed.devices, 9) == FREE_SHARE * 8 * device.host_gib * GIB
    unknown = {assumed.cluster.ranks[0].kind: with_fields(device, host_gib=None)}
    assert host_bytes(assumed.cluster, unknown, 9) == FREE_SHARE * 8 * device.memory_gib * GIB


@pytest.mark.slow
def test_no_plan_has_more_in_a_host_than_there_is(tmp_path):
    """It fits as long as the limit is what its ranks have together, and every verb says the same of less."""
    found = score(plan_with(tmp_path))
    enough = found.host_memory.held / GIB * (1 + 1e-6)
    for host_gib, fits in ((enough, True), (0.99 * enough, False), (0.0, False)):
        plan = plan_with(tmp_path, host_gib=host_gib)
        fit = memory_fit_of_job(inputs_with(tmp_path, host_gib=host_gib))
        assert fit.fits == fits == fit.host.fits
        if fits:
            require_memory(plan, score(plan))
        else:
            assert fit.change and fit.change.differences
            with pytest.raises(Infeasible, match="in the memory of their host") as raised:
                require_memory(plan, score(plan))
            assert raised.value.where == "host_memory" and "host_gib" in raised.value.fix


@pytest.mark.slow
def test_a_search_offloads_no_more_than_hosts_have(tmp_path):
    """A host without room is as one that nothing can be offloaded to; more room is never slower."""
    cluster = small_cluster(tmp_path, "h100-80gb", 8)
    inputs = static_inputs(tmp_path, "llama-3-8b", cluster, [131072] * 8, "tp: 1, cp: 8, pp: 1, zero: 3")
    inputs = replace(inputs, software=read_software("any")[0].framework)
    seconds = []
    for host_gib in (0.0, 40.0, 4000.0):
        storage = NodeStorage(host_gib=host_gib)
        plan = parallel_search.plan(replace(inputs, cluster=with_fields(inputs.cluster, storage=storage)), None)
        host = score(plan).host_memory
        assert (host.held if host else 0.0) <= host_gib * GIB * (1 + 1e-9)
        seconds.append(plan.outcome.value)
    assert seconds == sorted(seconds, reverse=True)
