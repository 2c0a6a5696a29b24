"""What forwards save for backward, and when gradients are computed: recompute, offload, deferred weight gradients."""

from planner.models.autograd.activation_offload import ActivationOffload, HostCopier, offloading_activations
from planner.models.autograd.auxiliary_loss import AuxiliaryLosses
from planner.models.autograd.deferred_weights import DeferredGradients, deferring_weight_gradients
from planner.models.autograd.saved_tensors import packing_saved_tensors
