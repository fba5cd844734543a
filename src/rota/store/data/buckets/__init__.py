"""Data sets that lie in buckets: what is fetched of them, and the cache that holds it."""
