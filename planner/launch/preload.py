"""Imports what every worker needs, once, in the process from which all are forked: this saves seconds per rank."""

import torch._dynamo  # torch.optim would import it with the first optimizer
import torch.distributed.fsdp  # noqa: F401
