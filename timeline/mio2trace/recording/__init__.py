"""A program run under a profiler, with MIOpen's log on, into one archive: what `mio2trace record` does.

`plan` decides what is run and prints it; `profilers` knows their command lines; `running` runs it; `contents` looks at
what came; `packing` makes the archive. Nothing here ran on a ROCm GPU: the command lines follow the tools' sources.
"""
