# SPDX-License-Identifier: BSD-3-Clause
"""Training that outlives all of its processes.

    python examples/survivors.py

Three processes train the network of train_digits.py.  Two of them are killed, a fourth
joins, and then two new ones take the place of all.  The parameters are those of a
training that nobody disturbed, up to rounding.
"""

import multiprocessing
import time

import numpy as np
from train_digits import MOMENTUM, Data, Model

import distlite as dist
from distlite import elastic

BATCH, RATE, STEPS = 64, 0.05, 50


class Training:
    def __init__(self) -> None:
        self.model = Model(seed=0)
        self.state = {"x": self.model.parameters, "v": 0 * self.model.parameters}
        # Of the gradients, and of the members that know that the training is over.
        self.sums = np.zeros(self.state["x"].size + 1)

    def differentiate(self, data: Data, step: int) -> None:
        epoch, number = divmod(step - 1, -(-data.train_count // BATCH))
        self.model.parameters = self.state["x"]  # restore() may have brought another
        images, labels, self.count = list(data.batches(epoch, BATCH))[number]
        self.model.gradient(images, labels, self.sums[:-1])

    def advance(self) -> None:
        self.state["v"] *= MOMENTUM
        self.state["v"] -= RATE / self.count * self.sums[:-1]
        self.state["x"] += self.state["v"]


def work(number: int, port: int) -> None:
    store = dist.TCPStore("127.0.0.1", port)
    store.get(f"begin/{number}")
    training, epoch = Training(), 0
    with elastic.join(store, timeout=60) as member:
        while training.sums[-1] == 0:
            try:
                view = member.next()
                if view.epoch != epoch:
                    member.restore(view, training.state.update, lambda: training.state)
                    store.set(f"joined/{number}", "")
                    epoch, data = view.epoch, Data(view.rank, view.size)
                step = (member.done or 0) + 1
                with member.step(step):
                    training.differentiate(data, step)
                    training.sums[-1] = store.check(["over"])
                    dist.all_reduce(training.sums, group=view.group)
            except dist.DistBackendError:
                training.sums[-1] = 0  # this step is not committed
                continue
            training.advance()
            store.set("step", str(step))
        store.set("result", training.state["x"].tobytes())


if __name__ == "__main__":
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["train_digits"])
    workers = [context.Process(target=work, args=(n, store.port)) for n in range(6)]
    for process in workers:
        process.start()
    for what, joining, killed in (
        ("three members", [0, 1, 2], []),
        ("one was killed", [], [0]),
        ("another one, too", [], [1]),
        ("one has joined", [3], []),
        ("all were replaced", [4, 5], [2, 3]),
    ):
        for number in joining:
            store.set(f"begin/{number}", "")
            store.get(f"joined/{number}")
        for number in killed:
            workers[number].kill()
        end = store.add("step", 0) + STEPS
        while (step := store.add("step", 0)) < end:
            time.sleep(0.01)
        print(f"step {step}: {what}", flush=True)
    store.set("over", "")
    for process in workers:
        process.join()
    alone, data = Training(), Data(0, 1)
    for number in range(1, store.add("step", 0) + 1):
        alone.differentiate(data, number)
        alone.advance()
    result = np.frombuffer(store.get("result"))
    assert np.allclose(result, alone.state["x"], rtol=1e-6, atol=1e-9)
    print(f"step {number}: the parameters are those of an undisturbed training")
