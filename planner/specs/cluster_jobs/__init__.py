"""Jobs that share one cluster: what each needs, files of them, the cluster's GPUs, and decisions about both."""
