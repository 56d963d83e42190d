"""Six small models, with dimensions that no number of ranks divides, and the operations of a training step of each in
order. Needs PyTorch only to make a model."""

import torch
from torch import nn
from torch.nn import functional


class Perceptron(nn.Module):
    """Its first layer is a block, so what that is given needs no gradient."""

    WIDTHS = (37, 53, 29, 61, 41)

    def __init__(self):
        super().__init__()
        pairs = zip(self.WIDTHS, self.WIDTHS[1:])
        self.layers = nn.ModuleList(nn.Linear(inputs, outputs) for inputs, outputs in pairs)
        self.head = nn.Linear(self.WIDTHS[-1], 11)

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.head(x)

    def example(self):
        return (torch.randn(5, self.WIDTHS[0]),)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x, memory=None):
        memory = x if memory is None else memory
        batch, tokens, width = x.shape
        split = lambda t: t.view(batch, -1, self.heads, width // self.heads).transpose(1, 2)  # noqa: E731
        q, k, v = split(self.query(x)), split(self.key(memory)), split(self.value(memory))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=memory is x)
        return self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))


class FeedForward(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 3 * width + 1), nn.Linear(3 * width + 1, width)

    def forward(self, x):
        return self.down(functional.gelu(self.up(x)))


class Block(nn.Module):
    def __init__(self, width, heads, crossed=False):
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), Attention(width, heads)
        if crossed:
            self.norm_crossed, self.crossed = nn.LayerNorm(width), Attention(width, heads)
        self.norm2, self.mlp = nn.LayerNorm(width), FeedForward(width)

    def forward(self, x, memory=None):
        x = x + self.attention(self.norm1(x))
        if memory is not None:
            x = x + self.crossed(self.norm_crossed(x), memory)
        return x + self.mlp(self.norm2(x))


class Decoder(nn.Module):
    """As GPT-2 is: embeddings, blocks, a last norm and a head."""

    VOCABULARY, WIDTH, TOKENS, HEADS = 101, 33, 7, 3

    def __init__(self, tied=False, layers=4):
        super().__init__()
        self.embedding = nn.Embedding(self.VOCABULARY, self.WIDTH)
        self.position = nn.Embedding(self.TOKENS, self.WIDTH)
        self.layers = nn.ModuleList(Block(self.WIDTH, self.HEADS) for _ in range(layers))
        self.norm = nn.LayerNorm(self.WIDTH)
        self.head = nn.Linear(self.WIDTH, self.VOCABULARY, bias=False)
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, tokens):
        x = self.embedding(tokens) + self.position(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))

    def example(self):
        return (torch.randint(self.VOCABULARY, (2, self.TOKENS)),)


class Residual(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.first, self.norm1 = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs)
        self.second, self.norm2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs)
        self.shortcut = None if inputs == outputs else nn.Conv2d(inputs, outputs, 1, bias=False)

    def forward(self, x):
        y = self.norm2(self.second(torch.relu(self.norm1(self.first(x)))))
        return torch.relu(y + (x if self.shortcut is None else self.shortcut(x)))


class Convolutional(nn.Module):
    """As ResNet is: a stem, stages of residual blocks, a head."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 9, 3, padding=1, bias=False), nn.BatchNorm2d(9)
        self.layers = nn.ModuleList([Residual(9, 9), Residual(9, 15), Residual(15, 15), Residual(15, 21)])
        self.head = nn.Linear(21, 13)

    def forward(self, x):
        x = torch.relu(self.norm(self.stem(x)))
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(dim=(2, 3)))

    def example(self):
        return (torch.randn(3, 3, 6, 6),)


class Stack(nn.Module):
    def __init__(self, width, layers, crossed):
        super().__init__()
        self.layers = nn.ModuleList(Block(width, 3, crossed) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, x, memory=None):
        for layer in self.layers:
            x = layer(x, memory)
        return self.norm(x)


class EncoderDecoder(nn.Module):
    """Every block of the decoder reads what the encoder ends with."""

    VOCABULARY, WIDTH = 57, 27

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(self.VOCABULARY, self.WIDTH)
        self.encoder = Stack(self.WIDTH, 2, False)
        self.decoder = Stack(self.WIDTH, 2, True)
        self.head = nn.Linear(self.WIDTH, self.VOCABULARY)

    def forward(self, source, target):
        memory = self.encoder(self.embedding(source))
        return self.head(self.decoder(self.embedding(target), memory))

    def example(self):
        return torch.randint(self.VOCABULARY, (2, 6)), torch.randint(self.VOCABULARY, (2, 5))


# How each is made, its blocks, a child of each that is sharded by itself, if one is, and what comes before and after them
# that may be.
LAYERS = [f"layers.{i}" for i in range(4)]
ENDS = (["embedding", "position"], ["norm", "head"])
MODELS = {
    "perceptron": (Perceptron, LAYERS, None, None),
    "decoder": (Decoder, LAYERS, None, ENDS),
    "decoder_tied": (lambda: Decoder(tied=True), LAYERS, None, None),
    "convolutional": (Convolutional, LAYERS, None, None),
    "encoder_decoder": (
        EncoderDecoder,
        [f"{part}.layers.{i}" for part in ("encoder", "decoder") for i in range(2)],
        None,
        None,
    ),
    "nested": (lambda: Decoder(layers=3), LAYERS[:3], "mlp", ENDS),
}


def operations(model):
    """The names of the modules that compute, in the order of forward, each as often as it is interrupted by another.

    A module that has parameters of its own computes when it is called. Others that call such compute between what they
    call, unless what one of these gives is what the next or they themselves take or give.
    """
    names = {module: name for name, module in model.named_modules() if has_parameters(module)}
    calls = []
    open_calls = []  # module, and the tensors that are there before it computes: what it was given, its children gave
    kept = []  # so that no two tensors of the pass share an id

    def tensors(values):
        kept.extend(values)
        return {id(value) for value in values if torch.is_tensor(value)}

    def computes(module):
        if not calls or calls[-1] != names[module]:
            calls.append(names[module])

    def begin(module, args, kwargs):
        given = tensors([*args, *kwargs.values()])
        if open_calls and not given <= open_calls[-1][1]:
            computes(open_calls[-1][0])
        open_calls.append((module, set(given)))
        if is_leaf(module):
            computes(module)

    def end(module, _, output):
        given = tensors(output if isinstance(output, tuple) else [output])
        _, known = open_calls.pop()
        if not is_leaf(module) and not given <= known:
            computes(module)
        if open_calls:
            open_calls[-1][1].update(given)

    hooks = [module.register_forward_pre_hook(begin, with_kwargs=True) for module in names]
    hooks += [module.register_forward_hook(end) for module in names]
    model(*model.example())
    for hook in hooks:
        hook.remove()
    return calls


def has_parameters(module):
    return next(module.parameters(), None) is not None


def is_leaf(module):
    return not any(has_parameters(child) for child in module.children())
