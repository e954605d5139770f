"""What random calls on a CUDA device need beside those on the CPU (random_calls.py makes them).

PyTorch's CPU is asked each call first. What it refuses because of an element (an index out of range, a probability above
1) PyTorch's CUDA kernels would assert, and an assert ends all work of the process on the device: such a call is not made
there, and wick has to refuse it. Where an assert comes all the same, the process says so and ends, and another goes on."""

import re

from outcomes import COMPARED, SHAPES, STREAM, difference, outcome
from sampling import ROWS

# Errors that are said of an element and not of sizes or dtypes.
OF_ELEMENTS = re.compile(
    r"is out of bounds|index out of range|out of bounds for|should be between|must be between 0 and 1|"
    r"[Cc]lass values must|probability tensor|[Rr]epeats can not be negative|ZeroDivisionError|Index -?\d+|"
    r"[Ii]ndex .* is out of range|p_in >= 0|[Ee]xpected.*(?:probab|lambda|rate)",
)

# Errors of a PyTorch that is older than the one that is matched: dims had names, and what is no number was looked up.
OF_NAMES = re.compile(r"look up dimensions by name|not found in Tensor\[|passed a dimname")

# Results lie as PyTorch's do there, and not as on the CPU.
OWN_LAYOUT = {"scaled_dot_product_attention"}

# By rejection: a stream an element, which is not that of PyTorch's kernels (docs/cuda.md).
OTHER_STREAM = {"_standard_gamma", "_sample_dirichlet", "poisson", "binomial"}

# Rows of random numbers have no samples that make sense on the CPU alone: these are compared by their streams.
RANDOM_SAMPLES = {
    "uniform_": ["T(3, 4), -1.0, 3.0", "T(60, 51)"],
    "normal_": ["T(3, 4), 1.0, 2.0", "T(60, 51)"],
    "random_": ["T(3, 4)", "I(3, 60, 51)"],
    "random_.to": ["T(3, 4), 100", "I(3, 60, 51), 7"],
    "random_.from": ["T(3, 4), -5, 20", "I(3, 60, 51), -7, 2**40"],
    "bernoulli_.float": ["T(3, 4), 0.3", "T(60, 51), 0.7"],
    "bernoulli_.Tensor": ["T(3, 4), U(3, 4)", "T(60, 51), U(60, 51)"],
    "exponential_": ["T(3, 4)", "T(60, 51), 2.5"],
    "geometric_": ["T(3, 4), 0.4", "T(60, 51), 0.1"],
    "cauchy_": ["T(3, 4)", "T(60, 51), 1.0, 2.0"],
    "log_normal_": ["T(3, 4)", "T(60, 51), 0.5, 0.25"],
    "rand": ["[3, 4]", "[70001]", "[60, 51], dtype=float64", "[60, 51], dtype=bfloat16", "[60, 51], dtype=float16"],
    "rand_like": ["T(3, 4)", "T(60, 51)"],
    "randn": ["[3, 4]", "[70001]", "[60, 51], dtype=float64", "[60, 51], dtype=bfloat16", "[60, 51], dtype=float16"],
    "randn_like": ["T(3, 4)", "T(60, 51)"],
    "normal.float_float": ["1.0, 2.0, [3, 4]", "-1.0, 0.5, [3001]"],
    "normal.Tensor_float": ["T(3, 4), 2.0", "T(60, 51)"],
    "normal.float_Tensor": ["1.0, P(3, 4)"],
    "normal.Tensor_Tensor": ["T(3, 4), P(3, 4)", "T(60, 51), P(60, 51)"],
    "randint": ["10, [3, 4]", "2**40, [3001]", "100, [3001], dtype=int32"],
    "randint.low": ["-5, 10, [3, 4]", "-5, 10, [3001], dtype=float32"],
    "randint_like": ["T(3, 4), 10", "I(3, 60, 51), 100"],
    "randint_like.low_dtype": ["T(3, 4), -10, 10", "I(3, 60, 51), 2, 100"],
    "randperm": ["7", "3001", "40, dtype=int32", "100000"],
    "bernoulli": ["U(3, 4)", "U(60, 51)"],
    "bernoulli.p": ["T(3, 4), 0.3", "T(60, 51), 0.7"],
    "multinomial": ["P(5), 3", "P(4, 30), 10", "P(4, 30), 100, True"],
    "native_dropout": ["T(3, 4), 0.5, True", "T(60, 51), 0.2, True"],
    "dropout": ["T(3, 4), 0.5, True", "T(60, 51), 0.2, True"],
    "dropout_": ["T(3, 4), 0.5, True", "T(60, 51), 0.2, True"],
    "feature_dropout": ["T(6, 30, 4), 0.5, True"],
    "feature_dropout_": ["T(6, 30, 4), 0.5, True"],
    "alpha_dropout": ["T(3, 4), 0.5, True", "T(60, 51), 0.2, True"],
    "alpha_dropout_": ["T(60, 51), 0.2, True"],
    "feature_alpha_dropout": ["T(6, 30, 4), 0.5, True"],
    "feature_alpha_dropout_": ["T(6, 30, 4), 0.5, True"],
    "rrelu": ["T(3, 4), 0.1, 0.3, True", "T(60, 51), 0.1, 0.3, True"],
    "rrelu_": ["T(60, 51), 0.1, 0.3, True"],
}


def samples_of(name):
    return [*ROWS[name].samples, *RANDOM_SAMPLES.get(name, ())]


def compared(name, against):
    """What is compared of the row's results with those of PyTorch there."""
    if "random" not in ROWS[name].flags:
        return COMPARED
    return SHAPES if name in OTHER_STREAM or against == "cpu" else STREAM


def place(name, call, device):
    """The call, told its device where none of its tensors says it."""
    takes_device = any(p.name == "device" for p in ROWS[name].schema.parameters)
    if takes_device and "device" not in call.kwargs and not list(call.tensors()):
        call.kwargs["device"] = device
    return call


def of_elements(error):
    return bool(OF_ELEMENTS.search(error.get("text", "")))


def fails(torch):
    """Whether the device does nothing for the library any more."""
    try:
        torch.empty(1, device="cuda").fill_(1).tolist()
    except Exception:  # noqa: BLE001
        return True
    return False


class OnDevice:
    """Calls of one operator on the device with wick, with PyTorch there or, `against` "cpu", on the CPU."""

    def __init__(self, name, wick, torch, functions, against, texts):
        self.name, self.wick, self.torch, self.against, self.texts = name, wick, torch, against, texts
        self.ours_fn, self.theirs_fn, self.public = functions
        self.values = compared(name, against)
        self.ended = False  # the device is of no more use to this process
        self.refused = False  # the last call is one that PyTorch's kernels would assert, or did, and wick refuses

    def give(self, torch, function, call, device):
        values = SHAPES if self.values == STREAM and device == "cpu" else self.values
        found = outcome(torch, function, place(self.name, call, device), values, device)
        if self.against == "cpu":
            apart = ["device"] + ["inputs"] * (self.values == SHAPES) + ["strides"] * (self.name in OWN_LAYOUT)
            for key in apart:
                found.pop(key, None)
        return found

    def compare(self, copies):
        """(kind of difference or None, ours, theirs, the CPU's where it is another) of three copies of a call."""
        self.refused = False
        ours = self.give(self.wick, self.ours_fn, next(copies), "cuda")
        on_cpu = self.give(self.torch, self.theirs_fn, next(copies), "cpu")
        if of_elements(on_cpu):
            self.refused = "error" in ours
            kind = None if self.refused or not self.public else "we accept"
            return kind, ours, on_cpu, None
        if self.against == "cpu":
            return difference(ours, on_cpu, self.public, self.texts), ours, on_cpu, None
        theirs = self.give(self.torch, self.theirs_fn, next(copies), "cuda")
        return self.verdict(ours, theirs, on_cpu), ours, theirs, on_cpu

    def verdict(self, ours, theirs, on_cpu):
        texts = ours.get("text", "") + theirs.get("text", "")
        if "CUDA" in texts and fails(self.torch):
            self.ended = True
            if "assert" not in theirs.get("text", ""):
                return "the device fails"
            self.refused = "error" in ours
            return None if self.refused else "we accept an assert"
        kind = difference(ours, theirs, self.public, self.texts)
        if kind is None or (OF_NAMES.search(theirs.get("text", "")) and ours.get("error") == "TypeError"):
            return None
        ours, on_cpu = ({k: v for k, v in side.items() if k not in ("device", "next")} for side in (ours, on_cpu))
        same = self.values == COMPARED and difference(ours, on_cpu, self.public, False) is None
        return f"{kind} as on the cpu" if same else kind
