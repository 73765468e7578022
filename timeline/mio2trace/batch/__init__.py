"""Many runs: found in folders, each analysed in a process of its own, all into one dataset; a run that fails is a row.

`finding` says what is a run, `journal` what was done already, `engines` where the work is done (on this machine, on a
cluster of Dask), `confined` and `forking` that a run which hangs, crashes or eats memory fails alone, `running` leads.
"""
