"""An analysed run, stored beside its tables: the data that tables cannot rebuild, so that every command accepts it.

A `files.Snapshot` holds the cleaned records of the run and the results of the alignment. Data that only served to join
records (addresses of buffers, arguments, program sources) is not stored. Reading a snapshot joins nothing again: links
are those of the version that wrote it. `objects` turns records into columns, `files` stores them as Parquet, `places`
finds them.
"""
