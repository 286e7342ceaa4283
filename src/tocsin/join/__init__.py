"""Joins of tables: which joined rows come and go with a change?"""
