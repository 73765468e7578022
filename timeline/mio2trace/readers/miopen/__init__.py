"""MIOpen's log, from 1.0 to today."""
