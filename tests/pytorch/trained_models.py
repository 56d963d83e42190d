"""The models that comparisons train, with 43 to 48 MiB of gradients, or 0.4 to 1.5 MiB in a short run.

Each has model(), inputs() and targets() for a cross entropy."""

import torch
from torch import nn


class Perceptron:
    """12 layers of 1024 at batch 512."""

    def __init__(self, short):
        self.layers, self.width, self.batch = (6, 256, 32) if short else (12, 1024, 512)

    def model(self):
        layers = []
        for _ in range(self.layers):
            layers += [nn.Linear(self.width, self.width), nn.ReLU()]
            nn.init.kaiming_normal_(layers[-2].weight, nonlinearity="relu")  # else gradients fade layer by layer
        return nn.Sequential(*layers[:-1])

    def inputs(self):
        return torch.randn(self.batch, self.width)

    def targets(self):
        return torch.randint(self.width, (self.batch,))


def convolution(inputs, outputs, size, stride):
    layer = nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs))


class Residual(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.first = convolution(inputs, outputs, 3, stride)
        self.second = convolution(outputs, outputs, 3, 1)
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else convolution(inputs, outputs, 1, stride)

    def forward(self, x):
        return torch.relu(self.shortcut(x) + self.second(torch.relu(self.first(x))))


class Convolutional:
    """He et al. 2015, 18 layers, at batch 8 and 112 by 112 pixels."""

    def __init__(self, short):
        self.widths, self.batch, self.pixels = ((16, 32), 2, 32) if short else ((64, 128, 256, 512), 8, 112)

    def model(self):
        layers, last = [convolution(3, self.widths[0], 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], self.widths[0]
        for width in self.widths:
            layers += [Residual(last, width, 1 if width == last else 2), Residual(width, width, 1)]
            last = width
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(last, 1000))

    def inputs(self):
        return torch.randn(self.batch, 3, self.pixels, self.pixels)

    def targets(self):
        return torch.randint(1000, (self.batch,))


class Transformer:
    """An encoder (Vaswani et al. 2017) of 4 layers of 512 at 256 tokens that tells the next of 512 words; the embedding is
    no part of it."""

    def __init__(self, short):
        self.layers, self.width, self.batch, self.tokens = (2, 64, 2, 16) if short else (4, 512, 2, 128)

    def model(self):
        options = {"dropout": 0.0, "batch_first": True}
        layers = [nn.TransformerEncoderLayer(self.width, 8, 4 * self.width, **options) for _ in range(self.layers)]
        return nn.Sequential(*layers, nn.Linear(self.width, 512), nn.Flatten(0, 1))

    def inputs(self):
        return torch.randn(self.batch, self.tokens, self.width)

    def targets(self):
        return torch.randint(512, (self.batch * self.tokens,))


MODELS = {"perceptron": Perceptron, "convolutional": Convolutional, "transformer": Transformer}
