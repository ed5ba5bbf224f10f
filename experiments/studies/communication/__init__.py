"""What schedulers and partitions move, beside what they take."""
