"""The rows of `bench/truth.py`: live managers, a GPU, Kubernetes, and the tables of all three."""
