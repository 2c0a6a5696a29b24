"""The torch models that plans are run with. They know shapes, packed batches and an exchange, but no processes."""
