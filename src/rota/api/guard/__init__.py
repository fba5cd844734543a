"""What stands in front of every route: requests of other sites, refusals in the audit log, the end of streams."""
