"""Subscriptions: who has subscribed, from which source, in which state.

roster     registers, starts and ends subscriptions; dispatches to rooms
registry   ids, slots, states and shapes in columns
windows    the windows that subscriptions use: begun with the first, dropped with the last
sources    the input of subscriptions: a text, a template with values, rows of predicates
bulk       many subscriptions at once, by column
saved      the folder of a saved engine
parts      what an engine keeps beside tables and subscriptions
"""
