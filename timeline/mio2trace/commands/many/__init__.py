"""Commands on many runs, and on the ranks of a job."""
