"""What one call gives with one library, in plain data, and how two of these differ (random_calls.py makes the calls)."""

from drawn_calls import arguments

TOLERANCE = {"float64": 1e-9, "float32": 1e-4, "float16": 4e-3, "bfloat16": 3e-2}

# What is compared of a random operator's results: nothing but their shape; or, where two generators give the same
# numbers, every bit, and which numbers come next.
COMPARED, SHAPES, STREAM = "compared", "shapes", "stream"


def tensors_in(value):
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors_in(item)


def numbers_in(t):
    """On the host; a gradient that PyTorch has no memory for gets some."""
    return (t.detach().cpu().double() + 0).flatten().tolist()


def shared(t, inputs):
    """Which inputs' memory it lies in, and at which offset."""
    return [(i, t.storage_offset()) for i, x in enumerate(inputs) if
            t.numel() and x.untyped_storage().data_ptr() == t.untyped_storage().data_ptr()]  # fmt: skip


def gradients(torch, results, inputs):
    """Of the sum of results with weights 1, 2, ...; None where nothing flows."""
    total = None
    for t in results:
        if t.requires_grad:
            weights = (torch.arange(t.numel(), dtype=torch.float64) % 7 + 1).reshape(t.shape).to(t.device, t.dtype)
            part = (t * weights).sum()
            total = part if total is None else total + part.to(total.dtype)
    if total is None:
        return None
    leaves = [x for x in inputs if x.requires_grad]
    found = torch.autograd.grad(total, leaves, allow_unused=True)
    return [None if g is None else (tuple(g.shape), str(g.dtype).split(".")[-1], numbers_in(g)) for g in found]


def failure(error):
    return {"error": type(error).__name__, "text": str(error).splitlines()[0] if str(error) else ""}


def forget_errors(torch):
    """What kernels of a call before this one have noted, which failed before it waited for them."""
    try:
        torch.cuda.synchronize()
    except Exception:  # noqa: BLE001, S110
        pass


def outcome(torch, function, call, values=COMPARED, device="cpu"):
    """What the call gives; {"error": ...} when it fails, on a device also when its kernels do."""
    if device != "cpu":
        forget_errors(torch)
    torch.manual_seed(3)
    try:
        args, kwargs, inputs = arguments(torch, call, device)
        result = function(*args, **kwargs)
        found = facts(torch, result, inputs, values)
    except Exception as error:  # noqa: BLE001  compared by the caller
        return failure(error)
    if values == COMPARED:
        try:
            found["gradients"] = gradients(torch, list(tensors_in(result)), inputs)
        except Exception as error:  # noqa: BLE001
            found["gradients"] = type(error).__name__
            found["text"] = failure(error)["text"]
    elif values == STREAM:
        found["next"] = torch.rand(3, device=device).tolist()
    return found


def facts(torch, result, inputs, values):
    """All of it but gradients."""
    results = list(tensors_in(result))
    found = {
        "count": len(results),
        "shape": [tuple(t.shape) for t in results],
        "dtype": [str(t.dtype).split(".")[-1] for t in results],
        "device": [t.device.type for t in results],
        "strides": [t.stride() if t.numel() > 1 else None for t in results],
        "shared": [shared(t, inputs) for t in results],
        "requires_grad": [t.requires_grad for t in results],
        "inputs": [numbers_in(t) for t in inputs],
    }
    if values != SHAPES:
        found["values"] = [numbers_in(t) for t in results]
        if not results:
            found["plain"] = repr(result)
    return found


# ---- comparing ----


def close(a, b, tolerance):
    if len(a) != len(b):
        return False
    for x, y in zip(a, b, strict=True):
        if x != y and not (x != x and y != y) and not abs(x - y) <= tolerance * max(1.0, abs(y)):
            return False
    return True


def all_close(ours, theirs, tolerance):
    return all(close(o, t, tolerance) for o, t in zip(ours, theirs, strict=True))


def gradients_differ(ours, theirs, dtypes):
    if ours is None or theirs is None or isinstance(ours, str) or isinstance(theirs, str):
        return ours != theirs
    tolerance = 4 * max(
        [TOLERANCE.get(d, 0) for d in dtypes] + [TOLERANCE.get(g[1], 0) for g in theirs if g], default=0
    )
    for o, t in zip(ours, theirs, strict=True):
        if (o is None) != (t is None):
            if any((o or t)[2]):  # zeros and None mean the same to whoever adds them up
                return True
        elif o and (o[:2] != t[:2] or not close(o[2], t[2], tolerance)):
            return True
    return False


def errors_differ(ours, theirs, public, texts):
    if not public and ours.get("error") != "IndexError":
        return None  # its callers do not pass what it refuses
    if "error" not in theirs:
        return "we refuse"
    if "error" not in ours:
        return "we accept"
    if ours["error"] != theirs["error"] and public:
        return "error type"
    return "error text" if texts and ours["text"] != theirs["text"] else None


def difference(ours, theirs, public, texts):
    """The first kind of difference, or None."""
    if "error" in ours or "error" in theirs:
        return errors_differ(ours, theirs, public, texts)
    for key in ("count", "shape", "dtype", "device", "strides", "shared", "requires_grad", "plain"):
        if ours.get(key) != theirs.get(key):
            return key
    worst = max([TOLERANCE.get(d, 0) for d in theirs["dtype"]], default=0)
    for key in ("inputs", "values"):
        if not all_close(ours.get(key, ()), theirs.get(key, ()), worst):
            return key
    if "next" in theirs:  # one stream of random numbers
        if not all_close(ours["inputs"] + ours["values"], theirs["inputs"] + theirs["values"], 0):
            return "bits"
        return "next" if ours["next"] != theirs["next"] else None
    return "gradients" if gradients_differ(ours.get("gradients"), theirs.get("gradients"), theirs["dtype"]) else None


def most_apart(ours, theirs):
    """(list, place in it) of the two numbers that differ most."""
    apart = [(distance(a, b), i, k) for i, (o, t) in enumerate(zip(ours, theirs, strict=False)) for
             k, (a, b) in enumerate(zip(o, t, strict=False))]  # fmt: skip
    return max(apart, key=lambda found: found[0], default=(0, 0, 0))[1:]


def distance(a, b):
    """Relative, infinite where one of them is no number."""
    if a == b or (a != a and b != b):
        return 0
    apart = abs(a - b) / max(1.0, abs(b))
    return apart if apart == apart else float("inf")
