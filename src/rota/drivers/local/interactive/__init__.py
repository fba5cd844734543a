"""The manager's side of sessions in tasks of this machine."""
