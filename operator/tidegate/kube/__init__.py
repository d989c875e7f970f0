"""The Kubernetes API: ports, clients, and the loop that passes over each object until it is as it should be."""
