"""Worker processes, their process groups, and the communication that the runtime and the profiler share."""
