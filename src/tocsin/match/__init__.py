"""Stateless filters: which subscriptions does an event, or a row, satisfy?"""
