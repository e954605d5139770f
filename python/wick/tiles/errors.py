"""What is wrong with a kernel: where, and what."""


class TritonError(Exception):
    """The base of the errors of tile kernels."""


class CompilationError(TritonError):
    """A mistake in a kernel's source: the lines up to it, a mark below the place, the message."""

    source_line_count_max_in_message = 12

    def __init__(self, source, node, message):
        self.src, self.node, self.error_message = source, node, message
        super().__init__(self._format())

    def _format(self):
        if self.node is None:
            return self.error_message or ""
        line, column = self.node.lineno, self.node.col_offset
        shown = self.src.split("\n")[:line][-self.source_line_count_max_in_message :]
        return f"at {line}:{column}:\n" + "\n".join(shown) + "\n" + " " * column + "^\n" + (self.error_message or "")


class UnsupportedLanguageConstruct(CompilationError):
    """Python that kernels cannot be written in."""


class CompileTimeAssertionFailure(CompilationError):
    """A tl.static_assert that does not hold."""


class OutOfResources(TritonError):
    """A kernel that needs more than the device has."""


class AutotunerError(TritonError):
    """No configuration of a kernel runs."""
