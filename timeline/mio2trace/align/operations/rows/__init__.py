"""What stands in the two rows that are aligned: the kernels of a queue, and the calls of the log."""
