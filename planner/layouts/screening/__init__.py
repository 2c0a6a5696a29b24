"""What each layout takes and holds: seconds and bytes, with what is recomputed and offloaded so that it fits."""
