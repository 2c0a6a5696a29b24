"""Fill groups of ranks with sequences: the core that strategies over variable lengths share."""
