"""Trains a small model on data that the ranks of MPI share out, and compares it with the same training in one process."""

import numpy
from mpi4py import MPI

SAMPLES, INPUTS, HIDDEN, STEPS, RATE = 512, 24, 64, 200, 0.5


def data():
    random = numpy.random.default_rng(20)
    inputs = random.normal(size=(SAMPLES, INPUTS))
    return inputs, numpy.sin(inputs @ random.normal(size=(INPUTS, 1)) / 5)


def first_weights():
    random = numpy.random.default_rng(21)
    return [random.normal(size=(INPUTS, HIDDEN)) * 0.1, random.normal(size=(HIDDEN, 1)) * 0.1]


def gradients(weights, inputs, wanted):
    """The sums over the samples, and of the squares of the errors."""
    hidden = numpy.tanh(inputs @ weights[0])
    error = hidden @ weights[1] - wanted
    back = (error @ weights[1].T) * (1 - hidden ** 2)
    return [inputs.T @ back, hidden.T @ error, numpy.array([[float((error ** 2).sum())]])]


def train(inputs, wanted, total):
    """`total` adds up what each of those that train has found."""
    weights, losses = first_weights(), []
    for _ in range(STEPS):
        found = total(numpy.concatenate([part.ravel() for part in gradients(weights, inputs, wanted)]))
        at = INPUTS * HIDDEN
        weights[0] -= RATE / SAMPLES * found[:at].reshape(INPUTS, HIDDEN)
        weights[1] -= RATE / SAMPLES * found[at:at + HIDDEN].reshape(HIDDEN, 1)
        losses.append(found[-1])
    return weights, losses


def main():
    world = MPI.COMM_WORLD
    inputs, wanted = data()

    def total(mine):
        everybody = numpy.empty_like(mine)
        world.Allreduce(mine, everybody)
        return everybody

    mine = slice(world.rank, None, world.size)
    weights, losses = train(inputs[mine], wanted[mine], total)
    alone, _ = train(inputs, wanted, lambda found: found)
    for one, other in zip(weights, alone):
        assert numpy.allclose(one, other, rtol=1e-9, atol=1e-12), abs(one - other).max()
    assert losses[-1] < losses[0] / 2, losses[::50]
    if world.rank == 0:
        print(f"{world.size} ranks have learned what one learns", flush=True)


main()
