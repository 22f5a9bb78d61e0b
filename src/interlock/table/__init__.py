"""The state table: typed rows in shared memory for every process of the machine."""
