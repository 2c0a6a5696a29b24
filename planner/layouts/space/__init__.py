"""What layouts there are: of which module on which ranks, with what the job fixes and its framework can launch."""
