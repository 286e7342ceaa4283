"""The database in memory and the changes staged over it.

database   definitions; batches become a step; commit or rollback
tables     rows of a table by slot, with their versions in a step
step       one atomic batch of changes, as rooms see it
windows    the events of one window as rows of a table (window_set: all windows; window_notes: explained)
retained   recent events of streams declared with RETAIN
plans      plans of subscriptions by slot, single or by column
ids        a hash map from ids to slots
"""
