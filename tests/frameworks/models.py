"""Small models whose gradients the recorders in this directory watch.

    from models import models
    make_model, make_batch, loss = models()["mlp"]
    model = make_model()
    loss(model, make_batch(rank=0, micro_step=0)).backward()

Each model is there for one thing that decides which gradients share a bucket; its docstring says which. Everything is
seeded, runs on a CPU within a second, and needs PyTorch 1.13 or newer (Python 3.9). The models that torchvision and
transformers define are left out where those packages cannot be imported.
"""

from collections import namedtuple

import torch
import torch.nn.functional as F
from torch import nn

WIDTH = 32
VOCABULARY = 96
LENGTH = 12
BATCH = 2

# make_model() is called once per rank and builds equal parameters everywhere; make_batch(rank, micro_step) differs by
# both; loss(model, batch) takes the model or anything that wraps it, in the dtype that its parameters have by then.
Model = namedtuple("Model", "make_model make_batch loss")


class Mlp(nn.Sequential):
    """The plain case: weights and biases, ready in the reverse order of registration."""

    def __init__(self, width=48, depth=5):
        layers = [nn.Linear(WIDTH, width), nn.ReLU()]
        for _ in range(depth - 2):
            layers += [nn.Linear(width, width), nn.ReLU()]
        super().__init__(*layers, nn.Linear(width, WIDTH))


class ConvNet(nn.Module):
    """Convolutions without a bias, and BatchNorm: small gradients between large ones, and buffers."""

    def __init__(self, channels=(3, 8, 16, 32)):
        super().__init__()
        self.convolutions = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1, bias=False)
                                          for a, b in zip(channels, channels[1:]))
        self.norms = nn.ModuleList(nn.BatchNorm2d(b) for b in channels[1:])
        self.head = nn.Linear(channels[-1], 10)

    def forward(self, x):
        for convolution, norm in zip(self.convolutions, self.norms):
            x = F.max_pool2d(F.relu(norm(convolution(x))), 2)
        return self.head(x.mean((2, 3)))


class Encoder(nn.Module):
    """nn.TransformerEncoderLayer: blocks of weights of a few sizes, used in another order than they are registered."""

    def __init__(self, vocabulary=VOCABULARY, width=WIDTH, layers=3):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.position = nn.Parameter(torch.randn(LENGTH, width) * 0.02)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(width, 4, 3 * width, dropout=0.0, batch_first=True)
                                    for _ in range(layers))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        x = self.embedding(tokens) + self.position
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class HugeEmbedding(nn.Module):
    """One gradient, the last to be ready, is larger than all others together, and than most limits."""

    def __init__(self, vocabulary=6000, width=WIDTH):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.body = nn.Sequential(*[layer for _ in range(3) for layer in (nn.Linear(width, width), nn.ReLU())])
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens):
        return self.head(self.body(self.embedding(tokens * 7)))


class HugeMiddle(nn.Module):
    """One gradient, neither the first nor the last to be ready, is larger than most limits."""

    def __init__(self, width=WIDTH, wide=2000):
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.up = nn.Linear(width, wide)
        self.down = nn.Linear(wide, width, bias=False)
        self.head = nn.Sequential(nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))

    def forward(self, x):
        return self.head(self.down(F.relu(self.up(self.stem(x)))))


class Tied(nn.Module):
    """The embedding's weight is also the head's: its gradient is ready last, although the head's backward is first."""

    def __init__(self, vocabulary=VOCABULARY, width=WIDTH):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.body = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return self.head(self.norm(self.body(self.embedding(tokens))))


class Shuffled(nn.Module):
    """forward() uses the layers in another order than they are registered in."""

    def __init__(self, widths=(24, 40, 56, 32, 48, 16), order=(3, 0, 5, 1, 4, 2)):
        super().__init__()
        self.order = order
        inputs = dict(zip(order, (WIDTH,) + tuple(widths[i] for i in order)))
        self.layers = nn.ModuleList(nn.Linear(inputs[i], widths[i]) for i in range(len(widths)))

    def forward(self, x):
        for i in self.order:
            x = torch.tanh(self.layers[i](x))
        return x


class Reused(nn.Module):
    """The layer registered last is used three times, so its gradient is ready after those of the layers between."""

    def __init__(self, width=WIDTH):
        super().__init__()
        self.first = nn.Linear(width, width)
        self.between = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.last = nn.Linear(width, width)
        self.shared = nn.Linear(width, width)

    def forward(self, x):
        x = self.shared(torch.tanh(self.first(x)))
        for layer in self.between:
            x = self.shared(torch.tanh(layer(torch.tanh(x))))
        return self.last(torch.tanh(x))


class Mixed(nn.Module):
    """bfloat16 weights and float32 norms, as large models are often kept: two dtypes that cannot share a bucket."""

    def __init__(self, vocabulary=VOCABULARY, width=WIDTH, layers=3):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width).to(torch.bfloat16)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.up = nn.ModuleList(nn.Linear(width, 2 * width).to(torch.bfloat16) for _ in range(layers))
        self.down = nn.ModuleList(nn.Linear(2 * width, width).to(torch.bfloat16) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False).to(torch.bfloat16)

    @staticmethod
    def normalized(norm, x):
        return norm(x.to(norm.weight.dtype)).to(x.dtype)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for norm, up, down in zip(self.norms, self.up, self.down):
            x = x + down(F.relu(up(self.normalized(norm, x))))
        return self.head(self.normalized(self.norm, x))


class Scale(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.shift = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return torch.tanh(x * self.scale + self.shift)


class Tiny(nn.Sequential):
    """Many tiny gradients, down to a single element, around one weight."""

    def __init__(self, width=WIDTH, layers=20):
        super().__init__(*[Scale(width) for _ in range(layers)], nn.Linear(width, width),
                         *[Scale(width) for _ in range(layers)])


class Odd(nn.Module):
    """Sizes that neither two nor four ranks divide, alone or together: 7 * 13 + 13 + 13 * 5 + 5 + 5 * 3 = 189."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(7, 13)
        self.b = nn.Linear(13, 5)
        self.c = nn.Linear(5, 3, bias=False)

    def forward(self, x):
        return self.c(torch.tanh(self.b(torch.tanh(self.a(x[:, :7])))))


class Frozen(nn.Module):
    """Every second layer is frozen, and so is the embedding: fewer gradients than parameters."""

    def __init__(self, vocabulary=VOCABULARY, width=WIDTH, layers=6):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.head = nn.Linear(width, vocabulary)
        for module in [self.embedding] + list(self.layers)[1::2]:
            module.requires_grad_(False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return self.head(x)


def generator(rank, micro_step):
    return torch.Generator().manual_seed(1000 * micro_step + rank)


def vectors(rank, micro_step):
    return torch.randn(BATCH, WIDTH, generator=generator(rank, micro_step))


def images(rank, micro_step):
    return torch.randn(BATCH, 3, 32, 32, generator=generator(rank, micro_step))


def tokens(rank, micro_step):
    return torch.randint(VOCABULARY, (BATCH, LENGTH), generator=generator(rank, micro_step))


def mean_square(model, batch):
    """The loss of a model that takes floats, or token numbers, and returns one tensor."""
    if batch.is_floating_point():
        batch = batch.to(next(model.parameters()).dtype)
    return model(batch).float().square().mean()


def language_modelling(model, batch):
    return model(input_ids=batch, labels=batch).loss


def masked_average(model, batch):
    output = model(input_ids=batch)
    return output.last_hidden_state.float().square().mean() + output.pooler_output.float().square().mean()


def seeded(build):
    def make_model():
        torch.manual_seed(1)
        return build()

    return make_model


def models():
    """Every model that can be built here: {name: (make_model, make_batch, loss)}."""
    found = {"mlp": (Mlp, vectors, mean_square), "conv_batchnorm": (ConvNet, images, mean_square),
             "encoder": (Encoder, tokens, mean_square), "huge_embedding": (HugeEmbedding, tokens, mean_square),
             "huge_middle": (HugeMiddle, vectors, mean_square), "tied": (Tied, tokens, mean_square),
             "shuffled": (Shuffled, vectors, mean_square), "reused": (Reused, vectors, mean_square),
             "mixed_dtypes": (Mixed, tokens, mean_square), "tiny_parameters": (Tiny, vectors, mean_square),
             "odd": (Odd, vectors, mean_square), "frozen": (Frozen, tokens, mean_square)}
    found.update(torchvision_models())
    found.update(transformers_models())
    return {name: Model(seeded(build), make_batch, loss) for name, (build, make_batch, loss) in found.items()}


def torchvision_models():
    try:
        import torchvision
    except Exception:  # not installed, or built for another PyTorch
        return {}
    return {"resnet18": (lambda: torchvision.models.resnet18(num_classes=10), images, mean_square)}


def transformers_models():
    try:
        from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
    except Exception:
        return {}
    common = {"vocab_size": VOCABULARY, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
    gpt2 = GPT2Config(n_positions=2 * LENGTH, n_embd=WIDTH, n_layer=3, n_head=4, attn_pdrop=0.0, embd_pdrop=0.0,
                      resid_pdrop=0.0, use_cache=False, **common)
    bert = BertConfig(hidden_size=WIDTH, num_hidden_layers=3, num_attention_heads=4, intermediate_size=2 * WIDTH,
                      max_position_embeddings=2 * LENGTH, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
                      **common)
    llama = LlamaConfig(hidden_size=WIDTH, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
                        intermediate_size=2 * WIDTH, max_position_embeddings=2 * LENGTH, use_cache=False, **common)
    return {"gpt2": (lambda: GPT2LMHeadModel(gpt2), tokens, language_modelling),
            "bert": (lambda: BertModel(bert), tokens, masked_average),
            "llama": (lambda: LlamaForCausalLM(llama), tokens, language_modelling)}
