"""Statistics on plain arrays: trends, shifts, onsets and group arithmetic, corrected for autocorrelation."""
