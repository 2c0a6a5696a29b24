"""The command line: one verb a file; `app.py` maps errors to exit codes; `render.py` is the only printer."""
