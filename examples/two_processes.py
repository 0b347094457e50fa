"""What several processes do with data, weights and gradients, in printed numbers.

    torchrun --nproc_per_node 2 examples/two_processes.py

The model has two weights, the data are eight numbers, and a batch is two of them.
"""

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object, set_seed
from torch import nn
from torch.utils.data import DataLoader


def main():
    accelerator = Accelerator(cpu=not torch.accelerator.is_available())

    def show(what, value):
        values = gather_object([value])
        if accelerator.is_main_process:
            for process, each in enumerate(values):
                print(f"{what if process == 0 else '':<34} process {process}: {each}")

    set_seed(
        accelerator.process_index
    )  # other weights in each process, to see what becomes of them
    model = nn.Linear(1, 1)
    show("weights before prepare", numbers(model.parameters()))

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(torch.arange(8.0)[:, None], batch_size=2)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    show("after it: replicas of the first's", numbers(model.parameters()))

    batches = [batch.flatten().tolist() for batch in loader]
    show("data: each has its own batches", batches)

    batch = next(iter(loader))
    raw = accelerator.unwrap_model(model)
    alone = torch.autograd.grad(loss(raw, batch), list(raw.parameters()))
    show("gradient of the own first batch", numbers(alone))

    accelerator.backward(loss(model, batch))
    show("after backward: their mean", numbers(p.grad for p in model.parameters()))

    optimizer.step()
    show("weights after the step: the same", numbers(model.parameters()))


def loss(model, batch):
    return (model(batch) - 1).square().mean()


def numbers(tensors):
    return [round(tensor.item(), 4) for tensor in tensors]


if __name__ == "__main__":
    main()
