"""Many runs: found in folders, each analysed in its own process, all in one dataset. A run that fails becomes a row.

`finding` finds runs. `work` does them, on this machine or on a Dask cluster, and keeps the journal. `confined` makes
sure that a run that hangs, crashes or fills the memory fails alone.
"""
