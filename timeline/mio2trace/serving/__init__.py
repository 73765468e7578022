"""Answers for other programs: a server of the Model Context Protocol over the commands.

`calls` decides which paths may be read, and runs one command in a process of its own, confined and within limits.
`server` lists the tools.
"""
