"""Queries under limits: windows, bounded memory, answers within a response time.

options.py   the options of a query for Python: Window, Memory, OnDemand, When, Every
support.py   which options the engine answers; all others are rejected
"""
