"""The files of a package as a tree that prints."""


class Directory:
    """A folder or a file; children by name."""

    def __init__(self, name, is_dir):
        self.name, self.is_dir, self.children = name, is_dir, {}

    def _add(self, path):
        head, _, rest = path.partition("/")
        child = self.children.setdefault(head, Directory(head, bool(rest)))
        if rest:
            child._add(rest)

    def has_file(self, filename):
        """Whether a path such as "model/weights.pkl" is there."""
        head, _, rest = filename.partition("/")
        child = self.children.get(head)
        return child is not None and (child.has_file(rest) if rest else True)

    def _lines(self, before):
        folders = sorted((c for c in self.children.values() if c.is_dir), key=lambda c: c.name)
        children = folders + sorted((c for c in self.children.values() if not c.is_dir), key=lambda c: c.name)
        for i, child in enumerate(children):
            last = i == len(children) - 1
            yield f"{before}{'└── ' if last else '├── '}{child.name}\n"
            yield from child._lines(before + ("    " if last else "│   "))

    def __str__(self):
        return f"─── {self.name}\n" + "".join(self._lines("    "))


def tree_of(name, paths, include="**", exclude=()):
    """The Directory of paths that the patterns leave."""
    from .glob_group import GlobGroup

    chosen, root = GlobGroup(include, exclude=exclude, separator="/"), Directory(name, True)
    for path in paths:
        if chosen.matches(path):
            root._add(path)
    return root
