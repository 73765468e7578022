"""Run a program under a profiler, with MIOpen's log on, and write one archive: the work of `mio2trace record`.

`plan` decides what to run and prints it. `running` runs the program. `session` inspects the result, describes the
machine, and makes the archive. Nothing here ran on a ROCm GPU: the command lines follow the sources of the tools.
"""
