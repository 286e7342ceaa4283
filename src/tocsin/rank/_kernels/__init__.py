"""Compiled loops over subscriptions and objects, one file per structure."""
