"""What joins several packages for a verb: costs and their evidence, recorded traces, pages, the demo."""
