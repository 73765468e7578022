"""Commands that write traces."""
