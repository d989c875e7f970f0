"""The control and ack topics: records, and the gates, claims and acks that they add up to."""
