"""The rank mesh of a module: coordinates, groups of ranks, placement of experts, synchronisation, identical groups."""
