"""Functions of tensors: attention back ends, position encodings, grouped matrix products and state-space scans."""
