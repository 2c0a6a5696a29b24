"""A profile of a machine whose costs are known: it says them, goes on where it stopped, and measures nothing twice."""

from dataclasses import replace

import pytest

from planner import files
from planner.errors import InputError
from planner.profiling import ProfileOptions, measurement_context, profile
from planner.profiling import run_measurements as measuring
from planner.profiling.measurement import COLLECTIVES, FSDP_KINDS, RECOMPUTE_KINDS, TimeSpan
from planner.profiling.measurement_grid import STACK_LAYERS
from planner.specs import library
from planner.specs.base import with_fields
from planner.specs.hardware.profile import CollectiveCosts, CollectivePoint, ModuleCosts, PassCosts, PassFit, Profile
from planner.specs.layers import Decoder, Vit
from planner.specs.layers.components import Experts
from planner.specs.model import Model

DECODER = Decoder(layers=3, hidden=64, heads=4, ffn=128, vocab=96)
VIT = Vit(layers=3, hidden=64, heads=4, ffn=128, patch=2, out=64, merge=2)
FORWARD, BACKWARD, ENDS = (
    PassFit(ms_per_token2=1e-5, ms_per_token=0.02, ms=0.5),
    PassFit(ms_per_token=0.03),
    PassFit(ms=2.0),
)
AGAIN_BACKWARD = {
    "selective": PassFit(ms_per_token=0.045),
    "full": PassFit(ms_per_token2=1e-5, ms_per_token=0.05, ms=0.5),
}
UNITS = {"held": (0.25, 0.5), "resharded": (0.75, 1.5), "held_ends": (2.0, 3.0), "resharded_ends": (4.0, 6.0)}  # ms
WIRE = {2: (1e-3, 2e9), 4: (3e-3, 1e9)}  # latency, bytes per second
OPTIONS = ProfileOptions(ranks=4, quick=True)
OF_MODULES = {"layer", *RECOMPUTE_KINDS, *FSDP_KINDS, "ends", "update", "kept"}


def model_of(**modules):
    return Model(format=Model.FORMAT, name="toy", source="made up", modules=modules)


def milliseconds(fit, sizes):
    return fit.ms_per_token2 * sum(s * s for s in sizes) + fit.ms_per_token * sum(sizes) + fit.ms


def changed_options(**fields):
    return replace(OPTIONS, **fields)


class Machine:
    """Four ranks on two cores that take exactly as long as the laws above say."""

    def __init__(self):
        self.asked, self.break_after = [], None

    def launch(self, _entry, ranks, pieces, _specs, _dtype, on_message, kind):
        assert (ranks, kind) == (4, "cpu")
        for index, piece in enumerate(pieces):
            if self.break_after == len(self.asked):
                raise KeyboardInterrupt
            self.asked.append(piece)
            for rank in range(ranks):
                on_message(rank, (index, self.spans(piece, rank)))

    def spans(self, piece, rank):
        """Each rank is busy for half of the time, because two share a core, and the clock says nothing useful."""
        if piece.kind == "kept":
            return [TimeSpan(0, kept) for kept in (2048, 512, 1024, 256)]
        if piece.kind == "update":
            return [TimeSpan(0, 99, 1e-9 * piece.repeats / 2)]
        if piece.kind in COLLECTIVES:
            latency, rate = WIRE[piece.sizes[0]]
            calls = 1 if piece.kind == "p2p" else piece.repeats  # messages go one behind another
            lasted = (latency + piece.sizes[1] / rate) * piece.repeats / calls
            late = 1e-4 * rank  # the last to come is the last to end, and the others wait for it
            return [TimeSpan(number + late, number + late + lasted) for number in range(calls)]
        backward = AGAIN_BACKWARD.get(piece.kind, BACKWARD)
        fits, layers = ((ENDS, ENDS), 1) if piece.kind.endswith("ends") else ((FORWARD, backward), STACK_LAYERS)
        more = UNITS.get(piece.kind, (0.0, 0.0))
        seconds = [
            1e-3 * (milliseconds(fit, piece.sizes) + unit) * layers * piece.repeats
            for fit, unit in zip(fits, more, strict=True)
        ]
        return [TimeSpan(0, 99, each / 2) for each in seconds]


@pytest.fixture
def machine(monkeypatch):
    machine = Machine()
    monkeypatch.setattr(measuring, "launch", machine.launch)
    monkeypatch.setattr(measuring, "usable_cores", lambda: 2)
    return machine


@pytest.fixture
def base():
    return library.read_named("cpu", Profile)[0]


def test_it_says_what_things_cost(machine, base, tmp_path):
    heard = []
    target = tmp_path / "cpu.yaml"
    found = profile("toy", model_of(llm=DECODER), base, OPTIONS, target, lambda *news: heard.append(news))
    costs = found.modules["toy/llm"]
    assert costs.source == "fitted" and costs.spread == pytest.approx(0, abs=1e-6)
    found_and_known = [(costs.layer.forward, FORWARD), (costs.layer.backward, BACKWARD), (costs.ends.forward, ENDS)]
    for how in RECOMPUTE_KINDS:
        found_and_known.append((costs.recomputing[how].forward, FORWARD))
        found_and_known.append((costs.recomputing[how].backward, AGAIN_BACKWARD[how]))
    for fit, known in found_and_known:
        assert fit.ms_per_token2 == pytest.approx(known.ms_per_token2, rel=1e-3, abs=1e-12)
        assert fit.ms_per_token == pytest.approx(known.ms_per_token, rel=1e-3, abs=1e-9)
        assert fit.ms == pytest.approx(known.ms, rel=1e-3, abs=1e-6)
    assert costs.layer.holdout_error == pytest.approx(0, abs=1e-6)
    assert (costs.layer.activation_kib_per_token, costs.ends.activation_kib_per_token) == (2.0, 0.5)
    assert costs.layer.working_kib_per_token == 0.0
    again = [costs.recomputing[how] for how in RECOMPUTE_KINDS]
    assert [passes.activation_kib_per_token for passes in again] == [1.0, 0.25]
    assert [passes.working_kib_per_token for passes in again] == [1.0, 1.75]
    for how, units in costs.fsdp.items():
        for unit, kind in ((units.layer, how), (units.ends, f"{how}_ends")):
            assert (unit.forward_ms, unit.backward_ms) == pytest.approx(UNITS[kind], rel=1e-3)
    assert costs.fsdp.keys() == {"held", "resharded"}
    assert costs.update_ns_per_parameter == pytest.approx(1.0)
    assert files.read(target, Profile) == found
    assert found.provenance.machine and found.provenance.versions.keys() == {"planner", "python", "torch"}
    done, of, _, left = heard[-1]
    assert done == of == len(machine.asked) and left == 0
    assert [news[0] for news in heard] == list(range(of + 1))


def test_collectives_over_groups_of_each_size(machine, base, tmp_path):
    found = profile("toy", model_of(llm=DECODER), base, OPTIONS, tmp_path / "cpu.yaml")
    assert {name: [p.ranks for p in table.points] for name, table in found.collectives.items()} == {
        "all_to_all": [2, 4],
        "all_gather": [2, 4],
        "reduce_scatter": [2, 4],
        "p2p": [2],
    }
    for table in found.collectives.values():
        assert table.spread == pytest.approx(0, abs=1e-6)
        for point in table.points:
            latency, rate = WIRE[point.ranks]
            assert (point.latency_us, point.gb_per_s) == pytest.approx((1e6 * latency, rate / 1e9), rel=1e-3)


@pytest.mark.slow
def test_an_interrupted_profile_goes_on_where_it_stopped(machine, base, tmp_path):
    target, model = tmp_path / "cpu.yaml", model_of(llm=DECODER)
    machine.break_after = 17
    with pytest.raises(KeyboardInterrupt):
        profile("toy", model, base, OPTIONS, target)
    first, machine.asked, machine.break_after = machine.asked, [], None
    assert len(first) == 17 and not target.exists()
    heard = []
    resumed = profile("toy", model, base, OPTIONS, target, lambda *news: heard.append(news))
    assert not {piece.key for piece in first} & {piece.key for piece in machine.asked}
    assert heard[0][:2] == (17, 17 + len(machine.asked))
    again, machine.asked = machine.asked, []
    assert profile("toy", model, base, OPTIONS, target) == resumed
    assert not machine.asked and again
    fresh = profile("toy", model, base, OPTIONS, tmp_path / "fresh.yaml")
    assert fresh == resumed and len(machine.asked) == 17 + len(again)


def test_a_torn_line_is_measured_again(machine, base, tmp_path):
    target = tmp_path / "cpu.yaml"
    profile("toy", model_of(llm=DECODER), base, OPTIONS, target)
    journal = target.with_suffix(".jsonl")
    lines = journal.read_text().splitlines()
    journal.write_text("\n".join(lines[:-1]) + "\n" + lines[-1][:40])
    machine.asked = []
    profile("toy", model_of(llm=DECODER), base, OPTIONS, target)
    assert len(machine.asked) == 1
    assert sorted(journal.read_text().splitlines()) == sorted(lines)


@pytest.mark.soak
def test_a_second_model_keeps_the_first_and_shares_the_collectives(machine, base, tmp_path):
    target = tmp_path / "cpu.yaml"
    first = profile("toy", model_of(llm=DECODER), base, OPTIONS, target)
    machine.asked = []
    both = profile("other", model_of(vision=VIT, llm=DECODER), base, OPTIONS, target)
    assert set(both.modules) == {"toy/llm", "other/vision", "other/llm"}
    assert both.modules["toy/llm"] == first.modules["toy/llm"]
    beside = both.modules["other/llm"]  # may be frozen beside an encoder, so that is measured too
    assert with_fields(beside, frozen=None) == first.modules["toy/llm"] and beside.frozen
    tower, *others = {piece.context for piece in machine.asked if piece.kind == "layer"}
    assert not others and {piece.kind for piece in machine.asked if piece.context != tower} == {"frozen"}
    measured = [piece for piece in machine.asked if piece.context == tower]
    assert {piece.kind for piece in measured} == OF_MODULES | {"frozen"}
    images = [size for piece in measured if piece.kind == "layer" for size in piece.sizes]
    assert all(size == (2 * round(size**0.5 / 2)) ** 2 for size in images)  # squares, 2 x 2 patches stay together


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (measurement_context.code.__name__, lambda: "other"),
        (measurement_context.versions.__name__, lambda: {"torch": "9"}),
        (measurement_context.processor_text.__name__, lambda kind: "another"),
    ],
)
@pytest.mark.every(3)
def test_another_machine_or_other_code_is_measured_anew(machine, base, tmp_path, monkeypatch, name, value):
    target, model = tmp_path / "cpu.yaml", model_of(llm=DECODER)
    profile("toy", model, base, OPTIONS, target)
    count, machine.asked = len(machine.asked), []
    monkeypatch.setattr(measurement_context, name, value)
    profile("toy", model, base, OPTIONS, target)
    assert len(machine.asked) == count
    assert len(target.with_suffix(".jsonl").read_text().splitlines()) == count  # what is stale is gone


@pytest.mark.parametrize(
    ("spec", "dtype"), [(DECODER, "float64"), (with_fields(DECODER, ffn=256), "float32"), (VIT, "float32")]
)
@pytest.mark.every(3)
def test_another_shape_or_dtype_is_measured_anew(machine, base, tmp_path, spec, dtype):
    target = tmp_path / "cpu.yaml"
    profile("toy", model_of(llm=DECODER), base, OPTIONS, target)
    machine.asked = []
    profile("toy", model_of(llm=spec), base, changed_options(dtype=dtype), target)
    assert {piece.kind for piece in machine.asked} == OF_MODULES | ({"frozen"} if spec is VIT else set())


@pytest.mark.soak
def test_a_finer_profile_uses_the_quick_one(machine, base, tmp_path):
    target, model = tmp_path / "cpu.yaml", model_of(llm=DECODER)
    profile("toy", model, base, OPTIONS, target)
    quick, machine.asked = {piece.key for piece in machine.asked}, []
    fine = profile("toy", model, base, changed_options(quick=False), target)
    assert machine.asked and not quick & {piece.key for piece in machine.asked}
    machine.asked = []
    assert profile("toy", model, base, OPTIONS, target) == fine and not machine.asked


@pytest.mark.slow
def test_what_cannot_run_is_left_out_and_said(machine, base, tmp_path):
    mixture = with_fields(DECODER, moe=Experts(experts=4, topk=2, ffn=8, dense_layers=1))
    found = profile("toy", model_of(llm=DECODER, mixture=mixture), base, OPTIONS, tmp_path / "cpu.yaml")
    assert set(found.modules) == {"toy/llm"}
    assert "toy/mixture left out" in found.provenance.note
    with pytest.raises(InputError, match="toy/mixture left out: its layers are of several kinds"):
        profile("toy", model_of(mixture=mixture), base, OPTIONS, tmp_path / "cpu.yaml")


def test_lines_over_other_groups_stay(machine, base, tmp_path):
    old = CollectiveCosts(
        source="published",
        spread=0.1,
        points=(CollectivePoint(ranks=2, gb_per_s=7.0), CollectivePoint(ranks=8, gb_per_s=5.0)),
    )
    known = ModuleCosts(source="published", spread=0.2, layer=PassCosts(both=FORWARD))
    before = with_fields(base, collectives={"all_to_all": old, "all_reduce": old}, modules={"gpt/llm": known})
    found = profile("toy", model_of(llm=DECODER), before, OPTIONS, tmp_path / "cpu.yaml")
    points = {point.ranks: point.gb_per_s for point in found.collectives["all_to_all"].points}
    assert points == pytest.approx({2: 2.0, 4: 1.0, 8: 5.0}, rel=1e-3)
    assert found.collectives["all_reduce"] == old
    assert found.modules["gpt/llm"] == known


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA H100 80GB HBM3", "h100-80gb"),
        ("NVIDIA A100-SXM4-80GB", "a100-80gb"),
        ("NVIDIA A100 80GB PCIe", "a100-80gb"),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("NVIDIA GeForce RTX 4090", "geforce-rtx-4090"),
    ],
)
def test_a_gpu_is_called_as_its_shipped_profile(said, name):
    assert measurement_context.gpu_name(said) == name
