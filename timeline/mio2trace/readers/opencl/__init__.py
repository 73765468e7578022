"""OpenCL: profiles of AMD's dv/dt profiler, as JSON and as text."""
