"""The live loop: requests and the driver's answers become steps of the engine, durable before they have effect."""
