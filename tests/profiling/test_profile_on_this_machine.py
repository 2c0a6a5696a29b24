"""A real profile of this machine on two ranks, whose numbers must make sense."""

import pytest

from planner.profiling import ProfileOptions, device_name, gpu_count, profile, run_measurements
from planner.specs import library
from planner.specs.hardware.profile import Profile
from planner.specs.layers import Audio, Decoder, Vit
from planner.specs.model import Model

SMALL = {"layers": 2, "hidden": 64, "heads": 4, "ffn": 128}


MODULES = {
    "llm": Decoder(**SMALL, vocab=256),
    "vision": Vit(**SMALL, patch=4, merge=2, out=64, window=16, full_layers=(1,)),
    "ear": Audio(**SMALL, mels=8, out=64),
}


@pytest.mark.slow
@pytest.mark.every(3)
@pytest.mark.parametrize("names", [("llm",), ("llm", "vision"), ("llm", "ear")], ids="-".join)
def test_two_ranks_measure_modules(tmp_path, monkeypatch, names):
    modules = {name: MODULES[name] for name in names}
    model = Model(format=Model.FORMAT, name="small", source="made up", modules=modules)
    base = library.read_named(device_name("cpu"), Profile)[0]
    done = []
    found = profile(
        "small", model, base, ProfileOptions(2, quick=True), tmp_path / "cpu.yaml", lambda *news: done.append(news)
    )
    assert done[-1][0] == done[-1][1]
    for costs in found.modules.values():
        for passes in (costs.layer, costs.ends):
            assert passes.forward.ms_per_token > 0 or passes.forward.ms > 0
            assert passes.backward.ms_per_token > 0 or passes.backward.ms > 0
            assert passes.activation_kib_per_token > 0
        thousand = [fit.ms_per_token * 1000 + fit.ms for fit in (costs.layer.forward, costs.layer.backward)]
        assert 0.1 < thousand[0] < 1000 and 0.5 < thousand[1] / thousand[0] < 6
        again = [costs.recomputing[how] for how in ("selective", "full")]
        kept = [passes.activation_kib_per_token for passes in (costs.layer, *again)]
        assert kept[0] > kept[1] > kept[2] == 64 * 4 / 1024  # a layer's input
        assert [round(p.activation_kib_per_token + p.working_kib_per_token, 2) for p in again] == [
            round(kept[0], 2)
        ] * 2
        backward = [passes.backward.ms_per_token * 1000 + passes.backward.ms for passes in again]
        assert backward[1] > 1.1 * thousand[1]  # and forward once more
        assert backward[0] > 0.9 * thousand[1]
        assert (costs.frozen is not None) == (len(names) > 1)  # a module alone is trained
        if costs.frozen:
            alone = [fit.ms_per_token * 1000 + fit.ms for fit in (costs.frozen.forward, costs.frozen.backward)]
            assert 0.3 < alone[0] / thousand[0] < 1.2  # keeps nothing for a backward
            assert 0.3 < alone[1] / thousand[1] < 0.9  # half of the products
        assert 0.1 < costs.update_ns_per_parameter < 1e4
    assert {name: len(table.points) for name, table in found.collectives.items()} == {
        "all_to_all": 1,
        "all_gather": 1,
        "reduce_scatter": 1,
        "p2p": 1,
    }
    assert all(0.01 < table.points[0].gb_per_s < 1000 for table in found.collectives.values())
    monkeypatch.setattr(run_measurements, "launch", None)  # a second time nothing is left to measure
    assert profile("small", model, base, ProfileOptions(2, quick=True), tmp_path / "cpu.yaml") == found


@pytest.mark.gpu
def test_one_gpu_measures_a_decoder(tmp_path):
    model = Model(format=Model.FORMAT, name="small", source="made up", modules={"llm": Decoder(**SMALL, vocab=256)})
    assert gpu_count() > 0
    base = library.read_named("h200", Profile)[0]
    found = profile("small", model, base, ProfileOptions(1, "bf16", True), tmp_path / "gpu.yaml")
    assert found.modules["small/llm"].layer.forward.ms > 0
    assert not found.collectives
