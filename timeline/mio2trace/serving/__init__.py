"""Answers for other programs: a server of the Model Context Protocol (MCP) that runs the commands.

`calls` decides which paths may be read, and runs each command in its own process, confined and within limits. `server`
lists the tools.
"""
