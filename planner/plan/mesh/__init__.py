"""The rank mesh of a module: coordinates and groups of ranks, placement of experts, synchronisation, identical groups."""
