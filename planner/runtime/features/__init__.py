"""Outputs of frozen encoders that are kept for later epochs: where they are, their keys, and who reads them."""
