"""The live loop: requests and driver events become durable steps of the engine."""
