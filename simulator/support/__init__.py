"""What every part of the program shares: files, own code, options."""
