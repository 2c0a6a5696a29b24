"""Parameters, gradients and optimizer states of a rank, sharded by FSDP2."""
