"""GEMM libraries: what hipBLASLt, rocBLAS and PyTorch's TunableOp write."""
