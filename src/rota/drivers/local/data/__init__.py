"""Data sets from buckets, on their way to the attempts that use them."""
