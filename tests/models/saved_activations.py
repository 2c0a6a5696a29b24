"""The activations that forwards save for backward, whatever hook takes them."""

from contextlib import ExitStack

from planner.models.autograd.activation_offload import is_parameter, storage_address
from planner.models.autograd.saved_tensors import packing_saved_tensors


class SavedActivations(ExitStack):
    """A context that records the storages of saved tensors, except parameters, integers and the storages of
    `resident`.
    """

    def __init__(self, resident=()):
        super().__init__()
        self.sizes = {}
        self.resident = {storage_address(x) for x in resident}
        self.kept_alive = []  # so that no address is reused
        self.enter_context(packing_saved_tensors(self.pack))

    def pack(self, x):
        if x.is_floating_point() and not is_parameter(x) and storage_address(x) not in self.resident:
            self.sizes[storage_address(x)] = x.untyped_storage().nbytes()
            self.kept_alive.append(x.detach())

    @property
    def bytes(self):
        return sum(self.sizes.values())
