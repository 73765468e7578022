"""OpenCL: what AMD's dv/dt profiler writes, as JSON and as text."""
