"""Statements of random programs (fuzz.py) about objects of libraries: deques and weak containers from outside, hooks,
optimizers, checkpoints, loops that carry something from row to row, lists of numbers that differ from call to call, functions
of C code that C code calls, and attributes of classes."""


class Objects:
    def deque_(self):
        t = self.random.choice(self.tensors)
        self.line("if not hasattr(o, 'queue'):")
        self.line(f"    o.queue = collections.deque({self.pick('[1, 2]', '()', '[x]')}, {self.pick('None', '3', '2')})")
        for _ in range(self.random.randint(1, 3)):
            self.line(
                self.pick(
                    f"o.queue.append({self.tensor(2)})",
                    f"o.queue.appendleft({self.integer()})",
                    f"o.queue.append(Falls(log, {t}))",
                    f"o.queue.extend([{self.number()}, {t}])",
                    f"o.queue.extendleft(({t}, n))",
                    f"o.queue.rotate({self.pick('1', '-1', 'n')})",
                    "kept.append(o.queue.pop() if o.queue else 0)",
                    "log.append(type(o.queue.popleft() if o.queue else 0).__name__)",
                    "o.queue.clear()",
                    "o.queue.reverse()",
                    "kept.append((len(o.queue), o.queue.maxlen))",
                    "kept.append([type(v).__name__ for v in o.queue])",
                    f"kept.append(any(v is {t} for v in o.queue))",
                    "kept.append(o.queue[0] if o.queue and isinstance(o.queue[0], int) else 'other')",
                    f"o.queue[-1:] and o.queue.__setitem__(-1, {t})"
                    if self.chance(0.2)
                    else "kept.append(bool(o.queue))",
                    "while len(o.queue) > 2:\n" + "    " * (self.depth + 1) + "o.queue.popleft()",
                    "log.append(o.queue.count(1))" if self.chance(0.2) else "log.append(len(o.queue))",
                )
            )

    def weak(self):
        t, name = self.random.choice(self.tensors), self.name("w")
        kind, made = self.pick(("by_value", "Value"), ("by_key", "Key"), ("members", "Set"))
        place = f"o.{kind}"
        self.line(f"if not hasattr(o, '{kind}'):")
        self.line(f"    {place} = weakref.{'WeakSet' if made == 'Set' else f'Weak{made}Dictionary'}()")
        self.line("    o.strong = getattr(o, 'strong', [])")
        self.line(f"{name} = Cell({t}, len(log))")
        put = {"by_value": f"{place}[n] = {name}", "by_key": f"{place}[{name}] = n", "members": f"{place}.add({name})"}
        self.line(put[kind])
        self.line(self.pick(f"o.strong.append({name})", "o.strong.clear()", "pass", "del o.strong[:1]"))
        self.line(self.pick(f"del {name}", f"{name} = None", f"kept.append({name}.half)", "pass"))
        look = {
            "by_value": (f"kept.append(n in {place})", f"kept.append(sorted({place}))", f"{place}.pop(n, None)"),
            "by_key": (f"kept.append(len({place}))", f"kept.append(sorted({place}.values()))", f"kept.append(bool({place}))"),
            "members": (f"kept.append(len({place}))", f"kept.append(sorted(c.k for c in {place}))", f"{place}.clear()"),
        }  # fmt: skip
        self.line(self.pick(*look[kind]))

    def hook(self):
        t, name = self.random.choice(self.tensors), self.name("h")
        does = self.pick("g * 2", f"g + {self.number()}", "log.append('hook')", "kept.append(g.sum())", "None")
        if self.chance(0.4):
            self.line("if not hasattr(o, 'net'):")
            self.line("    o.net = wick.nn.Linear(4, 4)")
            hooked = self.pick("forward_hook(lambda m, i, r: {})", "forward_pre_hook(lambda m, i: {})")
            self.line(f"{name} = o.net.register_{hooked.format(self.pick('log.append(len(log))', 'None'))}")
            self.line(f"{t} = {t} + o.net({t}).sum()" if self.chance(0.5) else f"kept.append(o.net({t}))")
            self.line(f"{name}.remove()")
            return
        self.line(f"{name} = {t}.detach().clone().requires_grad_()")
        self.line(f"of{name} = {self.pick(name, f'({name} * 1)')}")
        self.line(f"handle{name} = of{name}.register_hook(lambda g: {does})")
        self.line(self.pick(f"handle{name}.remove()", "pass", "pass"))
        self.line("with wick.enable_grad():")
        self.line(f"    (of{name} * {self.number()}).sum().backward()" if name else "pass")
        self.line(f"kept.append({name}.grad)")

    def optimizer(self):
        t = self.random.choice(self.tensors)
        kind = self.pick(
            "SGD([o.p], lr=0.1)", "SGD([o.p], lr=0.1, momentum=0.9)", "Adam([o.p])", "AdamW([o.p], lr=0.1)"
        )
        self.line("if not hasattr(o, 'p'):")
        self.line("    o.p = wick.nn.Parameter(wick.ones(4))")
        self.line(f"    o.opt = wick.optim.{kind}")
        self.line("with wick.enable_grad():")
        self.line(f"    ((o.p * {t}.detach()) ** 2).sum().backward()")
        self.line(self.pick("o.opt.step()", "o.opt.step()", f"o.opt.param_groups[0]['lr'] = {self.number()}"))
        self.line(self.pick("o.opt.zero_grad()", "o.opt.zero_grad(set_to_none=False)", "pass"))
        self.line(f"kept.append(o.p.detach() * 1 + {t}.sum())")

    def checkpoint_(self):
        t, name = self.random.choice(self.tensors), self.name("c")
        does = self.pick("log.append(len(log))", "None", "kept.append(1)", "print('again')", "wick.rand(1)")
        self.line(f"{name} = {t}.detach().clone().requires_grad_()")
        self.line("with wick.enable_grad():")
        self.line(
            f"    r{name} = checkpoint(lambda u: ({does}, wick.sin(u * {self.number()}))[1], {name}, use_reentrant=False)"
        )
        self.line(self.pick(f"    r{name}.sum().backward()", f"    kept.append(r{name})"))
        self.line(f"kept.append({name}.grad)")

    def scan(self):
        t, name = self.random.choice(self.tensors), self.name("s")
        self.line(f"{name} = {t}[0] * 1")
        step = self.pick(f"{name} * 0.5 + row", f"wick.tanh({name} + row)", f"{name} * {self.number()} - row")
        loop = self.pick(
            f"row in {t}", f"row in {t}.unbind(0)", f"k, row in enumerate({t})", f"row in [{t}[0], {t}[-1]]"
        )
        self.line(f"for {loop}:")
        self.line(f"    {name} = {step}")
        if self.chance(0.3):
            self.line(f"    if {self.condition()}:")
            self.line(f"        {self.pick('break', 'continue')}")
        self.line(f"kept.append({name})")

    def rates(self):
        t = self.random.choice(self.tensors)
        self.line(f"o.rates = {self.pick('[a, 0.5]', '(a, n)', '[[a], [n, 0.5]]', '[(a, 1), (0.25, n)]')}" if self.chance(0.3)
                  else "o.rates = getattr(o, 'rates', [a, 0.5])")  # fmt: skip
        self.line(
            self.pick(
                f"for v in o.rates:\n{'    ' * (self.depth + 1)}kept.append({t} * (v if isinstance(v, (int, float)) else v[0]))",
                f"one, two = o.rates\n{'    ' * self.depth}kept.append([{t} * 1, one, two])",
                "kept.append([v for v in o.rates])",
                f"kept.append(sum({t} * (v if isinstance(v, (int, float)) else v[-1]) for v in o.rates))",
                "kept.append(list(iter(o.rates)))",
                f"kept.append({t} + (o.rates[0] if isinstance(o.rates[0], (int, float)) else o.rates[0][0]))",
                "if isinstance(o.rates, list):\n" + "    " * (self.depth + 1) + f"o.rates[0] = {self.number()}",
                "kept.append(str(o.rates))",
            )
        )

    def of_class(self):
        t, own = self.random.choice(self.tensors), self.pick("Counted", "Further")
        for _ in range(self.random.randint(1, 3)):
            self.line(
                self.pick(
                    f"{own}.count += 1",
                    f"{own}.level = {self.pick('n', 'a', '3', 'len(log)')}",
                    f"setattr({own}, 'last', {self.tensor(2)})",
                    f"{own}.last = Falls(log, {t})" if self.chance(0.3) else f"{own}.last = None",
                    f"kept.append({own}().up())",
                    f"kept.append({own}.note({t} * 1))",
                    f"kept.append({t} * {own}.level)",
                    f"kept.append({t} + {own}().count)",
                    f"kept.append([type({own}.last).__name__, {own}.last is None])",
                    "if 'level' in vars(Further):\n" + "    " * (self.depth + 1) + "del Further.level",
                    f"kept.append(hasattr({own}, 'made'))",
                    f"{own}.made = [{t}, n]",
                    f"if hasattr({own}, 'made'):\n" + "    " * (self.depth + 1) + f"{own}.made.append(len({own}.made))",
                    f"{own}.half = lambda self, t: t * 0.5" if self.chance(0.3) else "log.append(Counted.count)",
                    f"kept.append(Further().half({t}) if hasattr(Further, 'half') else 0)",
                )
            )

    def by_c_code(self):
        t = self.random.choice(self.tensors)
        self.line("if not hasattr(o, 'config'):")
        self.line(f"    o.config = Items(rate={self.number()}, t={t})")
        for _ in range(self.random.randint(1, 3)):
            self.line(
                self.pick(
                    f"o.config.rate = {self.number()}",
                    f"o.config.t = {self.tensor(2)}",
                    "o.config.count = o.config.get('count', 0) + 1",
                    f"o.config.seen = {{'rate': {self.number()}}}",
                    "if 'count' in o.config:\n" + "    " * (self.depth + 1) + "del o.config.count",
                    f"kept.append({t} * o.config.rate)",
                    "kept.append(o.config.t * 1)",
                    "log.append(len(o.config.seen))",
                    "list(map(log.append, [n, len(log)]))",
                    "for v in map(log.append, l[:1]):\n" + "    " * (self.depth + 1) + "log.append(v)",
                    "log.append(sum(map(len, [log, kept, l])))",
                    "log.append(max(['rate'], key=o.config.get))",
                    "log.append(list(map(getattr, [o], ['count']))[0])",
                    "kept.append(Scope(log).log_ is log)",
                    "log.append(sorted(map(str, d.keys())))",
                    "kept.extend(map(o.config.get, ['t', 'nothing']))",
                )
            )
