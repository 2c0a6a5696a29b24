"""One layout for all batches: which there are, what each costs and needs, and how it becomes a plan."""
