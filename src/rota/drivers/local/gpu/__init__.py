"""GPUs of this machine beyond their number: what suspends, limits, shares and measures what runs on them."""
