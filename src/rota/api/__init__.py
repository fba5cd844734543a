"""The manager over HTTP: routes, wire formats, access control, and the processes that serve them."""
