"""Neutral records: the content of the sources, before any conclusion.

Times are integer nanoseconds on the clock named in the field. ``host`` is Unix time in UTC. ``device`` counts from an
arbitrary zero of the device. ``LocalTime`` is a wall clock whose zone (and perhaps year) is not recorded. Every record
has its origin. ``source`` is the position of its file among the inputs, ``line`` the 1-based line (0 if the source has
no lines), ``call_index`` the position in the profile's array of calls.
"""
