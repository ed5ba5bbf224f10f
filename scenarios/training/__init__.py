"""Training: steps taken apart, spread over devices, and planned."""
