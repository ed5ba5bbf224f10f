"""What the calibrate command does: choosing operators, measuring, fitting, the report."""
