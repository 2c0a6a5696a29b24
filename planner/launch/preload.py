"""What every worker needs, imported once by the process that all of them are forked from: seconds saved per rank."""

import torch._dynamo  # which torch.optim would import with the first optimizer
import torch.distributed.fsdp  # noqa: F401
