"""Tables about what was decoded: rows of plain cells, printed by `mio2trace.reports.tables`."""
