"""Tables about what was decoded: rows of plain cells, printed by `timeline.tables`."""
