"""Many runs: found in folders, each analysed in a process of its own, all into one dataset; a run that fails is a row.

`finding` finds runs, `journal` records finished runs, `engines` does the work (on this machine or on a cluster of
Dask). `confined` makes sure that a run that hangs, crashes or fills the memory fails alone. `running` leads.
"""
