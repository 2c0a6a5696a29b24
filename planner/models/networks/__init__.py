"""Whole networks over packed batches: decoders, and encoders of text, images and sound."""
