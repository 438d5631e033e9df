"""A development server for SavedModels, with TensorFlow Serving's protocols.

It imports neither tfxclass nor its compiled ops: what it loads, the stock
server loads.
"""
