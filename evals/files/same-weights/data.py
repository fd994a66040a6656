import torch


def tensors():
    """64 inputs of 4 numbers, and their targets."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(64, 4, generator=generator)
    return x, x @ torch.tensor([[1.0], [-2.0], [0.5], [3.0]]) + 0.1


def model():
    """A layer with the weights that every training starts from."""
    layer = torch.nn.Linear(4, 1)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.1, 0.2, 0.3, 0.4]]))
        layer.bias.fill_(0.0)
    return layer
