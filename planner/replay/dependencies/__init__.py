"""The execution graph of one recorded trace: who waits for whom, and what every operation takes."""
