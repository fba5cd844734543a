"""The manager over HTTP: routes, wire forms, who may do what."""
