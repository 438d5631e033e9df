"""Class vectors: where they are, how they are read, what is computed.

Every head but the trees consists of parts, `(queries, ClassRows)`. The logits,
the exact loss, the best classes and the export of all of them are computed
here.
"""
