# SPDX-License-Identifier: BSD-3-Clause
# %% [markdown]
"""Training that outlives all of its processes.

    python examples/survivors.py --plot survivors.png

Three processes learn scikit-learn's digits.  A fourth joins, two are killed, and then
two new ones replace all; the result is that of a training that nobody disturbed."""

# %%
import argparse
import multiprocessing

import numpy as np

try:
    from sklearn.datasets import load_digits
except ImportError:
    raise SystemExit("survivors.py needs scikit-learn: pip install it") from None

import distlite as dist

FORK = multiprocessing.get_context("fork")
BATCH, RATE, STEPS = 64, 0.5, 50
IMAGES, LABELS = load_digits(return_X_y=True)
EVENTS = [([0, 1, 2], []), ([3], [0, 1]), ([4, 5], [2, 3])]  # joining, killed


def gradient(x: np.ndarray, step: int, rank: int, size: int) -> np.ndarray:
    batch = np.random.default_rng(step).integers(len(LABELS), size=BATCH)[rank::size]
    images, labels = IMAGES[batch] / 16, np.eye(10)[LABELS[batch]]
    scores = np.exp(images @ x.reshape(64, 10))
    scores /= scores.sum(axis=1, keepdims=True)
    return np.append(images.T @ (scores - labels), -np.log(scores[labels > 0]).sum())


def work(number: int, port: int) -> None:
    store = dist.TCPStore("127.0.0.1", port, timeout=60)
    state, is_over = {"x": np.zeros(640)}, False
    with dist.elastic.join(store, timeout=60) as member:
        while not is_over:
            try:
                view = member.next()
                member.restore(view, state.update, lambda: state)
                store.set(f"joined/{number}", "")
                step = (member.done or 0) + 1
                with member.step(step):
                    mine = gradient(state["x"], step, view.rank, view.size)
                    sums = np.append(mine, store.check(["over"]))
                    dist.all_reduce(sums, group=view.group)
            except dist.DistBackendError:
                continue  # this step is not committed
            state["x"] -= RATE / BATCH * sums[:-2]
            is_over = sums[-1] > 0  # somebody knows, so all end after the same step
            store.multi_set([f"loss/{step}", "step"], [str(sums[-2]), str(step)])
        store.set("result", state["x"].tobytes())


def main(picture: str | None = None) -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    workers = [FORK.Process(target=work, args=(n, store.port)) for n in range(6)]
    step, lives = 0, np.zeros((2, 6))
    for joining, killed in EVENTS:
        lives[0, joining] = step
        for number in joining:
            workers[number].start()
            store.get(f"joined/{number}")
        for number in killed:
            workers[number].kill()
        lives[1, killed] = begun = int(store.get("step"))
        step = begun + STEPS
        store.get(f"loss/{step}")
        print(f"step {step}: {joining} have joined, {killed} were killed", flush=True)
    store.set("over", "")
    for worker in workers:
        worker.join()
    alone, last = np.zeros(640), int(store.get("step"))
    for step in range(1, last + 1):
        alone -= RATE / BATCH * gradient(alone, step, 0, 1)[:-1]
    assert np.allclose(np.frombuffer(store.get("result")), alone, 1e-6, 1e-9)
    print(f"step {last}: the parameters are those of an undisturbed training")
    if picture:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(6, 3.5), layout="constrained")
        above, below = figure.subplots(2, sharex=True)
        above.plot([float(store.get(f"loss/{n + 1}")) / BATCH for n in range(last)])
        lives[1, 4:] = last
        below.barh(range(6), lives[1] - lives[0], left=lives[0])
        below.set(xlabel="step", ylabel="process", yticks=range(6))
        above.set_ylabel("loss")
        figure.savefig(picture, dpi=120)


# %%
if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plot", metavar="FILE.png")
    main(parser.parse_args().plot)
