"""Trackers' own binary files: TensorBoard events, W&B and SwanLab containers."""
