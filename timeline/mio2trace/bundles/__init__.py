"""Make a run that can be given away: one archive, which is an input like the files from which it was made.

`scrub` removes paths, hosts, users, pointers, environment, secrets and device ids from logs and records, by the rules
of docs/privacy.md. It also removes program texts, except the lines that the analysis needs. Names of layers, kernels,
functions and scripts stay, even if somebody put a private word into one. `making` makes the files and the archive, and
lists for a person which words were kept.
"""
