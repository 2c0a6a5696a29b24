"""Which rank holds which tokens, and how encoders' outputs are resharded to their readers."""
