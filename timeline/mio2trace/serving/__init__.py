"""Answers for other programs: a server of the Model Context Protocol over the commands.

`folders` decides which paths may be read. `calls` runs one command in a process of its own, within limits. `confined`
restricts that process before the command begins. `server` lists the tools.
"""
