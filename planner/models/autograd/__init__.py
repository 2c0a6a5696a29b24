"""What forwards save for backward, and when gradients are computed: recompute, offload, deferred weight gradients."""
