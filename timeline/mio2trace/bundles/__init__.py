"""A run to give away: one archive with nothing private in it, which is an input like the files that it was made of.

`scrub` takes what is private out of logs and records, `sources` out of program texts; `members` makes files of them,
`making` the archive; `listing` shows a person what was kept.
"""
