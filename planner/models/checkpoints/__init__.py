"""Weights read from and written to Hugging Face and native checkpoints in safetensors files."""
