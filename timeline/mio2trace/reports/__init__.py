"""Tables of decoded data: rows of plain cells, printed by `mio2trace.reports.tables`."""
