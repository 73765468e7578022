"""Runs as tables: a folder of them as output, and what is asked of many."""
