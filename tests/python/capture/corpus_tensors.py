"""Arithmetic, shapes, views, indexing, dtypes; in-place operators, aliases and mutation of what was given."""

# ruff: noqa: E741

from capture_harness import Box, Corpus, numbers

import wick
from wick.nn import functional as F

case = Corpus()


# ==== arithmetic ====


@case
def add_and_multiply(x, y):
    return x * 2 + y


@case
def all_operators(x, y):
    return x + y, x - y, x * y, x / (y + 3), x // 0.7, x % 0.7, (x + 3) ** 2, -x, +x, abs(x)


@case
def reflected(x):
    return 1 + x, 1 - x, 2 * x, 1 / (x + 3), 2**x


@case
def comparisons(x, y):
    return x < y, x <= y, x > y, x >= y, x == y, x != y, x < 0.5


@case
def bits(i, b):
    return i & 1, i | 2, i ^ 3, ~i, b & ~b, b | b, b ^ True


@case
def matrix(x, q, v):
    return x @ q, q @ v, x @ v, x.mm(q), q.T @ q


@case
def reductions(x):
    return x.sum(), x.mean(0), x.amax(1), x.sum(dim=-1, keepdim=True), x.std(), x.prod(1), x.norm()


@case
def named_results(x):
    best = x.max(1)
    values, places = x.min(dim=0)
    return best, best[0], values, places


@case
def sort_and_top(x):
    a, b = wick.sort(x, 1)
    return a, b, wick.topk(x, 2), x.argsort(0)


@case
def scalars(x, n, a):
    return x * n + a, x**n, x / n, x + n * a


@case
def scalar_tensor(x, s):
    return x * s, s + 1, s * s


@case
def promotion(x, i):
    return x + i.unsqueeze(1), i / 2, i + 1.5, i * True, x.double() + x


@case
def dtypes(x):
    return x.to(wick.float64), x.int(), x.bool(), x.half().float(), x.type(wick.int16), x.long().float()


@case
def limits_of_dtypes(x):
    info, integers = wick.finfo(x.dtype), wick.iinfo(wick.int8)
    y = (x * 1e30).clamp(info.min / 2, info.max / 2) + info.eps
    return y, info, info.dtype, integers.max, info == wick.finfo(wick.float32), F.rms_norm(x, x.shape[-1:])


@case
def same_dtype(x):
    return x.to(wick.float32), x.float(), x.contiguous(), x.cpu()


@case
def functions(x):
    return wick.exp(x), wick.sin(x), wick.sigmoid(x), F.gelu(x), F.softmax(x, dim=1), wick.tanh(x)


@case
def where_and_clamp(x, y):
    return wick.where(x > 0, x, y), x.clamp(-1, 1), x.clamp(min=0), wick.maximum(x, y)


@case
def out_of_many(x, y, z):
    return wick.cat([x, y, z]), wick.stack([x, y]), wick.cat((x, y), dim=1)


@case
def linear_layers(x, q, v):
    return F.linear(x, q, v), F.linear(x, q), wick.addmm(v, x, q)


@case
def made_inside(x):
    return x + wick.ones(4), wick.zeros(2, 2), wick.arange(3), wick.full((2,), 1.5), wick.eye(2)


@case
def like(x):
    return wick.zeros_like(x), wick.ones_like(x) * 2, x.new_zeros(2), wick.full_like(x, 3)


@case
def tensor_of_numbers(x):
    t = wick.tensor([1.0, 2.0, 3.0, 4.0])
    t.add_(1)
    return x + t, t


@case
def tensor_of_arguments(x, n, a):
    return x * wick.tensor([n, a, 1.0, 2.0])


@case
def linspace_of_shape(x):
    return wick.linspace(0, 1, x.shape[1]) * x


@case
def nan_and_infinity(x):
    return x / 0, (x - x) / 0, wick.log(x), -wick.zeros(2)


@case
def long_chain(x):
    for k in range(20):
        x = x * 0.5 + k
        x = wick.tanh(x)
    return x


@case
def unused(x, y):
    _ = x * y
    return x + 1


@case
def nothing_to_do(x):
    return x


@case
def constant_result(x):
    return 3


@case
def none_result(x):
    x + 1


@case
def shapes(x):
    return x.shape, x.size(0), x.dim(), x.numel(), len(x), x.stride(), x.dtype, x.device, x.ndim, x.is_contiguous()


@case
def shape_arithmetic(x):
    r, c = x.shape
    return x.reshape(r * c), x.reshape(c, -1), x.view(1, *x.shape), r + c


@case
def numbers_of_shape(x):
    return x * x.shape[0] / x.size(-1)


# ==== views ====


@case
def views(x):
    return x[0], x[:, 1], x[1:], x.t(), x.view(-1), x.unsqueeze(0), x[None], x[..., 0], x.transpose(0, 1)


@case
def view_of_view(x):
    return x[1:][0][2:], x.t()[1:].t(), x.unsqueeze(0).squeeze(0)


@case
def same_view_twice(x):
    a = x[0]
    return a, a, x[0]


@case
def split_and_chunk(x):
    a, b = x.chunk(2, dim=1)
    c, d = x.split([1, 3], dim=1)
    return a + b, c, d, x.unbind(0)[0], wick.split(x, 2, 1)


@case
def unpacked_rows(q):
    a, b, c, d = q
    return a + b * c, d


@case
def iterated_rows(q):
    total = wick.zeros(4)
    for row in q:
        total = total + row
    return total


@case
def expanded(v):
    return v.expand(2, 4), v.expand(2, 4) + 1, v.repeat(2), v[:, None].expand(-1, 2)


@case
def permuted(x):
    return x.permute(1, 0), x.permute(1, 0).contiguous(), x.flip(0), x.roll(1, 1), x.movedim(0, 1)


@case(captures=3, breaks=2)
def index_forms(x, i, b):
    return x[i], x[b], x[i, 0], x[1:, ::2], x[[0, 1]], x[-1], x[i % 2 == 0]


@case
def gathered(x, i):
    return x.gather(1, i.unsqueeze(1)), x.index_select(0, i), wick.take_along_dim(x, i[:, None], 1)


@case
def masked(x, b):
    return x.masked_fill(b, 0), wick.where(b, x, 0.0), x * b


@case
def diagonal_and_triangles(q):
    return q.diagonal(), q.tril(), q.triu(1)


@case
def squeezed(x):
    return x[:1].squeeze(), x[:1].squeeze(0), x[:, :1].squeeze(1), x[None, None].flatten(1)


@case
def negative_axes(x):
    return x.sum(-1), x.transpose(-1, -2), x.select(-1, 0), x.narrow(-1, 1, 2)


# ==== in-place ====


@case
def add_in_place(x):
    x.add_(1)
    return x


@case
def operators_in_place(x, y):
    x += y
    x *= 2
    x -= 1
    x /= 4
    return x


@case
def in_place_of_own(x):
    t = x + 1
    t.mul_(2)
    t += x
    return t


@case
def write_through_view(x):
    x[0].add_(5)
    x[:, 1] = 0
    return x.sum()


@case
def write_base_read_view(x):
    row = x[0]
    x.mul_(3)
    return row + 1, row


@case
def write_view_read_base(x):
    own = x * 1
    column = own[:, 1]
    column.zero_()
    own[1:].mul_(2)
    return own, column


@case
def views_of_own_returned(x):
    own = x * 2
    return own, own[0], own.t(), own.view(-1)[2:]


@case
def set_items(x, v):
    x[0] = v
    x[1, 2] = 7
    x[..., 3] = 1.5
    x[x > 1] = -1
    return x


@case
def set_by_index(x, i):
    own = wick.zeros_like(x)
    own[i] = x
    own[i, 0] += 1
    return own


@case
def index_in_place(x, i):
    x.index_add_(0, i, wick.ones_like(x))
    x.scatter_(1, i[:, None], 9.0)
    x.masked_fill_(x > 3, 0.25)
    return x.clone()


@case
def copies(x, y):
    x.copy_(y)
    y.fill_(2)
    return x + y


@case
def swap_contents(x, y):
    t = x.clone()
    x.copy_(y)
    y.copy_(t)


@case
def in_place_twice(x, y):
    x.add_(y)
    y.add_(x)
    x.add_(y)
    return x * y


@case
def read_then_write(x):
    before = x * 1
    x.zero_()
    after = x * 1
    return before, after


@case
def old_value_kept(x):
    old = x.clone()
    x.add_(old)
    return old


@case(inputs=lambda k: (t := numbers(k, 3, 4), t))
def same_argument_twice(x, y):
    x.add_(1)
    return x * y, x is y


@case(inputs=lambda k: (t := numbers(k, 4, 4), t[1:]), captures=2, breaks=1)
def argument_is_view_of_other(x, y):
    x.mul_(2)
    y.add_(1)
    return x.sum(), y.sum()


@case(inputs=lambda k: (t := numbers(k, 4, 4), t.t()), captures=2, breaks=1)
def argument_is_transposed_other(x, y):
    y[0] = 1
    return x + y


@case(inputs=lambda k: (t := numbers(k, 6), t[:4], t[2:]), captures=2, breaks=1)
def overlapping_arguments(x, y, z):
    y.add_(1)
    z.mul_(2)
    return x * 1, y + z


@case(inputs=lambda k: (t := numbers(k, 4, 4), t[0], t[0]), captures=3, breaks=2)
def two_equal_views(x, y, z):
    y.add_(z)
    x.add_(1)
    return z * 2


@case
def own_view_filled(x, y):
    own = x.clone()
    view = own.view(-1)
    view.copy_(y.t().t().reshape(-1))
    z = y * 2
    own.t().copy_(z.t())
    return own, view, y, z


@case
def argument_view_returned(x):
    x.add_(1)
    return x[0], x.view(-1)


@case
def detached(g):
    t = g.detach()
    return t + 1, t, t.requires_grad


@case
def data_attribute(x):
    return x.data + 1


@case
def as_strided(x):
    return wick.as_strided(x, (2, 2), (1, 2)) + 1


@case
def set_attribute_of_box(x):
    b = Box(t=x)
    b.t = b.t + 1
    b.t += 1
    return b.t, b


@case
def in_place_in_loop(x, n):
    for k in range(n):
        x.add_(k)
        x[k].mul_(2)
    return x


@case
def out_argument(x, y):
    z = wick.empty_like(x)
    wick.add(x, y, out=z)
    return z


@case
def out_argument_of_caller(x, y, z):
    wick.mul(x, y, out=z)
    return z


@case
def resize_free_functions(x):
    return F.one_hot(wick.arange(3), 4), wick.cumsum(x, 1), F.relu(x, inplace=False)


@case
def zero_size(x):
    e = x[:0]
    return e, e.sum(), wick.cat([e, x]), e * 2


@case
def equal_numbers_of_types(x):
    return x * 1, x * 1.0, x * True


@case
def is_tests(x, y):
    return x is y, x is x, x[0] is x[0], x is not None


@case
def identity_kept(x, y):
    pair = [x, y]
    return pair[0], x, pair


@case
def contiguous_is_self(x):
    t = x.contiguous()
    return t is x, t


@case(inputs=lambda k: (numbers(k, 4, 3).t(),))
def not_contiguous_argument(x):
    return x + 1, x.contiguous(), x.is_contiguous(), x.reshape(-1)


@case(inputs=lambda k: (numbers(k, 3, 4).double(), k < 2))
def double_argument(x, flag):
    return x + 1, x.float() if flag else x


@case(inputs=lambda k: (wick.arange(6).reshape(2, 3) + k, wick.tensor([True, False, k < 2])), captures=2, breaks=1)
def integer_arguments(x, y):
    return x * 2, x // 2, x[:, y], y.sum(), x.float().mean()


@case(inputs=lambda k: (numbers(k, 2, 3, 4), numbers(k, 2, 4, 2, salt=1)))
def batched_products(x, y):
    return wick.bmm(x, y), x @ y, wick.matmul(x[0], y)


# ==== a device without bytes ====


@case
def without_bytes(x):
    y = (x + 1).to("meta")
    z = y.view(-1) * 2
    return tuple(y.shape), z.shape, str(z.device), z.dtype, (z + 1).sum().shape


@case
def made_without_bytes():
    t = wick.ones(2, 3)
    y = t.to("meta")  # noqa: F841


@case
def written_without_bytes(x):
    y = wick.empty_like(x, device="meta")
    y.add_(1)
    y[0] = 2
    return y.stride(), y.is_meta, y.requires_grad


# ==== a tensor becomes its view ====


@case
def becomes_its_view(x, q):
    y = x * 2
    y.t_()
    z = q + 1
    z.unsqueeze_(0).squeeze_().transpose_(0, 1)
    return y, z, y.shape, y.stride(), z @ x.T, y.t_() is y


@case
def becomes_a_view_beside_others(x):
    y = x * 2
    z = y.view(-1)
    before = y[0]
    y.t_()
    y.mul_(2)
    z[1] = 7
    y[0] = before[0]
    return y, z, before


@case
def a_view_becomes_another(x):
    y = x + 1
    z = y[:2]
    z.t_()
    z.add_(x[:2].t())
    z.unsqueeze_(1)
    return y, z


@case
def becomes_its_view_with_a_history(g, x):
    y = g * x
    y.t_()
    y.unsqueeze_(0)
    z = y * y
    z.squeeze_(0)
    z.mul_(2)
    return y.sum(), z


@case
def becomes_its_view_and_is_differentiated(g, x):
    y = (g * x).t_()
    (slope,) = wick.autograd.grad((y.exp() * y).sum(), [g])
    return slope


# The third call gets what the second has left: another capture.


@case(captures=2)
def an_input_becomes_its_view(x):
    x.t_()
    return x + 1


@case(captures=2)
def an_input_becomes_a_view_and_is_written(x, y):
    before = x[0]
    z = x * 2
    x.transpose_(0, -1).mul_(2)
    x.unsqueeze_(0)
    x += 1
    y.transpose_(0, 1).add_(x.sum())
    return before, z, x.shape, x.stride(), x[0].sum(), y.squeeze_() is y


@case(captures=2, again=False)
def inputs_become_views_and_others_look_at_them(ts, o):
    for t in ts:
        t.t_()
    view = ts[0][1:]
    o.value.unsqueeze_(0)
    ts[0].zero_()
    return view, ts[1] @ ts[1].t(), o.value.shape, o.value * 2


@case(captures=2, again=False)
def a_buffer_becomes_its_view(m, x):
    m.seen.unsqueeze_(0)
    m.seen.squeeze_()
    return m(x) + m.seen


def computed_inputs(turn):
    return (numbers(turn, 3, 4).requires_grad_() * 2, numbers(turn, 4, 3))


@case(captures=2, inputs=computed_inputs)
def an_input_with_a_history_becomes_its_view(y, x):
    z = y * 3
    y.transpose_(-2, -1)
    y.unsqueeze_(0)
    return y * x.sum(), z, (y * y).sum()


@case(captures=4, breaks=2, inputs=lambda k: (numbers(k, 4, 3).requires_grad_()[:2] if k < 2 else numbers(k, 4, 4), 1))
def a_view_with_a_history_becomes_another(y, n):
    with wick.no_grad():
        z = y * n
    y.t_()
    return y * 2, z


@case(captures=0, raises=True)
def an_input_cannot_become_that(x):
    x.unsqueeze_(0)
    try:
        x.t_()
    except RuntimeError as error:
        y = str(error)
    x.squeeze_(0).transpose_(0, 2)
    return x + 1, y


@case
def cannot_become_that(x):
    y = x[None] * 2
    try:
        y.t_()
    except RuntimeError as error:
        return y, str(error)


# ==== conversions and operators by their names ====


@case
def to_bfloat16(x, g):
    return x.bfloat16() + 1, g.bfloat16().float() * 2


@case
def operators_as_methods(x, i, y):
    power = (i + 1).__rpow__
    a = x.__abs__().__add__(1)
    a = a.__iadd__(2).__imul__(3).__isub__(y).__itruediv__(2)
    ints = i.__and__(1), i.__rand__(3), i.__or__(4), i.__xor__(1), i.__lshift__(1), i.__rshift__(1), i.__invert__()
    return a, a.__rtruediv__(2), a.__mod__(2), a.__rmod__(7), a.__floordiv__(2), a.__rfloordiv__(9), power(2), ints


@case
def a_bound_operator_is_kept(i):
    return i.__rand__, i.__rand__(3)


@case
def operators_of_aten(x, y, q):
    aten = wick.ops.aten
    z = aten.mul.Tensor(x, y)
    aten.add_.Tensor(z, x, alpha=2)
    return aten.relu.default(z), aten.mm(x, q), aten.sum.dim_IntList(z, [1]), aten.add(z, y), aten.relu.overloads()


@case
def an_operator_of_aten_that_is_not_there(x):
    try:
        return wick.ops.aten.relu.nothing(x)
    except AttributeError as error:
        return x, str(error)


# ==== data ====


@case
def data_is_read(x, g):
    y = g * 2
    return x.data + 1, y.data * x, g.data.mean(), y, x.data.requires_grad


@case
def data_is_returned(g, x):
    y = g * x
    return y.data, y, y.data is y, g.data, x.data, x.data[0]


@case
def data_sees_what_is_written(x):
    y = x * 2
    z = y.data
    y.add_(1)
    x.mul_(3)
    return y, z, x.data


# ==== attributes ====


@case
def attributes_of_tensors(x, g):
    y = x * 2
    y.name = "y"
    y.parts = [x, y + 1]
    z = g * y
    z.source = y
    z.count = 1
    z.count += 1
    return z, z.source.name, hasattr(y, "no"), getattr(y, "no", 3), z.count


@case(captures=2)
def attributes_of_inputs(x, p):
    if not hasattr(x, "seen"):
        x.seen = 0
    x.seen += 1
    p.scale = getattr(p, "scale", 1.0) * 2
    x.last = x * p.scale
    return x.last + 1, x.seen


def tagged(k):
    x = numbers(k, 3)
    x.weight = numbers(k, 3, salt=1)
    x.kind = "even" if k % 2 == 0 else "odd"
    return (x,)


@case(captures=1, inputs=tagged, again=False)
def attributes_from_outside(x):
    return x * x.weight if x.kind == "even" else x + x.weight


@case
def similar(x, v):
    return F.cosine_similarity(x, v, dim=1), wick.result_type(x, 2.0), wick.can_cast(wick.int64, x.dtype)


@case
def rows_of_bounded_norm(i, q):
    return F.embedding(i, q, max_norm=1.0), q
