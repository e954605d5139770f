"""The operator table as text: src/ops/tables/*.ops are read, checked and written as C, Python stubs and pages.

`language` reads the files, `schema` PyTorch's signatures in them; `records`, `functions`, `stubs` and `pages` each write one
kind of output. docs/add-an-operator.md shows a row of each kind.
"""
