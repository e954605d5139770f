"""What to do about a graph break: reasons as the capture gives them, and advice."""

import re

_HINTS = [
    (r"a branch on a tensor's value",
     "Python decides by a value that is not known while capturing. Compute both and choose with where(), or clamp, mask "
     "or multiply; if the branch has to stay, put it in front of or behind the hot part."),
    (r"Tensor\.(item|tolist|numpy|__\w+__)\(\) needs|\(\) of a tensor's value|a tensor is made from another one's values",
     "Reading a value out ends the graph. Keep it a tensor (a tensor with no dims takes part in arithmetic), or read it "
     "out once, behind the compiled function."),
    (r"a tensor's values are printed|print\(\) of other things than values",
     "Printing has to happen at once, between two graphs. Print what the compiled function returns, or only while debugging."),
    (r"compiler\.disable\(\)",
     "The function was kept out on purpose (disable, graph_break). Remove that where it is not needed any more."),
    (r"an import that has to load",
     "Move the import to the top of the file: one that is found at once breaks nothing."),
    (r"a call of time\.|a Random$|a call of random\.",
     "The result differs from call to call, so it has to be computed each time. Compute it outside and pass it in; random "
     "numbers as tensors (rand, randn) are part of the graph."),
    (r"io\.open|_io\.", "Files are read and written between graphs: do that outside of the compiled function."),
    (r"a context manager of C code", "Enter the context manager outside of the compiled function."),
    (r"a class is made|__build_class__", "Define the class outside of the compiled function."),
    (r"a leaf that requires grad is made|a call of a module that was made",
     "Make parameters and modules once, outside, and pass them in."),
    (r"a module with|whose forward is no Python function",
     "Hooks and forwards in C are called as they are, between two graphs. Remove the hook, or compile the parts around it."),
    (r"has a destructor", "Make objects with __del__ outside of the compiled function."),
    (r"an iterator that|made outside of the region|generator that is not finished|a live ",
     "Something half done crosses the border of the region. Make and use up the iterator inside, or pass a list."),
    (r"is left to CPython|except block is entered",
     "This instruction (async, exceptions on their way, ...) is run by CPython. Keep it out of the hot part."),
    (r"could not be captured before|a call that changed something and raised",
     "An attempt to capture this failed halfway, so the graph now ends in front of it. WICK_LOGS=graph_breaks shows the "
     "first reason."),
    (r"from unknown code|found outside|cannot be an input|cannot be known|contain each other",
     "An object came out of code that capture cannot see into. Pass it in as an argument or keep it an attribute."),
    (r"attribute .* (computed by C code|finds attributes its own way|from outside|that is computed)|module attribute",
     "The attribute is computed by code that capture cannot see into: read it once outside and pass it in."),
    (r"a call of|method |a new |a bound ",
     "Capture cannot see into this C code, so it is called between two graphs. Call it outside of the compiled function, or "
     "use a tensor operator or Python code instead."),
]  # fmt: skip


def hint_of(reason):
    """Advice for a reason; an empty text where there is none.

    hint_of("print() of other things than values")
    """
    return next((hint for pattern, hint in _HINTS if re.search(pattern, reason)), "")


_MENDS = [
    (r"is a tensor .*\[", "A tensor of another dtype, device, layout or number of dims, or of sizes that stay numbers: give it "
     "the same form in each call, or compile with dynamic=True, or mark_dynamic() the dims that change."),
    (r"sizes at least 2|==|<|>|%", "A value that the program looks at: pass it as a tensor, or keep it out of branches, keys and texts; "
     "a size that is compared fixes what it is compared with."),
    (r"the thread's modes or a class", "Grad mode, autocast, default dtype or device are others, or a class has been changed: call under the "
     "same modes, and change classes before the first call."),
    (r"memory of their own", "Two arguments share memory, and the function writes it: pass copies."),
    (r" is |type is", "Another object or class than at the first capture: keep one function, module or class, and do not make "
     "them again for each call."),
    (r"length|keys|has no|items", "A container has grown or shrunk: use the same number of items, or pad."),
]  # fmt: skip


def mend_of(reason):
    """What to do about a recompile, by the guard that did not hold; an empty text where there is none.

    mend_of("x is a tensor float32[3] strides [1]")
    """
    return next((mend for pattern, mend in _MENDS if re.search(pattern, reason)), "")
