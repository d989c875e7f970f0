"""The control and ack topics: what they carry, and how it adds up to gates (design: "Closing a gate")."""
