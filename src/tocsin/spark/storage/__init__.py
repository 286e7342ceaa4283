"""Where a pipeline keeps its files: a folder, or a bucket of an object store.

store.py     the few operations that everything else is written with; addresses; folders on disk
objects.py   S3, GCS, Azure and memory, through `obstore`
cache.py     copies of immutable objects on this machine's disk, to be mapped
"""
