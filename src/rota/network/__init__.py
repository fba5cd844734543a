"""Links, routes, flows and collectives, and what jobs cost each other on them."""
