"""Kafka's nouns, and the ports through which everything else asks for them. No client library."""
