"""What planners share: communication estimates, ranks and device timelines."""
