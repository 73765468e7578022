"""What is aligned: the kernels of a queue, and the calls of the log."""
