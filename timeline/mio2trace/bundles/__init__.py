"""A run to give away: one archive, which is an input like the files that it was made of.

`scrub` removes paths, hosts, users, pointers, environment, secrets and device ids from logs and records, by the rules
of docs/privacy.md. `sources` removes program texts but for the lines that the analysis needs. Names of layers, kernels,
functions and scripts stay, even if somebody put a private word into one. `members` makes the files, `making` the
archive; `listing` shows a person what was kept.
"""
