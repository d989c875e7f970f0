"""What a policy's ``consumers`` are told by their environment, and which pods that is for."""
