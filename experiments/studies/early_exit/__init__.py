"""Where to split a multi-exit network and let samples leave, against the bandwidth of the first link."""
