"""A share of the activations of middle layers is in host memory between forward and backward; gradients do
not change.
"""

import gc
import weakref

import pytest
import torch

from planner.models.autograd.activation_offload import ActivationOffload, HostCopier, offloading_activations
from planner.models.build import build, init_weights
from planner.models.inputs.training_items import synthetic_batch
from planner.models.sharding import ModuleShard
from planner.specs.base import with_fields
from planner.specs.shapes import resident_layers
from tests.models.networks.test_network import DOCUMENTS, SHAPES, assert_same, loss_and_gradients
from tests.models.saved_activations import SavedActivations

DEEP = {name: with_fields(spec, layers=4) for name, spec in SHAPES.items()}
CPU = torch.device("cpu")
RECOMPUTE = ("none", "selective", "full")


def network(spec, how="none"):
    model = build(spec, dtype=torch.float64, shard=ModuleShard(recompute=dict.fromkeys(range(spec.layers), how)))
    init_weights(model, 1)
    return model


class CountingCopier(HostCopier):
    """Counts copies."""

    def __init__(self):
        super().__init__(CPU)
        self.out_bytes = self.back_bytes = 0
        self.moved = []

    def to_host(self, x):
        self.out_bytes += x.nbytes
        self.moved.append(x.untyped_storage().data_ptr())
        return super().to_host(x)

    def to_device(self, host, target, after):
        self.back_bytes += target.nbytes
        return super().to_device(host, target, after)


@pytest.mark.every(17)
@pytest.mark.parametrize("ratio", [1.0, 0.37])
@pytest.mark.parametrize("how", RECOMPUTE)
@pytest.mark.parametrize("spec", DEEP.values(), ids=DEEP)
def test_offload_changes_no_gradient_and_restores_everything(spec, how, ratio):
    mover, batch = CountingCopier(), synthetic_batch(spec, DOCUMENTS, seed=4)
    model = network(spec, how)
    with offloading_activations(ActivationOffload(ratio, mover)):
        loss = model(batch)
    assert mover.out_bytes > 0
    assert mover.back_bytes == 0
    loss.backward()
    assert mover.back_bytes == mover.out_bytes
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    assert_same((loss.detach(), gradients), loss_and_gradients(network(spec), [batch]))


@pytest.mark.every(2)
@pytest.mark.parametrize("ratio", [1.0, 0.5, 0.3])
@pytest.mark.parametrize("how", RECOMPUTE)
def test_a_share_of_the_middle_layers_is_offloaded(how, ratio):
    spec, mover = DEEP["llama"], CountingCopier()
    model, batch = network(spec, how), synthetic_batch(spec, DOCUMENTS, seed=4)
    x = model.embed(batch)
    rotary = model.position_encoding(x, batch)
    with SavedActivations(resident=rotary) as kept:
        for layer in model.layers.values():
            x = layer(x, rotary, batch)
    with offloading_activations(ActivationOffload(ratio, mover)):
        model(batch)
    share = (spec.layers - resident_layers(spec.layers, ratio)) / spec.layers
    assert share == pytest.approx(ratio * (spec.layers - 2) / spec.layers)
    assert 0 < mover.out_bytes <= kept.bytes
    assert abs(mover.out_bytes - share * kept.bytes) <= max(kept.sizes.values()) / 2 + 1e-3 * kept.bytes


def test_whole_storages_are_offloaded():
    """The offloaded bytes differ from the share by at most half the largest storage."""
    for ratio in (0.1, 0.5, 0.75, 1.0):
        mover, seen = CountingCopier(), 0
        offload = ActivationOffload(ratio, mover)
        with offload.layer_activations(()) as box:
            for size in (7, 100, 1, 64, 64, 30):
                x = torch.zeros(size)
                went = box.pack(x) is not None
                assert went == (x.untyped_storage().data_ptr() in mover.moved)
                seen += x.nbytes
                assert abs(mover.out_bytes - ratio * seen) <= 4 * 100 / 2
        assert offload.host_bytes == mover.out_bytes


def test_parameters_and_shared_tensors_stay():
    spec, mover = DEEP["llama"], CountingCopier()
    model, batch = network(spec), synthetic_batch(spec, DOCUMENTS, seed=4)
    places, made = model.position_encoding, []
    model.position_encoding = lambda *args: made.append(places(*args)) or made[-1]
    with offloading_activations(ActivationOffload(1.0, mover)):
        model(batch)
    stay = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    stay |= {table.untyped_storage().data_ptr() for table in made[0]}
    assert mover.moved
    assert not stay & {*mover.moved}


@pytest.mark.slow
@pytest.mark.parametrize("how", RECOMPUTE)
def test_offloaded_activations_free_device_memory(how):
    """The inputs of middle layers are freed after the forward."""
    spec, alive = DEEP["gpt"], []
    model, batch = network(spec, how), synthetic_batch(spec, DOCUMENTS, seed=4)
    for layer in model.layers.values():
        layer.register_forward_pre_hook(lambda _, inputs: alive.append(weakref.ref(inputs[0].untyped_storage())))
    sizes = []
    for ratio in (0.0, 1.0):
        alive.clear()
        with offloading_activations(ActivationOffload(ratio, HostCopier(CPU)) if ratio else None):
            loss = model(batch)
        gc.collect()
        sizes.append([one() is not None for one in alive])
        del loss
    assert sizes == [[True] * 4, [True, False, False, True]]
