"""Turn library calls into operations: problem, shapes, equivalent GEMM, work, traffic, driver command."""

from mio2trace.ops.log import driver_command, log_form, operations

__all__ = ["driver_command", "log_form", "operations"]
