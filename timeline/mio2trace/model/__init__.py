"""Neutral records: what the sources state, before anything is concluded from it.

Times are integer nanoseconds on the clock named in the field: ``host`` is Unix time in UTC, ``device`` counts from an
arbitrary zero of the device, ``LocalTime`` is a wall clock whose zone (and perhaps year) the source does not tell.
Every record says where it came from: ``source`` is the position of its file among the inputs, ``line`` the 1-based line
(0 where the source has no lines), ``call_index`` the position in the profile's array of calls.
"""
