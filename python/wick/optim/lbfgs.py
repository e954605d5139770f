"""L-BFGS."""

from .. import _C
from .optimizer import Optimizer, number

__all__ = ["LBFGS"]


def _cubic_minimum(x1, f1, g1, x2, f2, g2, bounds=None):
    """Where the cubic through two points with these values and slopes is least, within the bounds."""
    low, high = bounds if bounds is not None else (min(x1, x2), max(x1, x2))
    d1 = g1 + g2 - 3 * (f1 - f2) / (x1 - x2)
    square = d1**2 - g1 * g2
    if square < 0:
        return (low + high) / 2.0
    d2 = square**0.5
    if x1 <= x2:
        at = x2 - (x2 - x1) * ((g2 + d2 - d1) / (g2 - g1 + 2 * d2))
    else:
        at = x1 - (x1 - x2) * ((g1 + d2 - d1) / (g1 - g2 + 2 * d2))
    return min(max(at, low), high)


def _strong_wolfe(evaluate, t, d, f, g, slope, c1=1e-4, c2=0.9, tolerance_change=1e-9, max_ls=25):
    """(loss, gradient, step, calls) of a step along d that Wolfe's strong conditions accept.

    A point is (t, f, g, slope). First a bracket is found that holds such a step, then it is made smaller.
    """
    span, start = d.abs().max(), (0, f, g, slope)
    bracket, done, before, calls, steps = None, False, start, 0, 0
    point = (t, *evaluate(t, d))
    calls += 1
    while steps < max_ls:
        if point[1] > f + c1 * point[0] * slope or (steps > 1 and point[1] >= before[1]):
            bracket = [before, point]
            break
        if abs(point[3]) <= -c2 * slope:
            bracket, done = [point], True
            break
        if point[3] >= 0:
            bracket = [before, point]
            break
        least, most = point[0] + 0.01 * (point[0] - before[0]), point[0] * 10
        following = _cubic_minimum(*_value(before), *_value(point), bounds=(least, most))
        before, point = point, (following, *evaluate(following, d))
        calls, steps = calls + 1, steps + 1
    if bracket is None:
        bracket = [start, point]
    slow = False
    while not done and steps < max_ls:
        low, high = sorted(bracket, key=lambda p: p[1])
        width = abs(bracket[1][0] - bracket[0][0])
        if width * span < tolerance_change:
            break
        at = _cubic_minimum(*_value(bracket[0]), *_value(bracket[1]))
        ends = [p[0] for p in bracket]
        margin = 0.1 * width
        if min(max(ends) - at, at - min(ends)) < margin:
            if slow or at >= max(ends) or at <= min(ends):
                at = max(ends) - margin if abs(at - max(ends)) < abs(at - min(ends)) else min(ends) + margin
                slow = False
            else:
                slow = True
        else:
            slow = False
        point = (at, *evaluate(at, d))
        calls, steps = calls + 1, steps + 1
        if point[1] > f + c1 * at * slope or point[1] >= low[1]:
            bracket = [low, point]
        else:
            done = abs(point[3]) <= -c2 * slope
            bracket = [point, low if not done and point[3] * (high[0] - low[0]) >= 0 else high]
    best = min(bracket, key=lambda p: p[1])
    return best[1], best[2], best[0], calls


def _value(point):
    return point[0], point[1], float(point[3])


class LBFGS(Optimizer):
    """Newton's method with the inverse Hessian from the last `history_size` steps (Nocedal, 1980).

    step(closure) calls the closure several times; line_search_fn is None or "strong_wolfe".
    """

    def __init__(
        self, params, lr=1, max_iter=20, max_eval=None, tolerance_grad=1e-7, tolerance_change=1e-9, history_size=100,
        line_search_fn=None,
    ):  # fmt: skip
        if isinstance(lr, _C.Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        if not 0.0 <= number(lr):
            raise ValueError(f"Invalid learning rate: {lr}")
        max_eval = max_iter * 5 // 4 if max_eval is None else max_eval
        defaults = {
            "lr": lr, "max_iter": max_iter, "max_eval": max_eval, "tolerance_grad": tolerance_grad,
            "tolerance_change": tolerance_change, "history_size": history_size, "line_search_fn": line_search_fn,
        }  # fmt: skip
        super().__init__(params, defaults)
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")
        self._params = self.param_groups[0]["params"]

    def _gradient(self):
        flat = [p.new_zeros(p.numel()) if p.grad is None else p.grad.reshape(-1) for p in self._params]
        return _C.cat(flat, 0)

    def _move(self, size, direction):
        at = 0
        for p in self._params:
            p.add_(direction[at : at + p.numel()].view_as(p), alpha=number(size))
            at += p.numel()

    def _evaluate(self, closure, start, t, d):
        """(loss, gradient, slope) at a step t along d from where the parameters were."""
        self._move(t, d)
        loss, gradient = float(closure()), self._gradient()
        for p, value in zip(self._params, start, strict=True):
            p.copy_(value)
        return loss, gradient, gradient.dot(d)

    @staticmethod
    def _direction(state, gradient):
        """-H g by the two loops over the kept steps."""
        steps, changes, weights = state["old_stps"], state["old_dirs"], state["ro"]
        q, factors = gradient.neg(), []
        for s, y, w in zip(reversed(steps), reversed(changes), reversed(weights), strict=True):
            factors.append(s.dot(q) * w)
            q.add_(y, alpha=-factors[-1].item())
        d = q.mul(state["H_diag"])
        for s, y, w, factor in zip(steps, changes, weights, reversed(factors), strict=True):
            d.add_(s, alpha=(factor - y.dot(d) * w).item())
        return d

    @staticmethod
    def _remember(state, gradient, size):
        """Keeps the last step and what it changed of the gradient."""
        y, s = gradient.sub(state["prev_flat_grad"]), state["d"].mul(state["t"])
        curvature = y.dot(s)
        if curvature > 1e-10:
            if len(state["old_dirs"]) == size:
                for name in ("old_dirs", "old_stps", "ro"):
                    state[name].pop(0)
            state["old_dirs"].append(y)
            state["old_stps"].append(s)
            state["ro"].append(1.0 / curvature)
            state["H_diag"] = curvature / y.dot(y)

    @_C.no_grad()
    def step(self, closure):
        """One step of up to max_iter iterations; gives the first loss."""
        closure = _C.enable_grad()(closure)
        group, state = self.param_groups[0], self.state[self._params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        first = closure()
        loss, calls, gradient, lr = float(first), 1, self._gradient(), number(group["lr"])
        state["func_evals"] += 1
        if gradient.abs().max() <= group["tolerance_grad"]:
            return first
        for n in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            if state["n_iter"] == 1:
                state.update(d=gradient.neg(), old_dirs=[], old_stps=[], ro=[], H_diag=1)
            else:
                self._remember(state, gradient, group["history_size"])
                state["d"] = self._direction(state, gradient)
            state["prev_flat_grad"], state["prev_loss"], d = gradient.clone(), loss, state["d"]
            t = min(1.0, 1.0 / gradient.abs().sum().item()) * lr if state["n_iter"] == 1 else lr
            slope = gradient.dot(d)
            if slope > -group["tolerance_change"]:
                break
            loss, gradient, t, more = self._advance(closure, group, n, t, d, loss, gradient, slope)
            state["t"] = t
            calls += more
            state["func_evals"] += more
            change = d.mul(t).abs().max()
            if calls >= group["max_eval"] or gradient.abs().max() <= group["tolerance_grad"]:
                break
            if change <= group["tolerance_change"] or abs(loss - state["prev_loss"]) < group["tolerance_change"]:
                break
        return first

    def _advance(self, closure, group, n, t, d, loss, gradient, slope):
        """(loss, gradient, step length, calls) after a step along d."""
        if group["line_search_fn"] is None:
            self._move(t, d)
            if n == group["max_iter"]:
                return loss, gradient, t, 0
            loss = float(closure())
            return loss, self._gradient(), t, 1
        if group["line_search_fn"] != "strong_wolfe":
            raise RuntimeError("only 'strong_wolfe' is supported")
        start = [p.clone() for p in self._params]
        loss, gradient, t, calls = _strong_wolfe(
            lambda t, d: self._evaluate(closure, start, t, d), t, d, loss, gradient, slope
        )
        self._move(t, d)
        return loss, gradient, t, calls
