# SPDX-License-Identifier: BSD-3-Clause
# %% [markdown]
"""
torch's DistributedDataParallel over distlite: two spirals are told apart.

    distlite run -n 2 examples/ddp.py
    torchrun --nproc-per-node 2 examples/ddp.py --plot ddp.png

It is a usual program of torch.  `import distlite.torch` registers the backend
`distlite`, which takes the place of gloo.  Each rank has its own points, and DDP
averages the gradients.
"""

# %%
import argparse
import sys
from collections.abc import Iterable
from importlib.util import find_spec

try:
    import torch
except ImportError:
    raise SystemExit("ddp.py needs torch: pip install torch") from None
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import distlite.torch  # noqa: F401

STEPS, POINTS = 600, 400  # of each rank


def spirals(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns points of two arms, and to which arm each belongs."""
    random = torch.Generator().manual_seed(seed)
    arm = torch.arange(POINTS) % 2
    along = torch.rand(POINTS, generator=random).sqrt()
    angle = 3 * torch.pi * along + torch.pi * arm
    points = along[:, None] * torch.stack([angle.cos(), angle.sin()], dim=1)
    return points + 0.03 * torch.randn(POINTS, 2, generator=random), arm


def steps() -> Iterable[int]:
    """Counts; rank 0 draws a bar on a terminal, if rich is installed."""
    if dist.get_rank() == 0 and sys.stdout.isatty() and find_spec("rich"):
        from rich.progress import track

        return track(range(STEPS), "training")
    return range(STEPS)


# %%
def plot(model: nn.Module, points: list[torch.Tensor], file: str) -> None:
    from matplotlib.figure import Figure

    axis = torch.linspace(-1.2, 1.2, 200)
    grid = torch.cartesian_prod(axis, axis)
    with torch.no_grad():
        shares = model(grid).softmax(dim=1)[:, 1].reshape(200, 200)
    figure = Figure(figsize=(5, 4.5), layout="constrained")
    axes = figure.add_subplot()
    axes.contourf(axis, axis, shares.T, levels=20, cmap="RdBu_r", alpha=0.7)
    for rank, part in enumerate(points):
        axes.plot(*part.T, ".", markersize=3, label=f"points of rank {rank}")
    axes.legend(loc="upper right")
    figure.savefig(file, dpi=100)


# %%
def main(picture: str | None = None) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("distlite")  # in place of "gloo"
    torch.manual_seed(0)
    layers = [nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh()]
    model = DistributedDataParallel(nn.Sequential(*layers, nn.Linear(64, 2)))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    points, arm = spirals(seed=dist.get_rank())
    for _ in steps():
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(points), arm).backward()
        optimizer.step()
    others, theirs = spirals(seed=1000)
    right = (model.module(others).argmax(dim=1) == theirs).float().mean()
    everybodys = [torch.empty_like(points) for _ in range(dist.get_world_size())]
    dist.all_gather(everybodys, points)
    if dist.get_rank() == 0:
        print(f"{right:.0%} of other points are told apart, by {dist.get_backend()}")
        if picture:
            plot(model.module, everybodys, picture)
    dist.destroy_process_group()


# %%
if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plot", metavar="FILE.png")
    if (picture := parser.parse_args().plot) and not find_spec("matplotlib"):
        raise SystemExit("--plot needs matplotlib: pip install matplotlib")
    main(picture)
