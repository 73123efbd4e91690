"""One file that shows a run: offline, without Ray, whatever has become of the run."""
