"""Random tile kernels, as text: blocks of several shapes, loops and branches that change them.

python tests/cuda/tile_fuzz.py FIRST COUNT    compares the CPU's interpreter with the CUDA device, bit for bit
"""

import importlib.util
import pathlib
import random
import sys
import tempfile

M, N = 8, 32
SHAPES = {"s": "()", "r": "[M]", "c": "[N]", "t": "[M, N]"}  # the first letter of a name says its shape


class Writer:
    def __init__(self, seed):
        self.random, self.lines, self.names = (
            random.Random(seed),
            [],
            {"s": ["s0", "s1"], "r": ["r0"], "c": ["c0"], "t": ["t0", "t1"]},
        )
        self.kinds = {"s0": "f", "s1": "i", "r0": "f", "c0": "i", "t0": "f", "t1": "i"}
        self.count = 2

    def say(self, depth, line):
        self.lines.append("    " * depth + line)

    def pick(self, shape, kind=None):
        names = [n for n in self.names[shape] if kind is None or self.kinds[n] == kind]
        return self.random.choice(names) if names else None

    def value(self, kind):
        """(an expression, its shape)"""
        r = self.random
        shape = r.choice("srcttt")
        a, b = self.pick(shape, kind), self.pick(shape, kind)
        if a is None:
            a = b = self.pick("t", kind)
            shape = "t"
        choice = r.randrange(10)
        if choice < 3:
            op = r.choice(["+", "-", "*"])
            return f"({a} {op} {b})", shape
        if choice == 3 and shape in "rc":
            other = self.pick("t", kind)
            return (f"({a}[:, None] + {other})" if shape == "r" else f"({other} * {a}[None, :])"), "t"
        if choice == 4 and shape == "t":
            axis = r.randrange(2)
            return f"tl.{r.choice(['sum', 'max', 'min'])}({a}, {axis})", "c" if axis == 0 else "r"
        if choice == 5 and shape in "rc":
            return f"tl.{r.choice(['sum', 'max'])}({a}, 0)", "s"
        if choice == 6:
            return f"tl.where({a} > {b}, {a}, {b} + 1)", shape
        if choice == 7 and shape == "t":
            return f"tl.trans(tl.trans({a}) + tl.trans({b}))", shape
        if choice == 8 and kind == "f":
            return f"tl.{r.choice(['sigmoid', 'abs', 'floor'])}({a})", shape
        if choice == 9 and kind == "i":
            return f"({a} & 255)", shape
        return f"tl.maximum({a}, {b})", shape

    def assign(self, depth, fresh):
        kind = self.random.choice("fi")
        text, shape = self.value(kind)
        old = [n for n in self.names[shape] if self.kinds[n] == kind and n not in ("s0",)]
        if not fresh and not old:
            self.say(depth, "pass")
            return
        if fresh:
            name = f"{shape}{self.count}"
            self.count += 1
            self.names[shape].append(name)
            self.kinds[name] = kind
        else:
            name = self.random.choice(old)
        limit = "{} & 1023" if kind == "i" else "tl.minimum(tl.maximum({}, -64.0), 64.0)"
        self.say(depth, f"{name} = {limit.format(text)}")

    def block(self, depth, count):
        for _ in range(count):
            choice = self.random.randrange(8) if depth < 4 else 0
            if choice < 5:
                self.assign(depth, depth == 1)
            elif choice == 5:
                self.say(depth, f"for i{depth} in range({self.random.randrange(2)}, s1 % 3):")
                self.block(depth + 1, self.random.randrange(1, 4))
            elif choice == 6:
                self.say(depth, f"if {self.pick('s')} > {self.random.randrange(3)}:")
                self.block(depth + 1, self.random.randrange(1, 3))
                if self.random.random() < 0.6:
                    self.say(depth, "else:")
                    self.block(depth + 1, self.random.randrange(1, 3))
            else:
                a, b = self.pick("t", "f"), self.pick("t", "f")
                self.say(depth, f"{a}, {b} = {b}, {a}") if a != b else self.assign(depth, False)

    def text(self):
        self.say(0, "@triton.jit")
        self.say(0, "def kernel(floats, integers, out, M: tl.constexpr, N: tl.constexpr):")
        self.say(1, "rows, columns = tl.arange(0, M), tl.arange(0, N)")
        self.say(1, "t0 = tl.load(floats + rows[:, None] * N + columns[None, :])")
        self.say(1, "t1 = tl.load(integers + rows[:, None] + columns[None, :] * M)")
        self.say(1, "r0, c0 = tl.load(floats + rows), tl.load(integers + columns)")
        self.say(1, "s0, s1 = tl.load(floats), tl.load(integers + tl.program_id(0)) & 3")
        self.say(1, "out += tl.program_id(0) * 4096")
        self.block(1, 9)
        for name in [n for names in self.names.values() for n in names]:
            places = {
                "s": "out",
                "r": "out + rows",
                "c": "out + columns",
                "t": "out + rows[:, None] * N + columns[None, :]",
            }
            self.say(1, f"tl.store({places[name[0]]}, {name})")
            self.say(1, f"out += {dict(s=1, r=M, c=N, t=M * N)[name[0]]}")
        return "import wick.tiles as triton\nimport wick.tiles.language as tl\n\n\n" + "\n".join(self.lines) + "\n"


def compare(seed, folder):
    import wick as torch

    writer = Writer(seed)
    path = pathlib.Path(folder) / f"kernel_{seed}.py"
    path.write_text(writer.text())
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    torch.manual_seed(seed)
    floats, integers = torch.randn(M * N) * 3, torch.randint(0, 1000, (M * N,), dtype=torch.int32)
    results = []
    for device in ("cpu", "cuda"):
        out = torch.zeros(3 * 4096, device=device)
        module.kernel[(3,)](floats.to(device), integers.to(device), out, M=M, N=N, num_warps=2 ** (seed % 4))
        results.append(out.cpu())
    assert torch.equal(*results), (
        f"seed {seed}: {(results[0] != results[1]).nonzero()[:4].tolist()}\n{path.read_text()}"
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        for number in range(int(sys.argv[1]), int(sys.argv[1]) + int(sys.argv[2])):
            compare(number, place)
