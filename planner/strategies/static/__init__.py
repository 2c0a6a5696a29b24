"""One layout for all batches alike: which there are, what each costs and needs, how it becomes a plan."""
