"""A file of full parameters fills any shard of a module exactly, and a file of another model is refused."""

import mmap
import os

import pytest
import torch

from planner.errors import InputError
from planner.models.build import build, init_weights
from planner.models.checkpoints.native import load_native, parameter_shapes, require_native_shapes
from planner.models.checkpoints.safetensors_files import SafetensorsCheckpoint
from planner.models.checkpoints.stored_shards import read_shards
from planner.models.sharding import EqualShard, ExpertShard, ModuleShard, parameter_splits, take_shard
from planner.specs.base import Layers, with_fields
from planner.specs.layers import Audio, Decoder, Vit
from planner.specs.layers.components import Experts
from tests.checkpoint_files import write_states, write_tensors

MOE = Decoder(
    layers=2, hidden=16, heads=4, kv_heads=2, ffn=24, vocab=20, bias="all", moe=Experts(experts=4, topk=2, ffn=8)
)
SPECS = {
    "experts": MOE,
    "vit": Vit(layers=2, hidden=16, heads=4, ffn=24, patch=2, merge=2, out=12),
    "audio": Audio(layers=2, hidden=16, heads=4, ffn=24, mels=4, pool=2, out=12),
}


def saved(spec, file):
    model = build(spec, dtype=torch.float64)
    init_weights(model, 3)
    weights = {name: parameter.detach() + 0.25 for name, parameter in model.named_parameters()}
    write_states(file, weights)
    return weights, read_shards(file.parent, [file.name])


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("of", [1, 2])
def test_every_shard_gets_its_own_values(tmp_path, name, of):
    spec = SPECS[name]
    weights, stored = saved(spec, tmp_path / "x.safetensors")
    require_native_shapes(parameter_shapes(spec), stored)
    met = set()
    for index in range(of):
        part = EqualShard(index, of)
        for layer in range(2):
            model = build(
                spec,
                dtype=torch.float64,
                shard=ModuleShard(Layers((layer,)), tp=part, experts={layer: ExpertShard(part)}),
            )
            load_native(model, stored)
            splits = parameter_splits(model)
            for parameter, values in model.named_parameters():
                assert torch.equal(values, take_shard(weights[parameter], splits.get(parameter, ()))), parameter
                met.add(parameter)
    assert met == weights.keys()


def test_another_model_s_file_is_refused(tmp_path):
    _, stored = saved(MOE, tmp_path / "x.safetensors")
    for other, says in (
        (with_fields(MOE, vocab=22), r"`embedding.weight` is \[20, 16\], the model has \[22, 16\]"),
        (with_fields(MOE, qk_norm=True), "the checkpoint has no `layers.0.attention.query_norm.weight`"),
        (with_fields(MOE, layers=1), "the model has no `layers.1"),
    ):
        with pytest.raises(InputError, match=says) as refused:
            require_native_shapes(parameter_shapes(other), stored)
        assert refused.value.where == str(tmp_path) and refused.value.fix
    with pytest.raises(InputError, match="the model has"):
        require_native_shapes(dict.fromkeys(parameter_shapes(MOE), ()), stored)


def test_only_the_pages_of_a_tensor_are_mapped(tmp_path, monkeypatch):
    """A private map of a file that is larger than memory would be refused, as that of the library is."""
    file, sizes = tmp_path / "x.safetensors", []
    made = {name: torch.arange(5000.0) + place for place, name in enumerate("abc")}
    write_tensors(file, made)
    found, real = SafetensorsCheckpoint(file), mmap.mmap

    def heard(handle, size, **how):
        sizes.append(size)
        return real(handle, size, **how)

    monkeypatch.setattr(mmap, "mmap", heard)
    assert all(torch.equal(found.read(name), values) for name, values in made.items())
    assert len(sizes) == 3 and max(sizes) < 20_000 + mmap.ALLOCATIONGRANULARITY


def test_a_missing_or_truncated_file_is_named(tmp_path):
    file = tmp_path / "x.safetensors"
    write_tensors(file, {"a": torch.arange(5000.0)})
    found = SafetensorsCheckpoint(file)
    os.truncate(file, 100)
    for read in (found.read, lambda _: SafetensorsCheckpoint(file)):
        with pytest.raises(InputError, match="no safetensors file") as refused:
            read("a")
        assert refused.value.where == str(file)
    file.unlink()
    for read in (found.read, lambda _: SafetensorsCheckpoint(file)):
        with pytest.raises(InputError, match=r"cannot read the (file|tensors): No such file") as refused:
            read("a")
        assert refused.value.where == str(file)


def test_what_is_read_is_private(tmp_path):
    file = tmp_path / "x.safetensors"
    made = {
        "matrix": torch.arange(6.0, dtype=torch.float64).reshape(2, 3),
        "number": torch.tensor(3.0),
        "odd": torch.arange(3, dtype=torch.uint8),
        "shifted": torch.arange(4, dtype=torch.float32),
        "nothing": torch.empty(0, 2),
    }
    write_tensors(file, made)
    found = SafetensorsCheckpoint(file)
    for name, values in made.items():
        assert torch.equal(found.read(name), values) and found.read(name).dtype == values.dtype
        assert found.read(name).data_ptr() % values.dtype.itemsize == 0
    found.read("matrix").fill_(0)
    assert torch.equal(found.read("matrix"), made["matrix"])
