"""Fill groups of ranks with sequences: the packing core shared by strategies for variable lengths."""
