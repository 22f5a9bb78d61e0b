"""Ask why nothing is happening to message 5.

A shop's queue: an order is being packed, its truck is taken, and a mail waits for an invoice that
waits for the order. One call shows the whole chain, down to the thread that is at work.
"""

import threading

from interlock import KeyedQueue


def main() -> None:
    queue = KeyedQueue[str](name="shop")
    queue.put("pack order 7", keys=["order:7", "truck:1"])
    queue.put("load", keys="truck:1")
    queue.put("invoice order 7", keys=["order:7", "customer:2"])
    queue.put("new address", keys="customer:2")
    mail = queue.put("mail to customer 2", shared="customer:2")

    packing, finish = threading.Event(), threading.Event()

    def handle(message: str) -> None:
        if message.startswith("pack"):
            packing.set()
            finish.wait()

    with queue.consume(handle, threads=2):
        packing.wait()
        explanation = queue.explain(mail)
        print(explanation)

        ids = [node.id for node in explanation.nodes]
        assert ids == [5, 3, 1], ids
        root = explanation.nodes[-1]
        assert (root.id, root.state) == (1, "leased")
        assert root.consumer.startswith("shop-handle")

        print(
            "busiest:", ", ".join(f"{hot.key.decode()} ({hot.depth})" for hot in queue.hot_keys(2))
        )
        finish.set()
        queue.join()

    assert queue.stats().acks == 5


if __name__ == "__main__":
    main()
