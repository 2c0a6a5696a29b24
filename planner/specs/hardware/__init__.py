"""Hardware: clusters, kinds of ranks, profiles of devices and rates of their kernels."""
