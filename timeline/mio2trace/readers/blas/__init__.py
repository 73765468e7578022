"""GEMM libraries: the logs of hipBLASLt and rocBLAS, and the files of PyTorch's TunableOp."""
