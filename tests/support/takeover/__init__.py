"""Two operators, one of which leads: it is killed or frozen in each phase of resets and pauses, and all is judged."""
