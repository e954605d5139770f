"""Programs of the kinds that PyTorch's tutorials teach, small: plain, captured in pieces and captured with fullgraph=True
they give the same bits. Each takes what compiles a function or module, and gives results to compare."""

import pytest

import wick as torch
from wick import nn, optim
from wick.autograd import forward_ad
from wick.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, stack_module_state, vjp, vmap
from wick.nn import functional as F
from wick.nn.utils import parametrize, prune

PROGRAMS = []


def program(function):
    PROGRAMS.append(pytest.param(function, id=function.__name__))
    return function


def waves(*shape):
    count = 1
    for size in shape:
        count *= size
    return (torch.arange(count, dtype=torch.float32) * 0.7).sin().reshape(shape)


def trained(compiled, model, loss_of, batches, optimizer=None):
    """Losses of steps, and the parameters in the end."""
    optimizer = optimizer or optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def step(*batch):
        optimizer.zero_grad()
        loss = loss_of(*batch)
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = compiled(step)
    return [step(*batch) for batch in batches], list(model.parameters())


# ---- the first steps ----


@program
def tensors(compiled):
    def f(x):
        y = torch.cat([x, x * 2], dim=1)
        z = torch.stack([y[:, 0], y[..., -1]])
        z[:, 1] = 0
        y.add_(5)
        return y @ y.T, z, y.matmul(y.T).sum().item(), torch.zeros_like(x), x.numpy().sum() > 0, x.T.shape

    f = compiled(f)
    return [f(waves(2, 3) + k) for k in range(3)]


@program
def polynomial_by_hand(compiled):
    a, b, c, d = (torch.tensor(0.1 * k) for k in range(4))
    x = torch.linspace(-3, 3, 50)
    y = x.sin()

    def step(a, b, c, d):
        predicted = a + b * x + c * x**2 + d * x**3
        slope = 2.0 * (predicted - y)
        return [p - 1e-5 * (slope * x**k).sum() for k, p in enumerate((a, b, c, d))]

    step = compiled(step)
    found = [a, b, c, d]
    for _ in range(4):
        found = step(*found)
    return found


@program
def polynomial_by_autograd(compiled):
    weights = [torch.tensor(0.1 * k, requires_grad=True) for k in range(4)]
    x = torch.linspace(-3, 3, 50)

    def step(y):
        loss = (sum(w * x**k for k, w in enumerate(weights)) - y).pow(2).sum()
        loss.backward()
        with torch.no_grad():
            for w in weights:
                w -= 1e-5 * w.grad
                w.grad = None
        return loss.detach()

    step = compiled(step)
    return [step(x.sin()) for _ in range(4)], weights


@program
def network_from_scratch(compiled):
    weights = (waves(6, 3) / 6**0.5).requires_grad_()
    bias = torch.zeros(3, requires_grad=True)

    def log_softmax(x):
        return x - x.exp().sum(-1).log().unsqueeze(-1)

    def step(x, y):
        out = log_softmax(x @ weights + bias)
        loss = -out[range(y.shape[0]), y].mean()
        loss.backward()
        with torch.no_grad():
            weights.sub_(weights.grad * 0.5)
            bias.sub_(bias.grad * 0.5)
            weights.grad.zero_()
            bias.grad.zero_()
        return loss.detach(), (out.argmax(1) == y).float().mean()

    step = compiled(step)
    return [step(waves(5, 6) + k, torch.tensor([0, 1, 2, 1, 0])) for k in range(4)], weights


class Net(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3)
        self.pool = nn.MaxPool2d(2, 2)
        self.second = nn.Conv2d(4, 6, 3)
        self.fc1 = nn.Linear(6 * 2 * 2, 8)
        self.fc = nn.Linear(8, classes)

    def forward(self, x):
        x = self.pool(F.relu(self.first(x)))
        x = self.pool(F.relu(self.second(x)))
        x = torch.flatten(x, 1)
        return self.fc(F.relu(self.fc1(x)))


def images(k, n=4):
    return waves(n, 1, 14, 14) * (k + 1), torch.arange(n) % 3


@program
def image_classifier(compiled):
    model, criterion = Net(), nn.CrossEntropyLoss()
    found = trained(compiled, model, lambda x, y: criterion(model(x), y), [images(k) for k in range(3)])
    model.eval()
    with torch.no_grad():
        return found, compiled(model)(images(0)[0]).argmax(1)


@program
def transfer_learning(compiled):
    model = Net(5)
    for p in model.parameters():
        p.requires_grad = False
    model.fc = nn.Linear(model.fc.in_features, 2)
    optimizer = optim.SGD(model.fc.parameters(), lr=0.1, momentum=0.9)

    def loss_of(x, y):
        with torch.set_grad_enabled(model.training):
            return F.cross_entropy(model(x), y % 2, label_smoothing=0.1)

    return trained(compiled, model, loss_of, [images(k) for k in range(3)], optimizer)


@program
def knowledge_distillation(compiled):
    teacher, student = Net().eval(), nn.Sequential(nn.Flatten(), nn.Linear(196, 3))

    def loss_of(x, y):
        with torch.no_grad():
            wanted = teacher(x)
        given = student(x)
        soft, soft_given = F.softmax(wanted / 2, dim=-1), F.log_softmax(given / 2, dim=-1)
        distilled = torch.sum(soft * (soft.log() - soft_given)) / soft_given.size()[0] * 2**2
        hidden = F.cosine_embedding_loss(given, wanted, target=torch.ones(x.size(0)))
        return 0.25 * distilled + 0.75 * F.cross_entropy(given, y) + hidden

    return trained(compiled, student, loss_of, [images(k) for k in range(3)])


# ---- sequences ----


@program
def characters_classified(compiled):
    class Cell(nn.Module):
        def __init__(self):
            super().__init__()
            self.i2h, self.h2o = nn.Linear(5 + 8, 8), nn.Linear(8, 3)
            self.softmax = nn.LogSoftmax(dim=1)

        def forward(self, x, hidden):
            hidden = torch.tanh(self.i2h(torch.cat((x, hidden), 1)))
            return self.softmax(self.h2o(hidden)), hidden

    model, criterion = Cell(), nn.NLLLoss()

    def step(target, line):
        hidden = torch.zeros(1, 8)
        model.zero_grad()
        for i in range(line.size()[0]):
            output, hidden = model(line[i], hidden)
        loss = criterion(output, target)
        loss.backward()
        for p in model.parameters():
            p.data.add_(p.grad.data, alpha=-0.05)
        return output.detach(), loss.item()

    step = compiled(step)
    return [step(torch.tensor([n % 3]), waves(n, 1, 5)) for n in (2, 3, 4, 3)], list(model.parameters())


@program
def characters_generated(compiled):
    torch.manual_seed(2)
    embedding, cell, head = nn.Embedding(6, 4), nn.GRUCell(4, 8), nn.Linear(8, 6)

    def next_character(i, hidden):
        hidden = cell(embedding(i), hidden)
        scores = head(hidden) / 0.8
        return torch.multinomial(scores.softmax(-1), 1).squeeze(1), hidden

    step = compiled(next_character)
    i, hidden, text = torch.tensor([0]), torch.zeros(1, 8), []
    with torch.no_grad():
        for _ in range(6):
            i, hidden = step(i, hidden)
            text.append(i.item())
    return text, hidden


class Attending(nn.Module):
    def __init__(self, size=8, words=7):
        super().__init__()
        self.embedding, self.encoder = nn.Embedding(words, size), nn.GRU(size, size, batch_first=True)
        self.decoder, self.out = nn.GRU(2 * size, size, batch_first=True), nn.Linear(size, words)
        self.wa, self.ua, self.va = nn.Linear(size, size), nn.Linear(size, size), nn.Linear(size, 1)

    def attend(self, query, keys):
        scores = self.va(torch.tanh(self.wa(query) + self.ua(keys))).squeeze(2).unsqueeze(1)
        weights = F.softmax(scores, dim=-1)
        return torch.bmm(weights, keys), weights

    def forward(self, source, target=None):
        keys, hidden = self.encoder(F.dropout(self.embedding(source), 0.1, self.training))
        word, outputs, maps = torch.zeros(source.size(0), 1, dtype=torch.long), [], []
        for i in range(3):
            context, weights = self.attend(hidden.permute(1, 0, 2), keys)
            output, hidden = self.decoder(torch.cat((self.embedding(word), context), dim=2), hidden)
            outputs.append(self.out(output))
            maps.append(weights)
            word = target[:, i].unsqueeze(1) if target is not None else outputs[-1].topk(1)[1].squeeze(-1).detach()
        return F.log_softmax(torch.cat(outputs, dim=1), dim=-1), torch.cat(maps, dim=1)


@program
def translation_with_attention(compiled):
    torch.manual_seed(3)
    model = Attending()

    def loss_of(source, target):
        return F.nll_loss(model(source, target)[0].view(-1, 7), target.view(-1))

    batches = [(torch.arange(n * 4).reshape(4, n) % 7, torch.arange(12).reshape(4, 3) % 5) for n in (5, 5, 6)]
    found = trained(compiled, model, loss_of, batches, optim.Adam(model.parameters(), lr=0.01))
    with torch.no_grad():
        return found, compiled(model.eval())(batches[0][0])


@program
def transformer_language_model(compiled):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(11, 8)
            place = torch.arange(10).unsqueeze(1) * torch.exp(torch.arange(0, 8, 2) * -0.5)
            self.register_buffer("places", torch.stack([place.sin(), place.cos()], -1).flatten(1))
            layer = nn.TransformerEncoderLayer(8, 2, 16, 0.1, batch_first=True)
            self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.decoder = nn.Linear(8, 11)

        def forward(self, i):
            x = self.embedding(i) * 8**0.5 + self.places[: i.size(1)]
            mask = nn.Transformer.generate_square_subsequent_mask(i.size(1))
            return self.decoder(self.encoder(x, mask=mask, is_causal=True))

    model = Model()

    def loss_of(i):
        return F.cross_entropy(model(i[:, :-1]).reshape(-1, 11), i[:, 1:].reshape(-1))

    return trained(compiled, model, loss_of, [(torch.arange(14).reshape(2, 7) * 3 % 11,) for _ in range(3)])


@program
def scaled_attention(compiled):
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.c_attn, self.c_proj = nn.Linear(8, 24, bias=False), nn.Linear(8, 8, bias=False)

        def forward(self, x, is_causal=True):
            q, k, v = (t.view(x.size(0), -1, 2, 4).transpose(1, 2) for t in self.c_attn(x).chunk(3, -1))
            y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.1 if self.training else 0.0, is_causal=is_causal)
            return self.c_proj(y.transpose(1, 2).reshape(x.size(0), -1, 8))

    model = Attention()
    return trained(compiled, model, lambda x: model(x).square().mean(), [(waves(2, n, 8),) for n in (5, 6, 7)])


@program
def attention_with_a_score(compiled):
    from wick.nn.attention.flex_attention import create_block_mask, flex_attention

    mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, 16, 16)

    def attend(q, k, v):
        return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + 0.1 * (j - i), block_mask=mask)

    attend = compiled(attend)
    found = []
    for n in range(3):
        q, k, v = (waves(1, 2, 16, 8) + n + m for m in range(3))
        q.requires_grad_()
        attend(q, k, v).sum().backward()
        found.append(q.grad)
    return found


# ---- pictures ----


@program
def generator_and_discriminator(compiled):
    torch.manual_seed(4)
    make = nn.Sequential(
        nn.ConvTranspose2d(3, 4, 4, 1, 0, bias=False), nn.BatchNorm2d(4), nn.ReLU(True),
        nn.ConvTranspose2d(4, 1, 4, 2, 1, bias=False), nn.Tanh(),
    )  # fmt: skip
    judge = nn.Sequential(
        nn.Conv2d(1, 4, 4, 2, 1, bias=False),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(4, 1, 4, 1, 0, bias=False),
        nn.Sigmoid(),
    )

    def initialised(m):
        if m.__class__.__name__.find("Conv") != -1:
            nn.init.normal_(m.weight.data, 0.0, 0.02)

    make.apply(initialised)
    judge.apply(initialised)
    criterion = nn.BCELoss()
    of_judge, of_make = (optim.Adam(m.parameters(), lr=0.01, betas=(0.5, 0.999)) for m in (judge, make))

    def step(real):
        label = torch.full((real.size(0),), 1.0)
        judge.zero_grad()
        of_real = criterion(judge(real).view(-1), label)
        of_real.backward()
        fake = make(torch.randn(real.size(0), 3, 1, 1))
        label.fill_(0.0)
        of_fake = criterion(judge(fake.detach()).view(-1), label)
        of_fake.backward()
        of_judge.step()
        make.zero_grad()
        label.fill_(1.0)
        loss = criterion(judge(fake).view(-1), label)
        loss.backward()
        of_make.step()
        return (of_real + of_fake).item(), loss.item()

    step = compiled(step)
    return [step(waves(3, 1, 8, 8)) for _ in range(3)], list(make.parameters()), list(judge.parameters())


@program
def spatial_transformer(compiled):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.localization = nn.Sequential(nn.Conv2d(1, 4, 5), nn.MaxPool2d(2, stride=2), nn.ReLU(True))
            self.theta = nn.Linear(4 * 5 * 5, 6)
            self.theta.weight.data.zero_()
            self.theta.bias.data.copy_(torch.tensor([1, 0, 0, 0, 1, 0], dtype=torch.float))
            self.net = Net()

        def forward(self, x):
            theta = self.theta(self.localization(x).view(-1, 4 * 5 * 5)).view(-1, 2, 3)
            grid = F.affine_grid(theta, x.size(), align_corners=False)
            return self.net(F.grid_sample(x, grid, align_corners=False))

    model = Model()
    return trained(compiled, model, lambda x, y: F.cross_entropy(model(x), y), [images(k) for k in range(3)])


@program
def adversarial_example(compiled):
    model = Net().eval()

    def attack(image, target, epsilon):
        image = image.clone().requires_grad_(True)
        loss = F.nll_loss(F.log_softmax(model(image), dim=1), target)
        model.zero_grad()
        loss.backward()
        return torch.clamp(image + epsilon * image.grad.data.sign(), 0, 1)

    attack = compiled(attack)
    return [attack(*images(0), epsilon) for epsilon in (0.05, 0.1, 0.15, 0.2)]


@program
def style_transfer(compiled):
    features = (
        nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1))
        .eval()
        .requires_grad_(False)
    )

    def gram(x):
        a, b, c, d = x.size()
        rows = x.view(a * b, c * d)
        return torch.mm(rows, rows.t()).div(a * b * c * d)

    picture = waves(1, 1, 8, 8).requires_grad_(True)
    optimizer = optim.Adam([picture], lr=0.1)

    def step(content, style):
        with torch.no_grad():
            picture.clamp_(0, 1)
        optimizer.zero_grad()
        found = features(picture)
        loss = F.mse_loss(found, features(content)) + 1e3 * F.mse_loss(gram(found), gram(features(style)))
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = compiled(step)
    return [step(waves(1, 1, 8, 8) + 1, waves(1, 1, 8, 8).cos()) for _ in range(4)], picture


# ---- reinforcement ----


@program
def q_learning(compiled):
    policy, target = (nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)) for _ in range(2))
    target.load_state_dict(policy.state_dict())
    optimizer = optim.AdamW(policy.parameters(), lr=0.01, amsgrad=True)

    def step(state, action, following, ends, reward):
        values = policy(state).gather(1, action)
        next_values = torch.zeros(state.size(0))
        with torch.no_grad():
            next_values[~ends] = target(following).max(1).values[~ends]
        loss = nn.SmoothL1Loss()(values, (next_values * 0.9 + reward).unsqueeze(1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(policy.parameters(), 100)
        optimizer.step()
        kept, new = target.state_dict(), policy.state_dict()
        for key in new:
            kept[key] = new[key] * 0.1 + kept[key] * 0.9
        target.load_state_dict(kept)
        return loss.detach()

    step = compiled(step)
    found = []
    for k in range(4):
        ends = torch.tensor([False, k % 2 == 0, False])
        found.append(step(waves(3, 4) + k, torch.tensor([[0], [1], [0]]), waves(3, 4).cos(), ends, torch.ones(3)))
    return found, list(target.parameters())


# ---- modules and derivatives ----


@program
def parametrizations(compiled):
    class Symmetric(nn.Module):
        def forward(self, x):
            return x.triu() + x.triu(1).transpose(-1, -2)

    class MatrixExponential(nn.Module):
        def forward(self, x):
            return torch.matrix_exp(x - x.mT)

    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    parametrize.register_parametrization(model[0], "weight", Symmetric())
    parametrize.register_parametrization(model[1], "weight", Symmetric())
    parametrize.register_parametrization(model[1], "weight", MatrixExponential())
    found = trained(compiled, model, lambda x: model(x).square().mean(), [(waves(3, 4) + k,) for k in range(3)])
    parametrize.remove_parametrizations(model[0], "weight")
    return found, compiled(model)(waves(3, 4)), nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)) is not None


@program
def pruning(compiled):
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3))
    prune.l1_unstructured(model[0], name="weight", amount=3)
    prune.ln_structured(model[3], name="weight", amount=0.5, n=2, dim=0)
    found = trained(compiled, model, lambda x: model(x).square().mean(), [(waves(2, 1, 8, 8) + k,) for k in range(3)])
    prune.remove(model[0], "weight")
    return found, compiled(model)(waves(2, 1, 8, 8)), model[0].weight, model[3].weight_mask


class FusedConvBN(torch.autograd.Function):
    """Convolution and batch norm that keep the input alone."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        y = F.conv2d(x, weight)
        ctx.sum, ctx.sqrt_var = y.sum(dim=(0, 2, 3)), (y.var(dim=(0, 2, 3), unbiased=True) + 1e-3).sqrt()
        ctx.n = y.numel() / y.size(1)
        return (y - (ctx.sum / ctx.n)[None, :, None, None]) / ctx.sqrt_var[None, :, None, None]

    @staticmethod
    def backward(ctx, grad_out):
        x, weight = ctx.saved_tensors
        with torch.enable_grad():
            x, weight = x.detach().requires_grad_(), weight.detach().requires_grad_()
            y = F.conv2d(x, weight)
            mean, var = y.mean(dim=(0, 2, 3)), y.var(dim=(0, 2, 3), unbiased=True)
            out = (y - mean[None, :, None, None]) / (var + 1e-3).sqrt()[None, :, None, None]
        return torch.autograd.grad(out, (x, weight), grad_out)


@program
def fused_convolution_and_norm(compiled):
    model = nn.Conv2d(1, 3, 3, bias=False)
    return trained(
        compiled,
        model,
        lambda x: FusedConvBN.apply(x, model.weight).relu().mean(),
        [(waves(2, 1, 6, 6) + k,) for k in range(3)],
    )


@program
def forward_mode(compiled):
    model = nn.Linear(3, 3)

    def f(x, tangent):
        with forward_ad.dual_level():
            parameters = {name: forward_ad.make_dual(p, torch.ones_like(p)) for name, p in model.named_parameters()}
            out = functional_call(model, parameters, forward_ad.make_dual(x, tangent))
            first = forward_ad.unpack_dual(out).tangent
        return first, jvp(lambda x: model(x).tanh(), (x,), (tangent,))

    f = compiled(f)
    return [f(waves(2, 3) + k, torch.ones(2, 3)) for k in range(3)]


@program
def jacobians(compiled):
    def predict(weight, bias, x):
        return F.linear(x, weight, bias).tanh()

    def f(weight, bias, x):
        _, pull = vjp(lambda x: predict(weight, bias, x), x)
        by_rows = vmap(pull)(torch.eye(4))[0]
        both = [transform(predict, argnums=(0, 2))(weight, bias, x) for transform in (jacrev, jacfwd)]
        batch = vmap(jacrev(predict, argnums=2), in_dims=(None, None, 0))(weight, bias, x.expand(3, 4))
        laplacian = hessian(predict, argnums=2)(weight, bias, x).diagonal(0, -1, -2).sum(-1)
        return by_rows, both, batch, laplacian, vmap(torch.trace)(hessian(predict, argnums=2)(weight, bias, x))

    f = compiled(f)
    return [f(waves(4, 4) + k, waves(4), waves(4).cos()) for k in range(3)]


@program
def gradients_of_each_sample(compiled):
    model = Net()
    parameters = {k: v.detach() for k, v in model.named_parameters()}

    def loss_of(parameters, image, target):
        return F.cross_entropy(functional_call(model, parameters, (image.unsqueeze(0),)), target.unsqueeze(0))

    f = compiled(lambda x, y: vmap(grad(loss_of), in_dims=(None, 0, 0))(parameters, x, y))
    return [f(*images(k)) for k in range(3)]


@program
def ensemble(compiled):
    models = [Net() for _ in range(3)]
    parameters, buffers = stack_module_state(models)

    def one(parameters, buffers, x):
        return functional_call(models[0], (parameters, buffers), (x,))

    f = compiled(
        lambda x: (vmap(one, in_dims=(0, 0, None))(parameters, buffers, x), torch.stack([m(x) for m in models]))
    )
    return [f(images(k)[0]) for k in range(3)]


@program
def tangent_kernels(compiled):
    model = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
    parameters = {k: v.detach() for k, v in model.named_parameters()}

    def one(parameters, x):
        return functional_call(model, parameters, (x.unsqueeze(0),)).squeeze(0)

    def kernel(a, b):
        first, second = (vmap(jacrev(one), (None, 0))(parameters, x).values() for x in (a, b))
        return sum(
            torch.einsum("Naf,Mbf->NMab", i.flatten(2), j.flatten(2)) for i, j in zip(first, second, strict=True)
        )

    def by_products(a, b):
        def one_pair(a, b):
            _, pull = vjp(lambda parameters: one(parameters, a), parameters)

            def push(v):
                return jvp(lambda parameters: one(parameters, b), (parameters,), pull(v))[1]

            return vmap(push)(torch.eye(2))

        return vmap(vmap(one_pair, (None, 0)), (0, None))(a, b)

    f = compiled(lambda a, b: (kernel(a, b), by_products(a, b)))
    return [f(waves(2, 3) + k, waves(3, 3).cos()) for k in range(3)]


@program
def averaged_weights(compiled):
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    average, schedule = optim.swa_utils.AveragedModel(model), optim.swa_utils.SWALR(optimizer, 0.05, anneal_epochs=2)
    batches = [(waves(6, 4) + k,) for k in range(4)]
    found = []
    for _ in range(3):
        found.append(trained(compiled, model, lambda x: model(x).square().mean(), batches[:2], optimizer))
        average.update_parameters(model)
        schedule.step()
    optim.swa_utils.update_bn([x for (x,) in batches], average)
    return found, compiled(average.eval())(batches[0][0])


@program
def what_backward_keeps(compiled):
    from wick.autograd.graph import save_on_cpu, saved_tensors_hooks

    model, packed = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2)), []

    def step(x):
        model.zero_grad()
        with saved_tensors_hooks(lambda t: (packed.append(1), t * 1)[1], lambda t: t):
            y = model(x)
        with save_on_cpu():
            loss = (y * y.exp()).sum()
        loss.backward()
        return loss.detach(), model[0].weight.grad.clone()

    step = compiled(step)
    return [step(waves(3, 4) + k) for k in range(3)], len(packed)


@program
def profiled(compiled):
    from wick.profiler import profile, record_function

    model = nn.Linear(4, 4)

    def f(x):
        with record_function("inference"):
            return model(x).relu()

    f = compiled(f)
    with profile():
        return [f(waves(2, 4) + k) for k in range(3)]


@program
def compiled_functions_and_modules(compiled):
    """What the page on torch.compile shows: nested modules, side effects, a branch on data."""
    log = []

    class Inner(nn.Module):
        def forward(self, x):
            return F.relu(x + 1)

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Inner()
            self.scale = 1.5

        def forward(self, x):
            log.append(x.shape[0])
            return self.inner(x) * self.scale

    model = Outer()

    def f(a, b):
        x = a / (torch.abs(a) + 1)
        b = torch.where(b.sum() < 0, b * -1, b)
        model.scale += 0.5
        return model(x) * b

    f = compiled(f)
    return [f(waves(n), waves(n) - n % 2) for n in (10, 10, 12, 13)], log, model.scale


def same(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b) and a.dtype == b.dtype and a.requires_grad == b.requires_grad
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("function", PROGRAMS)
@pytest.mark.parametrize("fullgraph", [False, True], ids=["in pieces", "whole"])
def test_a_program(function, fullgraph):
    torch.manual_seed(0)
    plain = function(lambda f: f)
    torch.manual_seed(0)
    assert same(plain, function(lambda f: torch.compile(f, fullgraph=fullgraph)))
