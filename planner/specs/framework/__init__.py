"""Training frameworks: coefficients of time and memory, and switches of overlap."""
