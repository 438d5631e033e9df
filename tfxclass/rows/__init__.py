"""Class rows: where they lie, how they are read, and what is computed of them.

Every head but the trees is made of parts, `(queries, ClassRows)`: its logits,
exact loss, best classes and export are written here, once, over parts.
"""
