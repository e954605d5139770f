"""Functions of nn.functional that few programs need, one file a subject; functional.py loads them when asked."""
