"""What is known of a group, and of a namespace, to somebody who looks while something is wrong: gathered, then told."""
