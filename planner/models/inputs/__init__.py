"""Sources of samples, and the packed batches made of them."""
