"""The Kubernetes API server: client, informers, leader election, access rights."""
