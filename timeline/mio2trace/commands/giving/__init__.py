"""Commands around the files themselves: getting them, giving them away, what is installed to do so."""
