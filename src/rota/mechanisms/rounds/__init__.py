"""Round policies: shares of time per device type, turned into leases round by round."""
