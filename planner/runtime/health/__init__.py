"""Whether what a run trains is sound: spikes of its loss, data skipped behind them, and replicas that differ."""
