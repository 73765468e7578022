"""An analysed run as it is kept beside its tables: what these cannot rebuild, so that every command takes it as input.

A `files.Snapshot` holds the records of the run as they were cleaned, and what the alignment says of them; what only
served to join them (buffers' addresses, arguments, program sources) is gone. Nothing is joined again when it is read:
links are those of the version that wrote it. `objects` makes columns of it, `files` puts them into Parquet, `places`
finds them.
"""
