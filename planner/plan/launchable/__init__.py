"""What a framework can launch: its rules for layouts as a table, and what it refuses of a layout or a plan."""
