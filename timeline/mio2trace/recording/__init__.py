"""Run a program under a profiler, with MIOpen's log on, and write one archive: the work of `mio2trace record`.

`plan` decides what to run and prints it. `running` runs the program. `session` inspects the result and makes the
archive. `machine` describes the machine. Nothing here ran on a ROCm GPU: the command lines follow the sources of the
tools.
"""
