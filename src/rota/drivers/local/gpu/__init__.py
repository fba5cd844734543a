"""GPUs of this machine beyond their number: what suspends, limits and measures what runs on them."""
