"""What no plan of a job can beat: the table of bounds on a step, and what proves each."""
