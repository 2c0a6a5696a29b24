"""One static layout of a module over ranks of several kinds: its stages, the shares of its replicas, and its search."""
