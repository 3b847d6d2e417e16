"""Trains a PyTorch model with DistributedDataParallel, whose gradients go by MPI, and compares it with one process."""

import sys

import torch
from mpi4py import MPI
from torch.nn.parallel import DistributedDataParallel

SAMPLES, INPUTS, HIDDEN, STEPS, RATE = 240, 16, 64, 100, 0.2


def data():
    torch.manual_seed(20)
    inputs = torch.randn(SAMPLES, INPUTS)
    return inputs, torch.sin(inputs @ torch.randn(INPUTS, 1) / 5)


def model():
    torch.manual_seed(21)
    return torch.nn.Sequential(torch.nn.Linear(INPUTS, HIDDEN), torch.nn.Tanh(), torch.nn.Linear(HIDDEN, 1))


def train(network, inputs, wanted):
    optimizer, loss_of = torch.optim.SGD(network.parameters(), RATE), torch.nn.MSELoss()
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(network(inputs), wanted)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def average_by_mpi(world, bucket):
    """What DistributedDataParallel asks for each bucket of gradients."""
    gradients = bucket.buffer()
    world.Allreduce(MPI.IN_PLACE, gradients.numpy())
    done = torch.futures.Future()
    done.set_result(gradients / world.size)
    return done


def main():
    world = MPI.COMM_WORLD
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    # DistributedDataParallel wants a process group, by which it compares and spreads the first weights.
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{sys.argv[1]}", rank=world.rank, world_size=world.size)
    inputs, wanted = data()
    shared = DistributedDataParallel(model())
    shared.register_comm_hook(world, average_by_mpi)
    mine = slice(world.rank, None, world.size)
    train(shared, inputs[mine], wanted[mine])

    alone = model()
    losses = train(alone, inputs, wanted)
    assert losses[-1] < losses[0] / 2, losses[::20]
    for one, other in zip(shared.module.parameters(), alone.parameters()):
        assert torch.allclose(one, other, rtol=1e-9, atol=1e-12), (one - other).abs().max()
    world.Barrier()
    if world.rank == 0:
        print(f"{world.size} ranks have the weights of one, and its loss fell from {losses[0]:.3f} to {losses[-1]:.3f}")
    torch.distributed.destroy_process_group()


main()
