"""Runs that keep features of a frozen encoder train as those that compute them, bit for bit, and read only what is
whole, of the same item and of the same weights.
"""

import numpy as np
import pytest
import torch

from planner.errors import InputError
from planner.plan.legal.plan_laws import require_legal
from planner.runtime.preflight.preflight_checks import require_quick_checks
from planner.runtime.run_options import RunOptions
from planner.runtime.state.kept_features import Damaged, DiskStore, HostStore, key_of, raw_bytes
from planner.specs.base import with_fields
from planner.specs.hardware.cluster import NodeStorage
from planner.specs.workload.length_sources import Repeated
from tests.runtime.multi_module_plans import FEEDS, IMAGES, TEXTS, joined, layout
from tests.runtime.training_worlds import run_all

ALL, LOW, HIGH = (0, 1, 2, 3), (0, 1), (2, 3)
ROWS = {
    4: [
        {"vit": {(0,): (0, 1), (1,): (2,)}, "llm": {LOW: (0,), HIGH: (1,)}},
        {"llm": {ALL: (2,)}},
        {"vit": {(3,): (3,)}, "llm": {ALL: (3,)}},
    ],
    2: [
        {"vit": {(0,): (0, 1), (1,): (2,)}, "llm": {(0,): (0,), (1,): (1,)}},
        {"vit": {(1,): (3,)}, "llm": {LOW: (2, 3)}},
    ],
}
EPOCHS = 2


def plan_of_source(ranks, features="computed", dtype="float64", items=None):
    layouts = {"llm": layout("llm", range(ranks), dp=ranks, dtype=dtype)}
    layouts["vit"] = layout("vit", range(ranks), dp=ranks, zero=0, dtype=dtype)
    plan = joined(layouts, ROWS[ranks], items=items or {"llm": TEXTS, "vit": IMAGES}, feeds={"vit": FEEDS})
    models = {**plan.uses.models, "vit": with_fields(plan.uses.models["vit"], trained="none")}
    cluster = with_fields(plan.uses.cluster, storage=NodeStorage(host_gib=1, disk_gib=1))
    uses = with_fields(plan.uses, models=models, cluster=cluster, repeated=Repeated(epochs=EPOCHS, samples=4))
    kept = with_fields(layouts["vit"], features=features)
    plan = with_fields(plan, uses=uses, layouts={**layouts, "vit": kept})
    require_legal(plan, "made up")
    return plan


def ran(ranks, plans, folder=None, **options):
    return run_all(ranks, plans, RunOptions(**{"steps": EPOCHS, "seed": 4, "features": folder, **options}))


def losses(result):
    return [step.loss for step in result.steps]


def counts(result):
    return [tuple(step.features) for step in result.steps]


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "dtype"), [(2, "float64"), (4, "float64"), (2, "bf16")])
@pytest.mark.every(3)
def test_losses_are_those_of_computing_and_later_epochs_only_read(tmp_path, ranks, dtype):
    plans = {source: plan_of_source(ranks, source, dtype) for source in ("computed", "host", "disk")}
    found = ran(ranks, {"disk": plans.pop("disk")}, tmp_path / "kept") | ran(ranks, plans)
    assert losses(found["host"]) == losses(found["disk"]) == losses(found["computed"])
    assert counts(found["computed"]) == [(0, 0, 0)] * EPOCHS
    for source in ("host", "disk"):
        assert counts(found[source]) == [(0, 4, 0)] + [(4, 0, 0)] * (EPOCHS - 1)
    again = ran(ranks, {"disk": plan_of_source(ranks, "disk", dtype)}, tmp_path / "kept")["disk"]
    assert losses(again) == losses(found["disk"]) and counts(again) == [(4, 0, 0)] * EPOCHS


@pytest.mark.slow
def test_one_process_computes_what_was_read(tmp_path):
    plan = plan_of_source(2, "disk")
    ran(2, {"first": plan}, tmp_path, steps=1)
    found = ran(2, {"read": plan}, tmp_path, steps=2, verify=True)["read"]
    assert counts(found) == [(4, 0, 0)] * 2
    assert (found.verify.loss_rel_err <= 1e-12, found.verify.grad_rel_err <= 1e-12) == (True, True)


@pytest.mark.slow
def test_other_weights_and_other_items_are_not_read(tmp_path):
    plan, folder = plan_of_source(2, "disk"), tmp_path / "kept"
    ran(2, {"x": plan}, folder)
    other = {"llm": TEXTS, "vit": {**IMAGES, 3: IMAGES[3] - 4}}
    assert counts(ran(2, {"x": plan}, folder, seed=5)["x"])[0] == (0, 4, 0)  # of weights, and of synthetic items
    smaller = ran(2, {"x": plan_of_source(2, "disk", items=other)}, folder)["x"]
    assert counts(smaller)[0] == (3, 1, 0)
    assert losses(smaller) == losses(ran(2, {"x": plan_of_source(2, items=other)})["x"])


@pytest.mark.slow
def test_what_is_damaged_is_noticed_and_computed_again(tmp_path):
    plan, folder = plan_of_source(2, "disk"), tmp_path / "kept"
    first = ran(2, {"x": plan}, folder)["x"]
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    assert len(files) == 4
    raw = bytearray(files[0].read_bytes())
    raw[-3] ^= 1
    files[0].write_bytes(raw)
    files[1].write_bytes(files[1].read_bytes()[:-8])  # as a crash of the machine may leave it
    files[2].write_bytes(files[3].read_bytes())  # whole, and of another item
    found = ran(2, {"x": plan}, folder)["x"]
    assert losses(found) == losses(first)
    assert counts(found)[0][2] >= 2 and counts(found)[1] == (4, 0, 0)


VALUES = [torch.arange(12, dtype=dtype).view(3, 4) for dtype in (torch.bfloat16, torch.float32, torch.float64)]


@pytest.mark.parametrize("values", VALUES, ids=lambda each: str(each.dtype))
def test_a_store_gives_back_the_bits_that_it_got(tmp_path, values):
    for store in (HostStore(), DiskStore(tmp_path)):
        assert store.read("ab1", values.dtype) is None
        store.write("ab1", values)
        found = store.read("ab1", values.dtype)
        assert raw_bytes(found) == raw_bytes(values) and found.dtype == values.dtype
        assert store.read("ab2", values.dtype) is None


def test_every_change_of_a_file_is_noticed(tmp_path):
    store = DiskStore(tmp_path)
    store.write("ab1", VALUES[1])
    raw = store.path("ab1").read_bytes()
    for at in np.random.default_rng(0).choice(len(raw), 20, replace=False).tolist():
        store.path("ab1").write_bytes(raw[:at] + bytes([raw[at] ^ 8]) + raw[at + 1 :])
        assert isinstance(store.read("ab1", torch.float32), Damaged)
        store.path("ab1").write_bytes(raw[:at])
        assert isinstance(store.read("ab1", torch.float32), Damaged)
    store.path("ab1").write_bytes(raw)
    assert raw_bytes(store.read("ab1", torch.float32)) == raw_bytes(VALUES[1])
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["ab1"]  # nothing half written


def test_a_folder_that_takes_nothing_ends_no_run(tmp_path, caplog):
    (tmp_path / "ab").write_text("no folder")
    store = DiskStore(tmp_path)
    store.write("ab1", VALUES[1])
    store.write("cd1", VALUES[1])
    assert "features are computed in every epoch from now on" in caplog.text and len(caplog.records) == 1
    assert store.read("cd1", torch.float32) is None


def test_keys_tell_where_parts_end():
    assert key_of(iter((b"ab", b"c"))) != key_of(iter((b"a", b"bc")))


def test_a_run_says_where_the_disk_is(tmp_path):
    with pytest.raises(InputError, match="nothing says in which folder") as raised:
        require_quick_checks(plan_of_source(2, "disk"), RunOptions())
    assert raised.value.where == "--features"
    with pytest.raises(InputError, match="keeps no features on a disk"):
        require_quick_checks(plan_of_source(2, "host"), RunOptions(features=tmp_path))
