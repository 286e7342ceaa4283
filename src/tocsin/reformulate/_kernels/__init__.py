"""Kernels of reformulation."""
