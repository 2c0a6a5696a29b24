"""Workloads: where lengths come from, samples and streams by batch, sizes of items."""
