"""What verbs print: tables, pictures and lines for the terminal, and JSON answers."""
