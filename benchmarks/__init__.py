"""What planner reaches, measured: quality, speed, start-up, overhead. `python -m benchmarks --help`."""
