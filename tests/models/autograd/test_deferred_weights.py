"""I defers the weight gradients of matrices to W, and W completes them."""

import pytest
import torch
from torch import nn

from planner.models.autograd.deferred_weights import (
    DeferredGradients,
    deferrable_linear,
    deferrable_multiply,
    deferring_weight_gradients,
)
from planner.models.inputs.training_items import synthetic_batch
from planner.models.kernels.grouped_gemm import GroupedProduct
from tests.models.networks.test_network import DOCUMENTS, SHAPES, assert_same, loss_and_gradients, network


def matrices(model):
    """Names of weights in matrix products; the table of a tied model also has gradients in I."""
    tables = {f"{name}.weight" for name in ("embedding", "position", "segment", "relative", "pooler", "classes")}
    return {name for name, parameter in model.named_parameters() if parameter.dim() > 1} - tables


@pytest.mark.parametrize("name", SHAPES)
def test_weights_get_no_gradient_in_i_and_all_of_it_in_w(name):
    spec = SHAPES[name]
    model, batch, store = network(spec), synthetic_batch(spec, DOCUMENTS, seed=4), DeferredGradients()
    with deferring_weight_gradients(store):
        loss = model(batch)
    loss.backward()
    without = {key for key, parameter in model.named_parameters() if parameter.grad is None}
    assert without == matrices(model)
    assert store.products
    store.accumulate()
    assert not store.products
    gradients = {key: parameter.grad for key, parameter in model.named_parameters()}
    assert_same((loss.detach(), gradients), loss_and_gradients(network(spec), [batch]))


def test_w_accumulates_micro_batches_in_any_order():
    spec = SHAPES["gpt"]
    model, batches = network(spec), [synthetic_batch(spec, [document], seed=4) for document in DOCUMENTS]
    stores, losses = [DeferredGradients() for _ in batches], []
    for batch, store in zip(batches, stores, strict=True):
        with deferring_weight_gradients(store):
            losses.append(model(batch))
    for loss in losses:
        loss.backward()
    for number in (2, 0, 1):
        stores[number].accumulate()
    gradients = {key: parameter.grad for key, parameter in model.named_parameters()}
    assert_same((sum(losses).detach(), gradients), loss_and_gradients(network(spec), batches))


def test_chunked_logits_are_not_stored_for_w():
    spec = SHAPES["llama"]
    model, batch, store = network(spec), synthetic_batch(spec, DOCUMENTS, seed=4), DeferredGradients()
    model.loss_tokens = 7
    with deferring_weight_gradients(store):
        loss = model(batch)
    loss.backward()
    assert model.head.weight.grad is not None
    assert all(left.gradient.shape[1] != spec.vocab for left in store.products)
    store.accumulate()
    whole = loss_and_gradients(network(spec), [batch])[1]
    torch.testing.assert_close(model.head.weight.grad, whole["head.weight"], rtol=1e-12, atol=1e-14)


def test_a_weight_may_be_a_view_of_a_parameter():
    x = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    weight, store = nn.Parameter(torch.randn(6, 3, dtype=torch.float64)), DeferredGradients()
    with deferring_weight_gradients(store):
        y = deferrable_linear(x, weight[2:5])
    y.square().sum().backward()
    assert weight.grad is None
    store.accumulate()
    deferred, weight.grad = weight.grad, None
    deferrable_linear(x, weight[2:5]).square().sum().backward()
    torch.testing.assert_close(deferred, weight.grad, rtol=1e-12, atol=0)


def test_products_of_many_matrices_can_be_deferred():
    sizes = torch.tensor([2, 0, 3])
    x = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    weight, store = nn.Parameter(torch.randn(3, 6, 4, dtype=torch.float64)), DeferredGradients()
    deferrable_multiply(x, weight, GroupedProduct(sizes)).square().sum().backward()
    whole, x.grad, weight.grad = (x.grad, weight.grad), None, None
    with deferring_weight_gradients(store):
        deferrable_multiply(x, weight, GroupedProduct(sizes)).square().sum().backward()
    assert weight.grad is None
    store.accumulate()
    torch.testing.assert_close((x.grad, weight.grad), whole, rtol=1e-12, atol=0)
