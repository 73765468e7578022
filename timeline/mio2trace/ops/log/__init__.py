"""Turn a MIOpen log's records into operations."""
