"""What people see of a run: console, and the board through which workers and driver talk."""
