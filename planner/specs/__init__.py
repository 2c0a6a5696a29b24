"""What people write: jobs, models, clusters, profiles, workloads."""
