"""Requests to a model that is served: when each comes, what it brings, and how much it asks for; files and traces."""
