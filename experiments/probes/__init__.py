"""What is measured of this machine's runner beside operators: speed, overhead, caches, the interpreter."""
