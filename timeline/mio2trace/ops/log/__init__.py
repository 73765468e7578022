"""A MIOpen log's records to operations."""
