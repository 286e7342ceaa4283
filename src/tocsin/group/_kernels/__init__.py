"""Kernels of the group room."""
