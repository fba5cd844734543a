"""What the measurement of Rota on Kubernetes is made of."""
