"""Commands on MIOpen's logs alone."""
