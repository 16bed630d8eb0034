# SPDX-License-Identifier: BSD-3-Clause
# %% [markdown]
"""An evolution strategy learns to balance a pole, with actors that come and go.

    python examples/evolution.py --plot evolution.png

Tasks and results are queues of a store; a lost task is handed out again."""

# %%
import argparse
import json
import multiprocessing.process
from importlib.util import find_spec

import numpy as np

import distlite as dist

FORK = multiprocessing.get_context("fork")
GENERATIONS, VARIATIONS, SIGMA, RATE = 16, 24, 0.5, 0.6
ACTORS = {0: 2, 7: 3}  # how many start in which generation


def noise(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=4)


def score(policy: np.ndarray, seed: int) -> int:
    """Returns for how many of 300 steps a policy balances a pole on a cart."""
    x, speed, angle, turn = np.random.default_rng(seed).uniform(-0.05, 0.05, 4)
    for step in range(300):
        sine, cosine = np.sin(angle), np.cos(angle)
        force = 10 * np.sign(policy @ (x, speed, angle, turn))
        push = (force + 0.05 * turn**2 * sine) / 1.1
        twist = (9.8 * sine - cosine * push) / (2 / 3 - cosine**2 / 22)
        x, speed = x + 0.02 * speed, speed + 0.02 * (push - 0.05 * twist * cosine)
        angle, turn = angle + 0.02 * turn, turn + 0.02 * twist
        if abs(x) > 2.4 or abs(angle) > 0.21:
            return step
    return 300


def act(port: int) -> None:
    store = dist.TCPStore("127.0.0.1", port, timeout=60)
    while True:
        seed, policy = json.loads(store.queue_pop("tasks"))
        scored = seed, score(policy + SIGMA * noise(seed), seed)
        store.queue_push("results", json.dumps(scored))


def scores_of(store: dist.Store, seeds: range, policy: np.ndarray) -> list[int]:
    scores: dict[int, int] = {}
    while missing := [seed for seed in seeds if seed not in scores]:
        for seed in missing:
            store.queue_push("tasks", json.dumps([seed, policy.tolist()]))
        try:
            while len(scores) < len(seeds):
                seed, found = json.loads(store.queue_pop("results", timeout=2))
                if seed in seeds:  # not of an earlier task that was handed out twice
                    scores[seed] = found
        except dist.DistStoreError:
            print("an actor has died with its task: handing it out again")
    return [scores[seed] for seed in seeds]


# %%
def main(picture: str | None = None) -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    policy, history = np.zeros(4), []
    actors: list[multiprocessing.process.BaseProcess] = []
    for number in range(GENERATIONS):
        for _ in range(ACTORS.get(number, 0)):
            actors.append(FORK.Process(target=act, args=(store.port,), daemon=True))
            actors[-1].start()
        if number == 6:
            actors.pop().kill()
        seeds = range(number * VARIATIONS, (number + 1) * VARIATIONS)
        history.append(np.array(scores_of(store, seeds, policy), float))
        weights = (history[-1] - history[-1].mean()) / (history[-1].std() + 1e-9)
        policy += RATE * weights @ [noise(seed) for seed in seeds] / VARIATIONS
    print(f"mean score {history[0].mean():.0f}, at the end {history[-1].mean():.0f}")
    for actor in actors:
        actor.kill()
    if picture:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(6, 3.5), layout="constrained")
        axes = figure.add_subplot(xlabel="generation", ylabel="steps without a fall")
        axes.violinplot(history, positions=range(GENERATIONS), showmedians=True)
        figure.savefig(picture, dpi=120)


# %%
if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plot", metavar="FILE.png")
    if (picture := parser.parse_args().plot) and not find_spec("matplotlib"):
        raise SystemExit("--plot needs matplotlib: pip install matplotlib")
    main(picture)
