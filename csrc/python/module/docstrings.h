/* SPDX-License-Identifier: BSD-3-Clause */
/* The docstrings of python/distlite/_C.pyi, written by docs/docstrings.py: change them
 * there, and run `make format`. */
#ifndef DISTLITE_PYTHON_MODULE_DOCSTRINGS_H
#define DISTLITE_PYTHON_MODULE_DOCSTRINGS_H

/* clang-format off */

#define DLPY_DOC_DISTERROR \
    "The base class of all exceptions of distlite; a `RuntimeError`.\n" \
    "\n" \
    "Example:\n" \
    "    >>> try:\n" \
    "    ...     dist.HashStore().wait([\"key\"], timeout=0.01)\n" \
    "    ... except dist.DistError as error:\n" \
    "    ...     print(type(error).__name__)\n" \
    "    DistStoreError"

#define DLPY_DOC_DISTBACKENDERROR \
    "A collective operation or a message failed.\n" \
    "\n" \
    "A peer failed or did not arrive in time, the ranks called different operations, or\n" \
    "the backend itself failed.\n" \
    "\n" \
    "Example:\n" \
    "    >>> group = dist.new_group()\n" \
    "    >>> try:\n" \
    "    ...     dist.all_reduce(np.ones(2 + rank), group=group)\n" \
    "    ... except dist.DistBackendError:\n" \
    "    ...     print(\"the arrays differ in size\")\n" \
    "    the arrays differ in size"

#define DLPY_DOC_DISTNETWORKERROR \
    "A connection could not be made, or was lost.\n" \
    "\n" \
    "Example:\n" \
    "    >>> try:\n" \
    "    ...     dist.TCPStore(\"127.0.0.1\", 1, timeout=0)\n" \
    "    ... except dist.DistNetworkError:\n" \
    "    ...     print(\"no server\")\n" \
    "    no server"

#define DLPY_DOC_DISTSTOREERROR \
    "A store timed out, was closed, or refused a request.\n" \
    "\n" \
    "Example:\n" \
    "    >>> try:\n" \
    "    ...     dist.HashStore().wait([\"model\"], 0)\n" \
    "    ... except dist.DistStoreError as error:\n" \
    "    ...     print(error)\n" \
    "    wait timeout after 0ms, keys: model"

#define DLPY_DOC_QUEUEEMPTYERROR \
    "A queue of a store had no item, and the call was told not to wait for one.\n" \
    "\n" \
    "Example:\n" \
    "    >>> try:\n" \
    "    ...     dist.HashStore().queue_pop(\"jobs\", block=False)\n" \
    "    ... except dist.QueueEmptyError:\n" \
    "    ...     print(\"no job\")\n" \
    "    no job"

#define DLPY_DOC_STORE \
    "A key-value store that processes share; the base class of all kinds.\n" \
    "\n" \
    "Keys and values are str (encoded as UTF-8) or bytes; values are returned as bytes. A\n" \
    "store can also be used as a mapping: `store[key]` (which raises KeyError at once if\n" \
    "the key does not exist), `key in store`, `del store[key]`, and iteration over the\n" \
    "keys. As a context manager it closes itself.\n" \
    "\n" \
    "A subclass that is written in Python overrides the methods that it supports, and may\n" \
    "be used wherever a store is expected: keys arrive as str, values as bytes. `append`,\n" \
    "`multi_get`, `multi_set`, `wait` and `barrier` fall back on the other methods where\n" \
    "they are not overridden; all others raise NotImplementedError.\n" \
    "\n" \
    "A timeout is a `timedelta` or a number of seconds: 0 looks once, a negative one\n" \
    "never ends, and None is the store's own.\n" \
    "\n" \
    "Example:\n" \
    "    >>> store = dist.HashStore()\n" \
    "    >>> store[\"answer\"] = \"42\"\n" \
    "    >>> store[\"answer\"], \"question\" in store, list(store)\n" \
    "    (b'42', False, ['answer'])"

#define DLPY_DOC_STORE_SET \
    "Stores a value under a key, and replaces what was there.\n" \
    "\n" \
    "Args:\n" \
    "    key: The key, str or bytes.\n" \
    "    value: The value, str, bytes or another buffer.\n" \
    "    ttl: The time to live, a `timedelta` or seconds, after which the key is gone\n" \
    "        unless it was set again; None keeps the value for ever.\n" \
    "\n" \
    "Raises:\n" \
    "    DistStoreError: The store is closed, or its server cannot be reached.\n" \
    "    ValueError: The `ttl` is not positive.\n" \
    "    NotImplementedError: There is a `ttl`, and the store is written in Python\n" \
    "        or its server is torch's.\n" \
    "\n" \
    "Example:\n" \
    "    >>> store = dist.HashStore()\n" \
    "    >>> store.set(\"key\", \"value\")\n" \
    "    >>> store.get(\"key\")\n" \
    "    b'value'"

#define DLPY_DOC_STORE_GET \
    "Returns the value of a key, and waits until the key exists.\n" \
    "\n" \
    "Args:\n" \
    "    key: The key, str or bytes.\n" \
    "    timeout: The time to wait, a `timedelta` or seconds; None is the store's\n" \
    "        own, 0 looks once, and a negative one never ends.\n" \
    "\n" \
    "Returns:\n" \
    "    The value as bytes.\n" \
    "\n" \
    "Raises:\n" \
    "    DistStoreError: The key did not exist within the timeout, or the store is\n" \
    "        closed.\n" \
    "\n" \
    "Example:\n" \
    "    >>> store = dist.HashStore()\n" \
    "    >>> store.set(\"key\", \"value\")\n" \
    "    >>> store.get(\"key\")\n" \
    "    b'value'"

#define DLPY_DOC_STORE_ADD \
    "Adds a number to a counter.\n" \
    "\n" \
    "A counter is a value like any other, in decimal digits. It begins at 0, and\n" \
    "wraps at 64 bits.\n" \
    "\n" \
    "Args:\n" \
    "    key: The key of the counter.\n" \
    "    amount: The number to add, which may be negative.\n" \
    "\n" \
    "Returns:\n" \
    "    The sum.\n" \
    "\n" \
    "Raises:\n" \
    "    ValueError: The value is not a number; it stays as it is.\n" \
    "    DistStoreError: The store is closed, or its server cannot be reached.\n" \
    "\n" \
    "Example:\n" \
    "    >>> store = dist.HashStore()\n" \
    "    >>> store.add(\"steps\", 2), store.add(\"steps\", 3), store.get(\"steps\")\n" \
    "    (2, 5, b'5')"

#define DLPY_DOC_STORE_COMPARE_SET \
    "Replaces a value if it is what the caller expects.\n" \
    "\n" \
    "If the key does not exist it is set if `expected` is empty.\n" \
    "\n" \
    "Args:\n" \
    "    key: The key.\n" \
    "    expected: The value that shall be replaced.\n" \
    "    desired: The new value.\n" \
    "    ttl: The new value's time to live, as in `set`.\n" \
    "\n" \
    "Returns:\n" \
    "    The value of the key afterwards; `expected` if the key does not exist.\n" \
    "\n" \
    "Raises:\n" \
    "    DistStoreError: The store is closed, or its server cannot be reached.\n" \
    "    ValueError: The `ttl` is not positive.\n" \
    "    NotImplementedError: There is a `ttl`, and the store is written in Python\n" \
    "        or its server is torch's.\n" \
    "\n" \
    "Example:\n" \
    "    >>> store = dist.HashStore()\n" \
    "    >>> store.compare_set(\"leader\", \"\", \"rank 1\")\n" \
    "    b'rank 1'\n" \
    "    >>> store.compare_set(\"leader\", \"\", \"rank 2\")\n" \
    "    b'rank 1'"

#define DLPY_DOC_STORE_DELETE_KEY \
    "Removes a key.\n" \
    "\n" \
    "Args:\n" \
    "    key: The key.\n" \
    "\n" \
    "Returns:\n" \
    "    Whether the key existed.\n" \
    "\n" \
    "Raises:\n" \
    "    DistStoreError: The store is closed, or its server cannot be reached.\n" \
    "\n" \
    "Example:\n" \
    "    >>> store = dist.HashStore()\n" \
    "    >>> store.set(\"key\", \"value\")\n" \
    "    >>> store.delete_key(\"key\"), store.delete_key(\"key\")\n" \
    "    (True, False)"

#define DLPY_DOC_STORE_APPEND \
    "Adds bytes to the end of a value, which is empty if the key does not exist.\n" \
    "\n" \
    "Args:\n" \
    "    key: The key.\n" \
    "    value: The bytes to add.\n" \
    "\n" \
    "Raises:\n" \
    "    DistStoreError: The store is closed, or its server cannot be reached.\n" \
    "\n" \
    "Example:\n" \
    "    >>> store = dist.HashStore()\n" \
    "    >>> store.append(\"log\", \"first \")\n" \
    "    >>> store.append(\"log\", \"second\")\n" \
    "    >>> store.get(\"log\")\n" \
    "    b'first second'"

#define DLPY_DOC_STORE_QUEUE_PUSH \
    "Adds a value to the end of a queue.\n" \
    "\n" \
    "The names of queues are separate from those of values.\n" \
    "\n" \
    "Args:\n" \
    "    key: The name of the queue.\n" \
    "    value: The value.\n" \
    "\n" \
    "Raises:\n" \
    "    NotImplementedError: The store has no queues.\n" \
    "    DistStoreError: The store is closed, or its server cannot be reached.\n" \
    "\n" \
    "Example:\n" \
    "    >>> store = dist.HashStore()\n" \
    "    >>> store.queue_push(\"jobs\", \"first\")\n" \
    "    >>> store.queue_push(\"jobs\", \"second\")\n" \
    "    >>> store.queue_pop(\"jobs\")\n" \
    "    b'first'"

#define DLPY_DOC_STORE_QUEUE_POP \
    "Removes the first value of a queue, and returns it.\n" \
    "\n" \
    "Args:\n" \
    "    key: The name of the queue.\n" \
    "    block: Whether to wait for a value.\n" \
    "    timeout: The time to wait, a `timedelta` or seconds; None is the store's\n" \
    "        own, and a negative one never ends.\n" \
    "\n" \
    "Returns:\n" \
    "    The value as bytes.\n" \
    "\n" \
    "Raises:\n" \
    "    QueueEmptyError: The queue is empty, and `block` is False.\n" \
    "    NotImplementedError: The store has no queues.\n" \
    "    DistStoreError: The timeout ended, or the store is closed.\n" \
    "\n" \
    "Example:\n" \
    "    >>> store = dist.HashStore()\n" \
    "    >>> store.queue_push(\"jobs\", \"first\")\n" \
    "    >>> store.queue_pop(\"jobs\", block=False)\n" \
    "    b'first'"

#define DLPY_DOC_STORE_QUEUE_LEN \
    "Returns the number of values in a queue.\n" \
    "\n" \
    "Args:\n" \
    "    key: The name of the queue.\n" \
    "\n" \
    "Returns:\n" \
    "    The number, 0 if there is no such queue.\n" \
    "\n" \
    "Raises:\n" \
    "    NotImplementedError: The store has no queues.\n" \
    "    DistStoreError: The store is closed, or its server cannot be reached.\n" \
    "\n" \
    "Example:\n" \
    "    >>> store = dist.HashStore()\n" \
    "    >>> store.queue_push(\"jobs\", \"first\")\n" \
    "    >>> store.queue_len(\"jobs\")\n" \
    "    1"

#define DLPY_DOC_STORE_CHECK \
    "Tells whether all of the keys exist.\n" \
    "\n" \
    "Args:\n" \
    "    keys: The keys: of values, or of queues that are not empty.\n" \
    "\n" \
    "Returns:\n" \
    "    True if all exist, otherwise False.\n" \
    "\n" \
    "Raises:\n" \
    "    DistStoreError: The store is closed, or its server cannot be reached.\n" \
    "\n" \
    "Example:\n" \
    "    >>> store = dist.HashStore()\n" \
    "    >>> store.set(\"a\", \"1\")\n" \
    "    >>> store.check([\"a\"]), store.check([\"a\", \"b\"])\n" \
    "    (True, False)"

#define DLPY_DOC_STORE_WAIT \
    "Waits until all of the keys exist.\n" \
    "\n" \
    "Args:\n" \
    "    keys: The keys.\n" \
    "    timeout: The time to wait, a `timedelta` or seconds; None is the store's\n" \
    "        own, 0 looks once, and a negative one never ends.\n" \
    "\n" \
    "Raises:\n" \
    "    DistStoreError: A key did not exist within the timeout, or the store is\n" \
    "        closed.\n" \
    "\n" \
    "Example:\n" \
    "    >>> store = dist.HashStore()\n" \
    "    >>> store.set(\"ready\", \"\")\n" \
    "    >>> store.wait([\"ready\"], timeout=5.0)"

#define DLPY_DOC_STORE_NUM_KEYS \
    "Returns the number of values in the store.\n" \
    "\n" \
    "Returns:\n" \
    "    The number, which includes the values that the store keeps for itself.\n" \
    "\n" \
    "Raises:\n" \
    "    DistStoreError: The store is closed, or its server cannot be reached.\n" \
    "\n" \
    "Example:\n" \
    "    >>> store = dist.HashStore()\n" \
    "    >>> store.set(\"key\", \"value\")\n" \
    "    >>> store.num_keys()\n" \
    "    1"

#define DLPY_DOC_STORE_LIST_KEYS \
    "Returns the keys of all values, in no particular order.\n" \
    "\n" \
    "Returns:\n" \
    "    A list of str. Bytes that are not UTF-8 are escaped as surrogates, which\n" \
    "    every method accepts.\n" \
    "\n" \
    "Raises:\n" \
    "    DistStoreError: The store is closed, or its server cannot be reached.\n" \
    "\n" \
    "Example:\n" \
    "    >>> store = dist.HashStore()\n" \
    "    >>> store.set(\"key\", \"value\")\n" \
    "    >>> store.list_keys()\n" \
    "    ['key']"

#define DLPY_DOC_STORE_STATS \
    "Returns what the store holds, and what its server has done and refused.\n" \
    "\n" \
    "A `TCPStore` asks its server, which has to be one of distlite; a `HashStore`\n" \
    "tells only `keys`, `names`, `bytes`, `waiters`, `expiring` and `expired`.\n" \
    "\n" \
    "Returns:\n" \
    "    A dict: `keys` (values), `names` (also of queues, and names that are waited\n" \
    "    for), `bytes` of the table, `waiters`, `expiring` and `expired` (values with\n" \
    "    a time to live, and those that have ended), `clients` that are connected,\n" \
    "    `unix_clients` (those of them that go by the Unix socket of the server's\n" \
    "    host), `requests` served, `input_bytes` of requests that are half received,\n" \
    "    `output_bytes` of replies that clients have not read, `slowest_turn_us` (the\n" \
    "    longest time in which one client's turn kept the others waiting),\n" \
    "    `uptime_ms`, `identity` (the server's, as hexadecimal digits), and dicts of\n" \
    "    counts: `refusals` by limit; `closed`, the connections that the server\n" \
    "    ended, by kind of error; `replies`, what it remembers for calls that are\n" \
    "    repeated; and `journal`, if it has one.\n" \
    "\n" \
    "Raises:\n" \
    "    NotImplementedError: The kind of store has no such counts, or the server is\n" \
    "        torch's.\n" \
    "    DistStoreError: The store is closed, or its server cannot be reached.\n" \
    "\n" \
    "Example:\n" \
    "    >>> store = dist.HashStore()\n" \
    "    >>> store.set(\"key\", \"value\")\n" \
    "    >>> store.stats()[\"keys\"]\n" \
    "    1"

#define DLPY_DOC_STORE_MULTI_GET \
    "Returns the values of several keys, and waits until all exist.\n" \
    "\n" \
    "Args:\n" \
    "    keys: The keys.\n" \
    "    timeout: The time to wait for all of them, a `timedelta` or seconds; None is\n" \
    "        the store's own, 0 looks once, and a negative one never ends.\n" \
    "\n" \
    "Returns:\n" \
    "    The values as a list of bytes, in the order of the keys.\n" \
    "\n" \
    "Raises:\n" \
    "    DistStoreError: A key did not exist within the timeout, or the store is\n" \
    "        closed.\n" \
    "\n" \
    "Example:\n" \
    "    >>> store = dist.HashStore()\n" \
    "    >>> store.multi_set([\"a\", \"b\"], [\"1\", \"2\"])\n" \
    "    >>> store.multi_get([\"b\", \"a\"])\n" \
    "    [b'2', b'1']"

#define DLPY_DOC_STORE_MULTI_SET \
    "Stores several values.\n" \
    "\n" \
    "Args:\n" \
    "    keys: The keys.\n" \
    "    values: The values, one for each key.\n" \
    "\n" \
    "Raises:\n" \
    "    DistStoreError: There are not as many values as keys, and nothing has been\n" \
    "        stored; or the store is closed.\n" \
    "\n" \
    "Example:\n" \
    "    >>> store = dist.HashStore()\n" \
    "    >>> store.multi_set([\"a\", \"b\"], [\"1\", \"2\"])\n" \
    "    >>> store.get(\"b\")\n" \
    "    b'2'"

#define DLPY_DOC_STORE_BARRIER \
    "Waits until a number of callers have come to a key.\n" \
    "\n" \
    "A key serves once: later callers do not wait.\n" \
    "\n" \
    "Args:\n" \
    "    key: The key of the barrier.\n" \
    "    world_size: The number of callers.\n" \
    "    timeout: The time to wait, a `timedelta` or seconds; None is the store's\n" \
    "        own.\n" \
    "\n" \
    "Raises:\n" \
    "    DistStoreError: The others did not come within the timeout, or the store is\n" \
    "        closed.\n" \
    "\n" \
    "Example:\n" \
    "    >>> store = dist.HashStore()\n" \
    "    >>> store.barrier(\"start\", world_size=1)"

#define DLPY_DOC_STORE_HAS_EXTENDED_API \
    "Tells whether `append`, `multi_get` and `multi_set` are one request each.\n" \
    "\n" \
    "Returns:\n" \
    "    True or False.\n" \
    "\n" \
    "Example:\n" \
    "    >>> dist.HashStore().has_extended_api()\n" \
    "    True"

#define DLPY_DOC_STORE_CLONE \
    "Makes a second store of the same data, with the same timeout.\n" \
    "\n" \
    "Returns:\n" \
    "    Of a `TCPStore` a store with a connection of its own, of a `HashStore` the\n" \
    "    store itself.\n" \
    "\n" \
    "Raises:\n" \
    "    DistNetworkError: The server cannot be reached.\n" \
    "    DistStoreError: The store is closed, or its server cannot be reached.\n" \
    "\n" \
    "Example:\n" \
    "    >>> store = dist.HashStore()\n" \
    "    >>> store.set(\"key\", \"value\")\n" \
    "    >>> store.clone().get(\"key\")\n" \
    "    b'value'"

#define DLPY_DOC_STORE_TIMEOUT \
    "The time that calls wait by default; negative if it never ends."

#define DLPY_DOC_STORE_SET_TIMEOUT \
    "Sets the time that calls wait by default.\n" \
    "\n" \
    "Args:\n" \
    "    timeout: A `timedelta` or seconds; 0 looks once, a negative one never ends.\n" \
    "\n" \
    "Example:\n" \
    "    >>> store = dist.HashStore()\n" \
    "    >>> store.set_timeout(2.5)\n" \
    "    >>> store.timeout\n" \
    "    datetime.timedelta(seconds=2, microseconds=500000)"

#define DLPY_DOC_STORE_CLOSE \
    "Closes the store: its connections, and the server that it runs.\n" \
    "\n" \
    "Calls that wait, and later ones, raise DistStoreError. A second call does\n" \
    "nothing.\n" \
    "\n" \
    "Example:\n" \
    "    >>> store = dist.HashStore()\n" \
    "    >>> store.close()"

#define DLPY_DOC_STORE_DICT \
    "Returns a view of the store as a dict of numbers, arrays and other data.\n" \
    "\n" \
    "See `distlite.stores.StoreDict` for what its values may be.\n" \
    "\n" \
    "Args:\n" \
    "    prefix: What the names of the view's keys begin with in the store.\n" \
    "\n" \
    "Returns:\n" \
    "    A `StoreDict`.\n" \
    "\n" \
    "Example:\n" \
    "    >>> store = dist.HashStore()\n" \
    "    >>> run = store.dict(\"run/\")\n" \
    "    >>> run[\"rates\"] = [0.1, 0.01]\n" \
    "    >>> run[\"steps\"] = 4\n" \
    "    >>> run[\"steps\"] += 1  # loses no count, whoever else counts\n" \
    "    >>> run[\"rates\"], run[\"steps\"], list(store)\n" \
    "    ([0.1, 0.01], 5, ...)"

#define DLPY_DOC_STORE_ITEMS \
    "Returns the keys that begin with a prefix, with their values.\n" \
    "\n" \
    "It takes two round trips, and more only if keys are deleted meanwhile, or for\n" \
    "more than 131,072 keys. The values are not of one instant: others may write\n" \
    "between the two.\n" \
    "\n" \
    "Args:\n" \
    "    prefix: What the keys begin with; \"\" is all of them.\n" \
    "\n" \
    "Returns:\n" \
    "    Pairs of key and value, sorted by key. A key that has been deleted in\n" \
    "    between is not among them.\n" \
    "\n" \
    "Raises:\n" \
    "    NotImplementedError: The store cannot list its keys.\n" \
    "    DistStoreError: The store is closed, or its server cannot be reached.\n" \
    "\n" \
    "Example:\n" \
    "    >>> store = dist.HashStore()\n" \
    "    >>> store.multi_set([\"host/0\", \"host/1\", \"x\"], [\"alpha\", \"beta\", \"\"])\n" \
    "    >>> store.items(\"host/\")\n" \
    "    [('host/0', b'alpha'), ('host/1', b'beta')]"

#define DLPY_DOC_STORE_WATCH \
    "Returns an iterator over the changes of keys that begin with a prefix.\n" \
    "\n" \
    "The store is read again and again: the wire has no notifications. Each look\n" \
    "reads all values below the prefix; the pauses between two grow from 10 ms to\n" \
    "`interval` while nothing changes. Several changes of a key between two looks are\n" \
    "one, and a value that is set to what it was is none. Changes count from the\n" \
    "call, not from the first step of the iteration.\n" \
    "\n" \
    "Args:\n" \
    "    prefix: What the keys begin with; \"\" is all of them.\n" \
    "    timeout: The time to wait for the next change, a `timedelta` or seconds,\n" \
    "        after which the iteration ends; None and a negative one never end.\n" \
    "    initial: Whether to begin with what is there, as if it had just been added.\n" \
    "    interval: The longest pause between two looks, in seconds.\n" \
    "\n" \
    "Returns:\n" \
    "    An iterator over `distlite.stores.Change`: `key`, `value` (bytes, or None of\n" \
    "    a deleted key) and `kind` (\"added\", \"changed\" or \"deleted\").\n" \
    "\n" \
    "Raises:\n" \
    "    NotImplementedError: The store cannot list its keys.\n" \
    "    DistStoreError: The store is closed, or its server cannot be reached.\n" \
    "\n" \
    "Example:\n" \
    "    >>> store = dist.HashStore()\n" \
    "    >>> changes = store.watch(\"job/\", timeout=0.1)\n" \
    "    >>> store.set(\"job/1\", \"begun\")\n" \
    "    >>> for change in changes:\n" \
    "    ...     print(change.kind, change.key, change.value)\n" \
    "    added job/1 b'begun'"

#define DLPY_DOC_STORE_LOCK \
    "Returns a lock between all users of the store, for a with statement.\n" \
    "\n" \
    "See `distlite.store_lock.StoreLock`. A holder that dies keeps a lock without a\n" \
    "lease.\n" \
    "\n" \
    "Args:\n" \
    "    name: The name of the lock.\n" \
    "    timeout: The time to wait for it, a `timedelta` or seconds; None is the\n" \
    "        store's own.\n" \
    "    lease: The time after which the others take the lock from a holder that does\n" \
    "        not renew it, a `timedelta` or seconds. A thread of the holder renews it\n" \
    "        while the process lives.\n" \
    "\n" \
    "Returns:\n" \
    "    A `StoreLock`, which is not held yet.\n" \
    "\n" \
    "Example:\n" \
    "    >>> store = dist.HashStore()\n" \
    "    >>> with store.lock(\"checkpoint\", timeout=5.0, lease=10.0) as lock:\n" \
    "    ...     store.set(\"saved\", \"1\")\n" \
    "    ...     print(lock.is_held)\n" \
    "    True"

#define DLPY_DOC_STORE_ASET \
    "The coroutine of `set`: other tasks of the loop run while it is under way."

#define DLPY_DOC_STORE_AGET \
    "The coroutine of `get`: other tasks of the loop run while it waits.\n" \
    "\n" \
    "A task that is cancelled stops waiting at once. All coroutines of stores share\n" \
    "two small pools of threads, one of which serves those that wait: these take\n" \
    "turns, so that any number of them leaves the other calls free.\n" \
    "\n" \
    "Args:\n" \
    "    key: The key, str or bytes.\n" \
    "    timeout: The time to wait, a `timedelta` or seconds; None is the store's\n" \
    "        own, 0 looks once, and a negative one never ends.\n" \
    "\n" \
    "Returns:\n" \
    "    The value as bytes.\n" \
    "\n" \
    "Raises:\n" \
    "    DistStoreError: The key did not exist within the timeout, or the store is\n" \
    "        closed.\n" \
    "\n" \
    "Example:\n" \
    "    >>> import asyncio\n" \
    "    >>> async def meet(store):\n" \
    "    ...     waiting = asyncio.create_task(store.aget(\"key\"))\n" \
    "    ...     await store.aset(\"key\", \"value\")\n" \
    "    ...     return await waiting\n" \
    "    >>> asyncio.run(meet(dist.HashStore()))\n" \
    "    b'value'"

#define DLPY_DOC_STORE_AADD \
    "The coroutine of `add`."

#define DLPY_DOC_STORE_ACOMPARE_SET \
    "The coroutine of `compare_set`."

#define DLPY_DOC_STORE_ADELETE_KEY \
    "The coroutine of `delete_key`."

#define DLPY_DOC_STORE_AAPPEND \
    "The coroutine of `append`."

#define DLPY_DOC_STORE_AQUEUE_PUSH \
    "The coroutine of `queue_push`."

#define DLPY_DOC_STORE_AQUEUE_POP \
    "The coroutine of `queue_pop`.\n" \
    "\n" \
    "A task that is cancelled loses no item: one that it has just got goes back to\n" \
    "the end of the queue."

#define DLPY_DOC_STORE_AQUEUE_LEN \
    "The coroutine of `queue_len`."

#define DLPY_DOC_STORE_ACHECK \
    "The coroutine of `check`."

#define DLPY_DOC_STORE_AWAIT_ \
    "The coroutine of `wait`."

#define DLPY_DOC_STORE_ANUM_KEYS \
    "The coroutine of `num_keys`."

#define DLPY_DOC_STORE_ALIST_KEYS \
    "The coroutine of `list_keys`."

#define DLPY_DOC_STORE_AMULTI_GET \
    "The coroutine of `multi_get`."

#define DLPY_DOC_STORE_AMULTI_SET \
    "The coroutine of `multi_set`."

#define DLPY_DOC_STORE_ABARRIER \
    "The coroutine of `barrier`.\n" \
    "\n" \
    "Each call has a thread of its own. With a `TCPStore` it also has a connection,\n" \
    "which a task that is cancelled closes; with other stores the thread stays until\n" \
    "the timeout. A task that is cancelled has come to the barrier all the same."

#define DLPY_DOC_STORE_ASTATS \
    "The coroutine of `stats`."

#define DLPY_DOC_STORE_ACLONE \
    "The coroutine of `clone`."

#define DLPY_DOC_STORE_AITEMS \
    "The coroutine of `items`."

#define DLPY_DOC_STORE_AWATCH \
    "The asynchronous iterator of `watch`, for `async for`.\n" \
    "\n" \
    "Changes count from the first step of the iteration."

#define DLPY_DOC_HASHSTORE \
    "A store in the memory of this process, for its threads.\n" \
    "\n" \
    "Example:\n" \
    "    >>> store = dist.HashStore()\n" \
    "    >>> store.set(\"key\", \"value\")\n" \
    "    >>> store.get(\"key\")\n" \
    "    b'value'"

#define DLPY_DOC_FILESTORE \
    "A store in a file that processes share, on one host or on a network file system.\n" \
    "\n" \
    "The file system needs working locks. An existing file is continued. The store has no\n" \
    "queues.\n" \
    "\n" \
    "Args:\n" \
    "    file_name: The path of the file, which is made if it does not exist.\n" \
    "    world_size: The number of stores that use the file in all: the last one that is\n" \
    "        closed removes the file. Negative: the file is never removed.\n" \
    "\n" \
    "Raises:\n" \
    "    DistStoreError: The file cannot be opened or made.\n" \
    "\n" \
    "Example:\n" \
    "    >>> import os, tempfile\n" \
    "    >>> folder = tempfile.TemporaryDirectory()\n" \
    "    >>> store = dist.FileStore(os.path.join(folder.name, \"store\"), world_size=1)\n" \
    "    >>> store.set(\"key\", \"value\")\n" \
    "    >>> store.get(\"key\")\n" \
    "    b'value'\n" \
    "    >>> store.close()\n" \
    "    >>> folder.cleanup()"

#define DLPY_DOC_FILESTORE_PATH \
    "The path of the file, as it was given."

#define DLPY_DOC_PREFIXSTORE \
    "A view of another store, in which `key` stands for `prefix/key` of that store.\n" \
    "\n" \
    "The timeout is that of the other store, and `num_keys` counts all of its keys.\n" \
    "\n" \
    "Args:\n" \
    "    prefix: The prefix, without the slash.\n" \
    "    store: The other store.\n" \
    "\n" \
    "Example:\n" \
    "    >>> store = dist.HashStore()\n" \
    "    >>> view = dist.PrefixStore(\"training\", store)\n" \
    "    >>> view.set(\"epoch\", \"3\")\n" \
    "    >>> store.get(\"training/epoch\")\n" \
    "    b'3'"

#define DLPY_DOC_PREFIXSTORE_UNDERLYING_STORE \
    "The other store."

#define DLPY_DOC_TCPSTORE \
    "A store that a server keeps, and of which every process is a client.\n" \
    "\n" \
    "One process, the master, also runs the server, in a thread. Server and clients\n" \
    "understand those of torch.\n" \
    "\n" \
    "Args:\n" \
    "    host_name: The host of the server. The master listens there; at \"\", \"0.0.0.0\"\n" \
    "        and \"::\" it listens on all addresses.\n" \
    "    port: The port of the server, 0 to 65535; a master with 0 gets a free one, which\n" \
    "        the attribute `port` tells.\n" \
    "    world_size: The number of clients, the master included, for which the\n" \
    "        constructor waits; None: it does not wait.\n" \
    "    is_master: Whether this process runs the server.\n" \
    "    timeout: The time that the constructor takes at most, and then the store's\n" \
    "        timeout: a `timedelta` or seconds; None is 300 seconds.\n" \
    "    wait_for_workers: If False, the constructor does not wait for the other clients.\n" \
    "    multi_tenant: If True, masters of one port in one process share a server.\n" \
    "    master_listen_fd: A bound socket, as a file descriptor, that the server takes\n" \
    "        over.\n" \
    "    use_libuv: Which of two servers runs. If it is not given, the environment\n" \
    "        variable USE_LIBUV (0 or 1) decides; otherwise it is libuv where the build\n" \
    "        has it.\n" \
    "    token: The job's secret, which server and clients prove to each other that they\n" \
    "        know. If it is None, the environment variable DISTLITE_TOKEN, or the file\n" \
    "        that DISTLITE_TOKEN_FILE names, has it; without them the store is open to\n" \
    "        everybody who can connect, torch's clients included.\n" \
    "    journal: The path of a file in which the master's server keeps what the store\n" \
    "        holds. A server that is started on the same file continues where the last\n" \
    "        one ended, however that was. The file has mode 0600, and one server at a\n" \
    "        time. None: nothing is kept.\n" \
    "    journal_sync: When the disk has what was acknowledged: \"never\" waits for it, so\n" \
    "        that changes outlive the server and not its host; \"interval\" waits once a\n" \
    "        second; \"always\" before each reply.\n" \
    "    tls: \"psk\" encrypts connections with TLS 1.3 and a key made of the token, \"cert\"\n" \
    "        with certificates, \"off\" not at all; if it is None, the environment variable\n" \
    "        DISTLITE_TLS decides. Server and clients need the same.\n" \
    "\n" \
    "Raises:\n" \
    "    DistNetworkError: The server cannot be started or reached, or the token, TLS or\n" \
    "        a certificate is not the server's.\n" \
    "    DistStoreError: Not all clients came within the timeout, or a token or TLS is\n" \
    "        asked for and there is no OpenSSL.\n" \
    "    NotImplementedError: The OpenSSL that was found is too old.\n" \
    "    ValueError: The port is out of range, the token is empty, the journal is used by\n" \
    "        another server, is a symbolic link, or is open to other users, there is no\n" \
    "        such mode of TLS, or a token or certificate that it needs is missing.\n" \
    "\n" \
    "Example:\n" \
    "    >>> master = dist.TCPStore(\"localhost\", 0, is_master=True, timeout=5.0)\n" \
    "    >>> client = dist.TCPStore(\"localhost\", master.port, timeout=5.0)\n" \
    "    >>> client.set(\"key\", \"value\")\n" \
    "    >>> master.get(\"key\")\n" \
    "    b'value'\n" \
    "    >>> client.close()\n" \
    "    >>> master.close()"

#define DLPY_DOC_TCPSTORE_HOST \
    "The name of the server's host, as it was given."

#define DLPY_DOC_TCPSTORE_PORT \
    "The port of the server; the one that it got if 0 was given."

#define DLPY_DOC_TCPSTORE_LIBUVBACKEND \
    "Whether the server with libuv was asked for."

#define DLPY_DOC_PROCESSGROUP \
    "Processes that communicate.\n" \
    "\n" \
    "`init_process_group` and `new_group` return groups. The constructor makes one by\n" \
    "hand: `ProcessGroup(store, rank, size, timeout=None, group_name=\"0\",\n" \
    "group_desc=\"undefined\", backend=\"cpu\")`, which every rank calls with the same store,\n" \
    "and which returns when all have. Each collective of the module is also a method,\n" \
    "without the parameter `group`.\n" \
    "\n" \
    "A subclass that defines `__init__`, and calls this one's with `(rank, size)`,\n" \
    "implements the operations itself: `allreduce(tensors, opts)` and so on, each of\n" \
    "which returns a `Work`.\n" \
    "\n" \
    "Example:\n" \
    "    >>> group = dist.new_group([0, 1])\n" \
    "    >>> values = np.array([rank + 1.0])\n" \
    "    >>> group.all_reduce(values)\n" \
    "    >>> values, group.size(), group.rank() == rank\n" \
    "    (array([3.]), 2, True)"

#define DLPY_DOC_PROCESSGROUP_RANK \
    "Returns the rank of this process in the group.\n" \
    "\n" \
    "Example:\n" \
    "    >>> dist.new_group([0, 1]).rank() == rank\n" \
    "    True"

#define DLPY_DOC_PROCESSGROUP_SIZE \
    "Returns the number of ranks in the group.\n" \
    "\n" \
    "Example:\n" \
    "    >>> dist.new_group([0, 1]).size()\n" \
    "    2"

#define DLPY_DOC_PROCESSGROUP_NAME \
    "Returns the name of the backend that serves the group.\n" \
    "\n" \
    "Example:\n" \
    "    >>> dist.new_group([0, 1], backend=\"gloo\").name()\n" \
    "    'gloo'"

#define DLPY_DOC_PROCESSGROUP_GROUP_NAME \
    "The name of the group, the same on all of its ranks."

#define DLPY_DOC_PROCESSGROUP_GROUP_DESC \
    "What the group is for, as it was given."

#define DLPY_DOC_PROCESSGROUP_TIMEOUT \
    "The time that an operation may take; negative if it never ends."

#define DLPY_DOC_PROCESSGROUP_SET_TIMEOUT \
    "Sets the time that an operation may take from now on.\n" \
    "\n" \
    "Args:\n" \
    "    timeout: A `timedelta` or seconds; a negative one never ends.\n" \
    "\n" \
    "Example:\n" \
    "    >>> group = dist.new_group([0, 1])\n" \
    "    >>> group.set_timeout(60)\n" \
    "    >>> group.timeout\n" \
    "    datetime.timedelta(seconds=60)"

#define DLPY_DOC_PROCESSGROUP_GET_GROUP_STORE \
    "Returns the store over which the ranks of the group have met.\n" \
    "\n" \
    "Example:\n" \
    "    >>> store = dist.new_group([0, 1]).get_group_store()\n" \
    "    >>> store.barrier(\"checkpoint\", world_size=2)"

#define DLPY_DOC_PROCESSGROUP_ABORT \
    "Makes running and later operations of the group fail at once.\n" \
    "\n" \
    "It may be called from any thread. The operations raise DistBackendError, also on\n" \
    "the other ranks.\n" \
    "\n" \
    "Example:\n" \
    "    >>> group = dist.new_group([rank], use_local_synchronization=True)\n" \
    "    >>> group.abort()\n" \
    "    >>> try:\n" \
    "    ...     group.barrier(async_op=False)\n" \
    "    ... except dist.DistBackendError:\n" \
    "    ...     print(\"aborted\")\n" \
    "    aborted"

#define DLPY_DOC_PROCESSGROUP_SHUTDOWN \
    "Leaves the group; later operations fail.\n" \
    "\n" \
    "Example:\n" \
    "    >>> group = dist.new_group([rank], use_local_synchronization=True)\n" \
    "    >>> group.shutdown()"

#define DLPY_DOC_WORK \
    "An operation that continues while its caller does something else.\n" \
    "\n" \
    "Asynchronous operations return it. It can be awaited under asyncio. Backends that\n" \
    "are written in Python return subclasses, which override `wait` and whatever else\n" \
    "their operations can tell: `is_completed`, `exception`, `result`, `get_future`.\n" \
    "\n" \
    "Example:\n" \
    "    >>> values = np.array([rank + 1.0])\n" \
    "    >>> work = dist.all_reduce(values, async_op=True)\n" \
    "    >>> work.wait()\n" \
    "    True\n" \
    "    >>> values\n" \
    "    array([3.])"

#define DLPY_DOC_WORK_WAIT \
    "Waits until the operation has completed.\n" \
    "\n" \
    "It may be called again, with the same result. A timeout that ends before the\n" \
    "operation's own ends the wait only. For an array on a CUDA device it makes the\n" \
    "current stream wait, and not the host.\n" \
    "\n" \
    "Args:\n" \
    "    timeout: The time to wait, a `timedelta` or seconds; None and 0 are as long\n" \
    "        as the operation itself may take, the group's timeout.\n" \
    "\n" \
    "Returns:\n" \
    "    True.\n" \
    "\n" \
    "Raises:\n" \
    "    DistBackendError: The operation failed, or has not completed within the\n" \
    "        timeout.\n" \
    "\n" \
    "Example:\n" \
    "    >>> work = dist.barrier(async_op=True)\n" \
    "    >>> work.wait(timeout=5.0)\n" \
    "    True"

#define DLPY_DOC_WORK_IS_COMPLETED \
    "Tells whether the operation has completed, be it with an error.\n" \
    "\n" \
    "Returns:\n" \
    "    True or False.\n" \
    "\n" \
    "Example:\n" \
    "    >>> work = dist.barrier(async_op=True)\n" \
    "    >>> work.wait(), work.is_completed()\n" \
    "    (True, True)"

#define DLPY_DOC_WORK_IS_SUCCESS \
    "Tells whether the operation has completed without an error.\n" \
    "\n" \
    "Returns:\n" \
    "    True or False.\n" \
    "\n" \
    "Example:\n" \
    "    >>> work = dist.barrier(async_op=True)\n" \
    "    >>> work.wait(), work.is_success()\n" \
    "    (True, True)"

#define DLPY_DOC_WORK_EXCEPTION \
    "Returns the error of an operation that has failed.\n" \
    "\n" \
    "Returns:\n" \
    "    The exception; None if there is no error, or not yet.\n" \
    "\n" \
    "Example:\n" \
    "    >>> work = dist.barrier(async_op=True)\n" \
    "    >>> work.wait(), work.exception()\n" \
    "    (True, None)"

#define DLPY_DOC_WORK_RESULT \
    "Returns the outputs of an operation that has completed.\n" \
    "\n" \
    "Returns:\n" \
    "    A list of the arrays.\n" \
    "\n" \
    "Raises:\n" \
    "    RuntimeError: The operation has not completed.\n" \
    "    DistBackendError: It has failed.\n" \
    "\n" \
    "Example:\n" \
    "    >>> work = dist.all_reduce(np.array([rank + 1.0]), async_op=True)\n" \
    "    >>> work.wait(), work.result()\n" \
    "    (True, [array([3.])])"

#define DLPY_DOC_WORK_SOURCE_RANK \
    "Returns the rank of the sender of a message that `irecv` has received.\n" \
    "\n" \
    "Returns:\n" \
    "    The rank in the group.\n" \
    "\n" \
    "Raises:\n" \
    "    RuntimeError: The operation has not completed, or is not a receive.\n" \
    "    DistBackendError: It has failed.\n" \
    "\n" \
    "Example:\n" \
    "    >>> if rank == 0:\n" \
    "    ...     work = dist.irecv(np.zeros(1))\n" \
    "    ...     print(work.wait(), work.source_rank())\n" \
    "    ... else:\n" \
    "    ...     dist.send(np.ones(1), dst=0)\n" \
    "    True 1"

#define DLPY_DOC_WORK_SYNCHRONIZE \
    "Waits as `wait` does, and returns nothing.\n" \
    "\n" \
    "Raises:\n" \
    "    DistBackendError: The operation failed.\n" \
    "\n" \
    "Example:\n" \
    "    >>> work = dist.barrier(async_op=True)\n" \
    "    >>> work.synchronize()"

#define DLPY_DOC_WORK_GET_FUTURE \
    "Returns a future of the operation's outputs.\n" \
    "\n" \
    "Returns:\n" \
    "    A `Future`, whose value is the list of the arrays.\n" \
    "\n" \
    "Example:\n" \
    "    >>> work = dist.all_reduce(np.array([rank + 1.0]), async_op=True)\n" \
    "    >>> work.get_future().then(lambda done: float(done.value()[0][0])).wait()\n" \
    "    3.0"

#define DLPY_DOC_WORK_GET_FUTURE_RESULT \
    "Returns a future of how the operation ends.\n" \
    "\n" \
    "Returns:\n" \
    "    A `Future`, whose value is the number of torch's WorkResult: 0 for success,\n" \
    "    1 for a timeout, 2 for a failure of the communication, 100 for others.\n" \
    "\n" \
    "Example:\n" \
    "    >>> work = dist.all_reduce(np.array([rank + 1.0]), async_op=True)\n" \
    "    >>> work.get_future_result().wait()\n" \
    "    0"

#define DLPY_DOC_ALL_REDUCE \
    "Combines the arrays of all ranks element by element.\n" \
    "\n" \
    "The result replaces `tensor` on every rank, and is the same to the last bit.\n" \
    "\n" \
    "Args:\n" \
    "    tensor: The input and the output: an array of any shape, which is the same on\n" \
    "        every rank, as is its dtype.\n" \
    "    op: The reduction, a `ReduceOp`; `ReduceOp.SUM` by default.\n" \
    "    group: The group; None is the default group.\n" \
    "    async_op: If True, the call returns at once, and the arrays must not be used\n" \
    "        until the returned `Work` has completed.\n" \
    "    stream: The CUDA stream that orders an array on a device, where the library of\n" \
    "        the array does not tell it; see `cuda_stream`.\n" \
    "\n" \
    "Returns:\n" \
    "    A `Work` if `async_op` is True, otherwise None.\n" \
    "\n" \
    "Raises:\n" \
    "    TypeError: `tensor` is not an array, or `op` not a reduction.\n" \
    "    ValueError: `op` cannot reduce the dtype, `tensor` cannot be written to, or\n" \
    "        there is no default group.\n" \
    "    DistBackendError: A peer failed or did not arrive within the group's timeout, or\n" \
    "        the ranks called different operations.\n" \
    "\n" \
    "Example:\n" \
    "    >>> gradient = np.array([1.0, 2.0]) * (rank + 1)\n" \
    "    >>> dist.all_reduce(gradient)\n" \
    "    >>> gradient\n" \
    "    array([3., 6.])\n" \
    "    >>> largest = np.array([rank])\n" \
    "    >>> dist.all_reduce(largest, op=dist.ReduceOp.MAX)\n" \
    "    >>> int(largest[0])\n" \
    "    1"

#define DLPY_DOC_SCAN \
    "Combines the array of each rank with those of all ranks before it.\n" \
    "\n" \
    "On rank r, the reduction of the arrays of ranks 0 to r replaces `tensor`. With the\n" \
    "backends of the CPU the arrays are combined in the order of the ranks, wherever\n" \
    "these are, so that floating-point sums have the bits of a loop over the ranks.\n" \
    "\n" \
    "Args:\n" \
    "    tensor: The input and the output: an array of any shape, which is the same on\n" \
    "        every rank, as is its dtype.\n" \
    "    op: The reduction, a `ReduceOp`; `ReduceOp.SUM` by default; all but `AVG`.\n" \
    "    group: The group; None is the default group.\n" \
    "    async_op: If True, the call returns at once, and the arrays must not be used\n" \
    "        until the returned `Work` has completed.\n" \
    "    stream: The CUDA stream that orders an array on a device, where the library of\n" \
    "        the array does not tell it; see `cuda_stream`.\n" \
    "\n" \
    "Returns:\n" \
    "    A `Work` if `async_op` is True, otherwise None.\n" \
    "\n" \
    "Raises:\n" \
    "    TypeError: `tensor` is not an array, or `op` not a reduction.\n" \
    "    ValueError: `op` cannot reduce the dtype or is `AVG`, `tensor` cannot be written\n" \
    "        to, or there is no default group.\n" \
    "    DistBackendError: A peer failed or did not arrive within the group's timeout,\n" \
    "        the ranks called different operations, or the arrays are on a device.\n" \
    "\n" \
    "Example:\n" \
    "    >>> values = np.array([rank + 1.0, 10.0])\n" \
    "    >>> dist.scan(values)\n" \
    "    >>> values.tolist() == [[1.0, 10.0], [3.0, 20.0]][rank]\n" \
    "    True"

#define DLPY_DOC_EXSCAN \
    "Combines the arrays of all ranks before each rank.\n" \
    "\n" \
    "On rank r, the reduction of the arrays of ranks 0 to r - 1 replaces `tensor`, whose\n" \
    "own values count for later ranks only. The array of rank 0, which no rank is before,\n" \
    "stays as it is. Apart from that it is like `scan`.\n" \
    "\n" \
    "Args:\n" \
    "    tensor: The input and the output: an array of any shape, which is the same on\n" \
    "        every rank, as is its dtype.\n" \
    "    op: The reduction, a `ReduceOp`; `ReduceOp.SUM` by default; all but `AVG`.\n" \
    "    group: The group; None is the default group.\n" \
    "    async_op: If True, the call returns at once, and the arrays must not be used\n" \
    "        until the returned `Work` has completed.\n" \
    "    stream: The CUDA stream that orders an array on a device, where the library of\n" \
    "        the array does not tell it; see `cuda_stream`.\n" \
    "\n" \
    "Returns:\n" \
    "    A `Work` if `async_op` is True, otherwise None.\n" \
    "\n" \
    "Raises:\n" \
    "    TypeError: `tensor` is not an array, or `op` not a reduction.\n" \
    "    ValueError: `op` cannot reduce the dtype or is `AVG`, `tensor` cannot be written\n" \
    "        to, or there is no default group.\n" \
    "    DistBackendError: A peer failed or did not arrive within the group's timeout,\n" \
    "        the ranks called different operations, or the arrays are on a device.\n" \
    "\n" \
    "Example:\n" \
    "    >>> offset = np.array([5 + rank])  # how many rows this rank has\n" \
    "    >>> dist.exscan(offset)\n" \
    "    >>> first = int(offset[0]) if rank > 0 else 0\n" \
    "    >>> first == [0, 5][rank]\n" \
    "    True"

#define DLPY_DOC_BROADCAST \
    "Copies the array of one rank to all others.\n" \
    "\n" \
    "Args:\n" \
    "    tensor: The array to send on the source, and the array to fill on the other\n" \
    "        ranks. Its size and its dtype are the same on every rank.\n" \
    "    src: The global rank of the source.\n" \
    "    group: The group; None is the default group.\n" \
    "    async_op: If True, the call returns at once, and the arrays must not be used\n" \
    "        until the returned `Work` has completed.\n" \
    "    group_src: The rank of the source in `group`, instead of `src`.\n" \
    "    stream: The CUDA stream that orders an array on a device, where the library of\n" \
    "        the array does not tell it; see `cuda_stream`.\n" \
    "\n" \
    "Returns:\n" \
    "    A `Work` if `async_op` is True, otherwise None.\n" \
    "\n" \
    "Raises:\n" \
    "    TypeError: `tensor` is not an array.\n" \
    "    ValueError: Neither or both of `src` and `group_src` are given, the source is\n" \
    "        not a member of the group, or `tensor` cannot be written to.\n" \
    "    DistBackendError: A peer failed or did not arrive within the group's timeout, or\n" \
    "        the ranks called different operations.\n" \
    "\n" \
    "Example:\n" \
    "    >>> weights = np.array([0.5, 0.25]) if rank == 0 else np.zeros(2)\n" \
    "    >>> dist.broadcast(weights, src=0)\n" \
    "    >>> weights\n" \
    "    array([0.5 , 0.25])"

#define DLPY_DOC_REDUCE \
    "Combines the arrays of all ranks element by element, on one rank.\n" \
    "\n" \
    "Args:\n" \
    "    tensor: The input; on the destination also the output. On the other ranks it\n" \
    "        stays as it is. Its size and its dtype are the same on every rank.\n" \
    "    dst: The global rank of the destination.\n" \
    "    op: The reduction, a `ReduceOp`; `ReduceOp.SUM` by default.\n" \
    "    group: The group; None is the default group.\n" \
    "    async_op: If True, the call returns at once, and the arrays must not be used\n" \
    "        until the returned `Work` has completed.\n" \
    "    group_dst: The rank of the destination in `group`, instead of `dst`.\n" \
    "    stream: The CUDA stream that orders an array on a device, where the library of\n" \
    "        the array does not tell it; see `cuda_stream`.\n" \
    "\n" \
    "Returns:\n" \
    "    A `Work` if `async_op` is True, otherwise None.\n" \
    "\n" \
    "Raises:\n" \
    "    TypeError: `tensor` is not an array, or `op` not a reduction.\n" \
    "    ValueError: Neither or both of `dst` and `group_dst` are given, the destination\n" \
    "        is not a member of the group, or `op` cannot reduce the dtype.\n" \
    "    DistBackendError: A peer failed or did not arrive within the group's timeout, or\n" \
    "        the ranks called different operations.\n" \
    "\n" \
    "Example:\n" \
    "    >>> samples = np.array([10 * (rank + 1)])\n" \
    "    >>> dist.reduce(samples, dst=0)\n" \
    "    >>> if rank == 0:\n" \
    "    ...     print(samples)\n" \
    "    [30]"

#define DLPY_DOC_ALL_GATHER \
    "Collects the arrays of all ranks in a list, on every rank.\n" \
    "\n" \
    "The arrays may differ in size from rank to rank, if the lists of all ranks say so.\n" \
    "`all_gather_v` is another name of this function.\n" \
    "\n" \
    "Args:\n" \
    "    tensor_list: The outputs, one array for each rank of the group, in the order of\n" \
    "        the ranks, of the size and the dtype of that rank's `tensor`.\n" \
    "    tensor: The array that this rank contributes.\n" \
    "    group: The group; None is the default group.\n" \
    "    async_op: If True, the call returns at once, and the arrays must not be used\n" \
    "        until the returned `Work` has completed.\n" \
    "    stream: The CUDA stream that orders an array on a device, where the library of\n" \
    "        the array does not tell it; see `cuda_stream`.\n" \
    "\n" \
    "Returns:\n" \
    "    A `Work` if `async_op` is True, otherwise None.\n" \
    "\n" \
    "Raises:\n" \
    "    TypeError: `tensor_list` is not a list of arrays, or `tensor` is not an array.\n" \
    "    ValueError: The sizes or the dtypes of the arrays do not fit each other, or an\n" \
    "        output cannot be written to.\n" \
    "    DistBackendError: A peer failed or did not arrive within the group's timeout, or\n" \
    "        the ranks called different operations.\n" \
    "\n" \
    "Example:\n" \
    "    >>> parts = [np.zeros(2), np.zeros(2)]\n" \
    "    >>> dist.all_gather(parts, np.full(2, float(rank)))\n" \
    "    >>> parts\n" \
    "    [array([0., 0.]), array([1., 1.])]"

#define DLPY_DOC_ALL_GATHER_SINGLE \
    "Collects the arrays of all ranks in one array, on every rank.\n" \
    "\n" \
    "`all_gather_into_tensor` is another name of this function.\n" \
    "\n" \
    "Args:\n" \
    "    output_tensor: The output. For N ranks and inputs of shape (d, ...) its shape is\n" \
    "        (N * d, ...), the concatenation, or (N, d, ...), the stack.\n" \
    "    input_tensor: The array that this rank contributes, of the same shape and dtype\n" \
    "        on every rank. It may be this rank's own block of `output_tensor`.\n" \
    "    group: The group; None is the default group.\n" \
    "    async_op: If True, the call returns at once, and the arrays must not be used\n" \
    "        until the returned `Work` has completed.\n" \
    "    stream: The CUDA stream that orders an array on a device, where the library of\n" \
    "        the array does not tell it; see `cuda_stream`.\n" \
    "\n" \
    "Returns:\n" \
    "    A `Work` if `async_op` is True, otherwise None.\n" \
    "\n" \
    "Raises:\n" \
    "    TypeError: An argument is not an array.\n" \
    "    ValueError: The sizes or the dtypes of the arrays do not fit each other, or\n" \
    "        `output_tensor` cannot be written to.\n" \
    "    DistBackendError: A peer failed or did not arrive within the group's timeout, or\n" \
    "        the ranks called different operations.\n" \
    "\n" \
    "Example:\n" \
    "    >>> ranks = np.zeros(2, dtype=np.int64)\n" \
    "    >>> dist.all_gather_single(ranks, np.array([rank]))\n" \
    "    >>> ranks\n" \
    "    array([0, 1])"

#define DLPY_DOC_GATHER \
    "Collects the arrays of all ranks in a list, on one rank.\n" \
    "\n" \
    "Args:\n" \
    "    tensor: The array that this rank contributes, of the same size and dtype on\n" \
    "        every rank; see `gather_v` for sizes that differ.\n" \
    "    gather_list: On the destination the outputs, one array for each rank of the\n" \
    "        group, in the order of the ranks; None or [] on the other ranks.\n" \
    "    dst: The global rank of the destination, 0 by default.\n" \
    "    group: The group; None is the default group.\n" \
    "    async_op: If True, the call returns at once, and the arrays must not be used\n" \
    "        until the returned `Work` has completed.\n" \
    "    group_dst: The rank of the destination in `group`, instead of `dst`.\n" \
    "    stream: The CUDA stream that orders an array on a device, where the library of\n" \
    "        the array does not tell it; see `cuda_stream`.\n" \
    "\n" \
    "Returns:\n" \
    "    A `Work` if `async_op` is True, otherwise None.\n" \
    "\n" \
    "Raises:\n" \
    "    TypeError: `tensor` is not an array, or `gather_list` is not a list of arrays.\n" \
    "    ValueError: `gather_list` is missing on the destination or given elsewhere, or\n" \
    "        its arrays do not fit.\n" \
    "    DistBackendError: A peer failed or did not arrive within the group's timeout, or\n" \
    "        the ranks called different operations.\n" \
    "\n" \
    "Example:\n" \
    "    >>> parts = [np.zeros(1), np.zeros(1)] if rank == 0 else None\n" \
    "    >>> dist.gather(np.array([rank + 0.5]), parts, dst=0)\n" \
    "    >>> if rank == 0:\n" \
    "    ...     print(parts)\n" \
    "    [array([0.5]), array([1.5])]"

#define DLPY_DOC_GATHER_V \
    "Collects arrays that differ in size from rank to rank in a list, on one rank.\n" \
    "\n" \
    "Args:\n" \
    "    tensor: The array that this rank contributes, of the same dtype on every rank.\n" \
    "    gather_list: On the destination the outputs, one array for each rank of the\n" \
    "        group, of the size of that rank's `tensor`; None or [] on the other ranks.\n" \
    "    dst: The global rank of the destination, 0 by default.\n" \
    "    group: The group; None is the default group.\n" \
    "    async_op: If True, the call returns at once, and the arrays must not be used\n" \
    "        until the returned `Work` has completed.\n" \
    "    group_dst: The rank of the destination in `group`, instead of `dst`.\n" \
    "    stream: The CUDA stream that orders an array on a device, where the library of\n" \
    "        the array does not tell it; see `cuda_stream`.\n" \
    "\n" \
    "Returns:\n" \
    "    A `Work` if `async_op` is True, otherwise None.\n" \
    "\n" \
    "Raises:\n" \
    "    TypeError: `tensor` is not an array, or `gather_list` is not a list of arrays.\n" \
    "    ValueError: `gather_list` is missing on the destination or given elsewhere, or\n" \
    "        its arrays do not fit.\n" \
    "    DistBackendError: A peer failed or did not arrive within the group's timeout, or\n" \
    "        the ranks called different operations.\n" \
    "\n" \
    "Example:\n" \
    "    >>> parts = [np.zeros(1), np.zeros(2)] if rank == 0 else None\n" \
    "    >>> dist.gather_v(np.full(rank + 1, float(rank)), parts, dst=0)\n" \
    "    >>> if rank == 0:\n" \
    "    ...     print(parts)\n" \
    "    [array([0.]), array([1., 1.])]"

#define DLPY_DOC_SCATTER \
    "Gives each rank one array of a list of one rank.\n" \
    "\n" \
    "Args:\n" \
    "    tensor: The output, of the same size and dtype on every rank; see `scatter_v`\n" \
    "        for sizes that differ.\n" \
    "    scatter_list: On the source one array for each rank of the group, in the order\n" \
    "        of the ranks; None or [] on the other ranks.\n" \
    "    src: The global rank of the source, 0 by default.\n" \
    "    group: The group; None is the default group.\n" \
    "    async_op: If True, the call returns at once, and the arrays must not be used\n" \
    "        until the returned `Work` has completed.\n" \
    "    group_src: The rank of the source in `group`, instead of `src`.\n" \
    "    stream: The CUDA stream that orders an array on a device, where the library of\n" \
    "        the array does not tell it; see `cuda_stream`.\n" \
    "\n" \
    "Returns:\n" \
    "    A `Work` if `async_op` is True, otherwise None.\n" \
    "\n" \
    "Raises:\n" \
    "    TypeError: `tensor` is not an array, or `scatter_list` is not a list of arrays.\n" \
    "    ValueError: `scatter_list` is missing on the source or given elsewhere, or its\n" \
    "        arrays do not fit.\n" \
    "    DistBackendError: A peer failed or did not arrive within the group's timeout, or\n" \
    "        the ranks called different operations.\n" \
    "\n" \
    "Example:\n" \
    "    >>> parts = [np.array([10]), np.array([20])] if rank == 0 else None\n" \
    "    >>> mine = np.zeros(1, dtype=np.int64)\n" \
    "    >>> dist.scatter(mine, parts, src=0)\n" \
    "    >>> int(mine[0]) == 10 * (rank + 1)\n" \
    "    True"

#define DLPY_DOC_SCATTER_V \
    "Gives each rank one array of a list of one rank; the arrays may differ in size.\n" \
    "\n" \
    "Args:\n" \
    "    tensor: The output, of the size of this rank's array in `scatter_list`.\n" \
    "    scatter_list: On the source one array for each rank of the group, in the order\n" \
    "        of the ranks and of one dtype; None or [] on the other ranks.\n" \
    "    src: The global rank of the source, 0 by default.\n" \
    "    group: The group; None is the default group.\n" \
    "    async_op: If True, the call returns at once, and the arrays must not be used\n" \
    "        until the returned `Work` has completed.\n" \
    "    group_src: The rank of the source in `group`, instead of `src`.\n" \
    "    stream: The CUDA stream that orders an array on a device, where the library of\n" \
    "        the array does not tell it; see `cuda_stream`.\n" \
    "\n" \
    "Returns:\n" \
    "    A `Work` if `async_op` is True, otherwise None.\n" \
    "\n" \
    "Raises:\n" \
    "    TypeError: `tensor` is not an array, or `scatter_list` is not a list of arrays.\n" \
    "    ValueError: `scatter_list` is missing on the source or given elsewhere, or its\n" \
    "        arrays do not fit.\n" \
    "    DistBackendError: A peer failed or did not arrive within the group's timeout, or\n" \
    "        the ranks called different operations.\n" \
    "\n" \
    "Example:\n" \
    "    >>> parts = [np.ones(1), np.ones(2)] if rank == 0 else None\n" \
    "    >>> mine = np.zeros(rank + 1)\n" \
    "    >>> dist.scatter_v(mine, parts, src=0)\n" \
    "    >>> bool(mine.all())\n" \
    "    True"

#define DLPY_DOC_REDUCE_SCATTER \
    "Combines lists of arrays element by element, and gives each rank one result.\n" \
    "\n" \
    "Rank i gets the combination of `input_list[i]` of all ranks. The arrays of a list\n" \
    "may differ in size, on all ranks the same way. `reduce_scatter_v` is another name of\n" \
    "this function.\n" \
    "\n" \
    "Args:\n" \
    "    output: The output, of the size and the dtype of this rank's array in\n" \
    "        `input_list`.\n" \
    "    input_list: One array for each rank of the group, in the order of the ranks.\n" \
    "    op: The reduction, a `ReduceOp`; `ReduceOp.SUM` by default.\n" \
    "    group: The group; None is the default group.\n" \
    "    async_op: If True, the call returns at once, and the arrays must not be used\n" \
    "        until the returned `Work` has completed.\n" \
    "    stream: The CUDA stream that orders an array on a device, where the library of\n" \
    "        the array does not tell it; see `cuda_stream`.\n" \
    "\n" \
    "Returns:\n" \
    "    A `Work` if `async_op` is True, otherwise None.\n" \
    "\n" \
    "Raises:\n" \
    "    TypeError: `input_list` is not a list of arrays, `output` is not an array, or\n" \
    "        `op` not a reduction.\n" \
    "    ValueError: The sizes or the dtypes of the arrays do not fit each other, `op`\n" \
    "        cannot reduce the dtype, or `output` cannot be written to.\n" \
    "    DistBackendError: A peer failed or did not arrive within the group's timeout, or\n" \
    "        the ranks called different operations.\n" \
    "\n" \
    "Example:\n" \
    "    >>> mine = np.zeros(2)\n" \
    "    >>> dist.reduce_scatter(mine, [np.ones(2), np.full(2, 5.0)])\n" \
    "    >>> bool((mine == (2.0 if rank == 0 else 10.0)).all())\n" \
    "    True"

#define DLPY_DOC_REDUCE_SCATTER_SINGLE \
    "Combines arrays element by element, and gives each rank one block of the result.\n" \
    "\n" \
    "Rank i gets block i along the first dimension. `reduce_scatter_tensor` is another\n" \
    "name of this function.\n" \
    "\n" \
    "Args:\n" \
    "    output: The output, of shape (d, ...). It may be this rank's own block of\n" \
    "        `input`.\n" \
    "    input: The input, of shape (N * d, ...) or (N, d, ...) for N ranks, and of the\n" \
    "        dtype of `output`.\n" \
    "    op: The reduction, a `ReduceOp`; `ReduceOp.SUM` by default.\n" \
    "    group: The group; None is the default group.\n" \
    "    async_op: If True, the call returns at once, and the arrays must not be used\n" \
    "        until the returned `Work` has completed.\n" \
    "    stream: The CUDA stream that orders an array on a device, where the library of\n" \
    "        the array does not tell it; see `cuda_stream`.\n" \
    "\n" \
    "Returns:\n" \
    "    A `Work` if `async_op` is True, otherwise None.\n" \
    "\n" \
    "Raises:\n" \
    "    TypeError: An argument is not an array, or `op` not a reduction.\n" \
    "    ValueError: The sizes or the dtypes of the arrays do not fit each other, `op`\n" \
    "        cannot reduce the dtype, or `output` cannot be written to.\n" \
    "    DistBackendError: A peer failed or did not arrive within the group's timeout, or\n" \
    "        the ranks called different operations.\n" \
    "\n" \
    "Example:\n" \
    "    >>> mine = np.zeros(1)\n" \
    "    >>> dist.reduce_scatter_single(mine, np.array([1.0, 10.0]))\n" \
    "    >>> float(mine[0]) == (2.0 if rank == 0 else 20.0)\n" \
    "    True"

#define DLPY_DOC_ALL_TO_ALL \
    "Sends one array to each rank, and receives one from each.\n" \
    "\n" \
    "`input_tensor_list[j]` of rank i arrives in `output_tensor_list[i]` of rank j. The\n" \
    "arrays may differ in size where both sides say so.\n" \
    "\n" \
    "Args:\n" \
    "    output_tensor_list: The outputs, one array for each rank of the group.\n" \
    "    input_tensor_list: The inputs, one array for each rank of the group, all of one\n" \
    "        dtype.\n" \
    "    group: The group; None is the default group.\n" \
    "    async_op: If True, the call returns at once, and the arrays must not be used\n" \
    "        until the returned `Work` has completed.\n" \
    "    stream: The CUDA stream that orders an array on a device, where the library of\n" \
    "        the array does not tell it; see `cuda_stream`.\n" \
    "\n" \
    "Returns:\n" \
    "    A `Work` if `async_op` is True, otherwise None.\n" \
    "\n" \
    "Raises:\n" \
    "    TypeError: An argument is not a list of arrays.\n" \
    "    ValueError: The sizes or the dtypes of the arrays do not fit each other, or an\n" \
    "        output cannot be written to.\n" \
    "    DistBackendError: A peer failed or did not arrive within the group's timeout, or\n" \
    "        the ranks called different operations.\n" \
    "\n" \
    "Example:\n" \
    "    >>> outputs = [np.zeros(1, dtype=np.int64) for _ in range(2)]\n" \
    "    >>> dist.all_to_all(outputs, [np.array([10 * rank]), np.array([10 * rank + 1])])\n" \
    "    >>> [int(part[0]) for part in outputs] == [rank, 10 + rank]\n" \
    "    True"

#define DLPY_DOC_ALL_TO_ALL_SINGLE \
    "Sends one block of an array to each rank, and receives one from each.\n" \
    "\n" \
    "Blocks are cut along the first dimension: equal ones, or of the lengths that the\n" \
    "split sizes say.\n" \
    "\n" \
    "Args:\n" \
    "    output: The output; block i comes from rank i.\n" \
    "    input: The input, of the dtype of `output`; block i goes to rank i.\n" \
    "    output_split_sizes: The lengths of the blocks of `output` along the first\n" \
    "        dimension, one for each rank; None for equal blocks.\n" \
    "    input_split_sizes: The same of `input`.\n" \
    "    group: The group; None is the default group.\n" \
    "    async_op: If True, the call returns at once, and the arrays must not be used\n" \
    "        until the returned `Work` has completed.\n" \
    "    stream: The CUDA stream that orders an array on a device, where the library of\n" \
    "        the array does not tell it; see `cuda_stream`.\n" \
    "\n" \
    "Returns:\n" \
    "    A `Work` if `async_op` is True, otherwise None.\n" \
    "\n" \
    "Raises:\n" \
    "    TypeError: An argument is not an array.\n" \
    "    ValueError: The dtypes differ, the split sizes do not add up to the length of\n" \
    "        the array, or the array cannot be cut into equal blocks.\n" \
    "    DistBackendError: A peer failed or did not arrive within the group's timeout, or\n" \
    "        the ranks called different operations.\n" \
    "\n" \
    "Example:\n" \
    "    >>> mine = np.zeros(2, dtype=np.int64)\n" \
    "    >>> dist.all_to_all_single(mine, np.array([10 * rank, 10 * rank + 1]))\n" \
    "    >>> mine.tolist() == [rank, 10 + rank]\n" \
    "    True"

#define DLPY_DOC_BARRIER \
    "Waits until every rank of the group has called it.\n" \
    "\n" \
    "Args:\n" \
    "    group: The group; None is the default group.\n" \
    "    async_op: If True, the call returns at once, and the arrays must not be used\n" \
    "        until the returned `Work` has completed.\n" \
    "    device_ids: Accepted as torch does, and ignored.\n" \
    "    timeout: The time to wait, a `timedelta` or seconds; None is the group's\n" \
    "        timeout.\n" \
    "\n" \
    "Returns:\n" \
    "    A `Work` if `async_op` is True, otherwise None.\n" \
    "\n" \
    "Raises:\n" \
    "    DistBackendError: A rank failed, or did not arrive within the timeout. The\n" \
    "        message names it.\n" \
    "\n" \
    "Example:\n" \
    "    >>> dist.barrier()\n" \
    "    >>> dist.barrier(timeout=5.0)"

#define DLPY_DOC_MONITORED_BARRIER \
    "Waits until every rank has called it, and names the ranks that have not.\n" \
    "\n" \
    "The barrier fails on all ranks or on none, and a failure leaves the group usable.\n" \
    "\n" \
    "Args:\n" \
    "    group: The group; None is the default group.\n" \
    "    timeout: The time to wait, a `timedelta` or seconds; None is the group's\n" \
    "        timeout.\n" \
    "    wait_all_ranks: If True, the error names all ranks that are missing, otherwise\n" \
    "        the first one.\n" \
    "\n" \
    "Raises:\n" \
    "    DistBackendError: Some ranks did not arrive within the timeout.\n" \
    "\n" \
    "Example:\n" \
    "    >>> dist.monitored_barrier(timeout=5.0, wait_all_ranks=True)"

#define DLPY_DOC_SEND \
    "Sends an array to one rank, and returns when the array may be changed again.\n" \
    "\n" \
    "A large array, and any array to a rank of another host, has then been met by its\n" \
    "`recv`. One of up to 256 KiB (8 KiB where more than 16 ranks share a host) to a\n" \
    "rank of this host may still be on its way; if its `recv` has another dtype or too\n" \
    "small an array, the next message with that rank raises the error, or\n" \
    "`destroy_process_group()`.\n" \
    "\n" \
    "Args:\n" \
    "    tensor: The array to send.\n" \
    "    dst: The global rank of the receiver.\n" \
    "    group: The group; None is the default group.\n" \
    "    tag: A number that the matching `recv` has too, 0 or more.\n" \
    "    group_dst: The rank of the receiver in `group`, instead of `dst`.\n" \
    "    stream: The CUDA stream that orders an array on a device, where the library of\n" \
    "        the array does not tell it; see `cuda_stream`.\n" \
    "\n" \
    "Raises:\n" \
    "    TypeError: `tensor` is not an array.\n" \
    "    ValueError: The receiver is this rank itself, or is not a member of the group.\n" \
    "    DistBackendError: The receiver failed, did not call `recv` within the group's\n" \
    "        timeout, or did so with an array of another dtype or one that is too small.\n" \
    "\n" \
    "Example:\n" \
    "    >>> if rank == 0:\n" \
    "    ...     dist.send(np.array([1.0, 2.0]), dst=1)\n" \
    "    ... else:\n" \
    "    ...     values = np.zeros(2)\n" \
    "    ...     source = dist.recv(values, src=0)\n" \
    "    ...     print(source, values)\n" \
    "    0 [1. 2.]"

#define DLPY_DOC_RECV \
    "Receives an array from one rank, or from any.\n" \
    "\n" \
    "Args:\n" \
    "    tensor: The array to fill. A message may be shorter, and then fills its front.\n" \
    "    src: The global rank of the sender; if neither this nor `group_src` is given,\n" \
    "        the message may come from any rank.\n" \
    "    group: The group; None is the default group.\n" \
    "    tag: A number that the matching `send` has too.\n" \
    "    group_src: The rank of the sender in `group`, instead of `src`.\n" \
    "    stream: The CUDA stream that orders an array on a device, where the library of\n" \
    "        the array does not tell it; see `cuda_stream`.\n" \
    "\n" \
    "Returns:\n" \
    "    The global rank of the sender; -1 on a process that is not a member of the\n" \
    "    group.\n" \
    "\n" \
    "Raises:\n" \
    "    TypeError: `tensor` is not an array.\n" \
    "    ValueError: The sender is this rank itself or is not a member of the group, or\n" \
    "        `tensor` cannot be written to.\n" \
    "    DistBackendError: The sender failed, did not send within the group's timeout, or\n" \
    "        sent an array of another dtype or one that is too large.\n" \
    "\n" \
    "Example:\n" \
    "    >>> if rank == 1:\n" \
    "    ...     dist.send(np.arange(3), dst=0, tag=7)\n" \
    "    ... else:\n" \
    "    ...     values = np.zeros(3, dtype=np.int64)\n" \
    "    ...     source = dist.recv(values, tag=7)\n" \
    "    ...     print(source, values)\n" \
    "    1 [0 1 2]"

#define DLPY_DOC_ISEND \
    "Begins to send an array to one rank, without waiting.\n" \
    "\n" \
    "Args:\n" \
    "    tensor: The array to send. It must not be changed until the operation has\n" \
    "        completed.\n" \
    "    dst: The global rank of the receiver.\n" \
    "    group: The group; None is the default group.\n" \
    "    tag: A number that the matching `recv` has too.\n" \
    "    group_dst: The rank of the receiver in `group`, instead of `dst`.\n" \
    "    stream: The CUDA stream that orders an array on a device, where the library of\n" \
    "        the array does not tell it; see `cuda_stream`.\n" \
    "\n" \
    "Returns:\n" \
    "    A `Work`; None on a process that is not a member of the group.\n" \
    "\n" \
    "Raises:\n" \
    "    TypeError: `tensor` is not an array.\n" \
    "    ValueError: The receiver is this rank itself, or is not a member of the group.\n" \
    "\n" \
    "Example:\n" \
    "    >>> other = 1 - rank\n" \
    "    >>> values = np.zeros(1)\n" \
    "    >>> receive = dist.irecv(values, src=other)\n" \
    "    >>> send = dist.isend(np.array([rank + 1.0]), dst=other)\n" \
    "    >>> send.wait() and receive.wait()\n" \
    "    True\n" \
    "    >>> float(values[0]) == other + 1.0\n" \
    "    True"

#define DLPY_DOC_IRECV \
    "Begins to receive an array from one rank, or from any, without waiting.\n" \
    "\n" \
    "Args:\n" \
    "    tensor: The array to fill. It must not be used until the operation has\n" \
    "        completed.\n" \
    "    src: The global rank of the sender; if neither this nor `group_src` is given,\n" \
    "        the message may come from any rank.\n" \
    "    group: The group; None is the default group.\n" \
    "    tag: A number that the matching `send` has too.\n" \
    "    group_src: The rank of the sender in `group`, instead of `src`.\n" \
    "    stream: The CUDA stream that orders an array on a device, where the library of\n" \
    "        the array does not tell it; see `cuda_stream`.\n" \
    "\n" \
    "Returns:\n" \
    "    A `Work`, whose `source_rank()` is the rank of the sender in the group; None on\n" \
    "    a process that is not a member of the group.\n" \
    "\n" \
    "Raises:\n" \
    "    TypeError: `tensor` is not an array.\n" \
    "    ValueError: The sender is this rank itself or is not a member of the group, or\n" \
    "        `tensor` cannot be written to.\n" \
    "\n" \
    "Example:\n" \
    "    >>> values = np.zeros(2)\n" \
    "    >>> if rank == 0:\n" \
    "    ...     work = dist.irecv(values, src=1)\n" \
    "    ...     print(work.wait(), values)\n" \
    "    ... else:\n" \
    "    ...     dist.send(np.array([3.0, 4.0]), dst=0)\n" \
    "    True [3. 4.]"

#define DLPY_DOC__WINDOW_PUT \
    "Writes an array into a rank's memory.\n" \
    "\n" \
    "The array may be changed as soon as the call returns, or with `async_op` once\n" \
    "the Work has completed. Other ranks see the elements as the class says.\n" \
    "\n" \
    "Args:\n" \
    "    array: The array, of the window's dtype, with any strides.\n" \
    "    rank: The rank whose memory it is.\n" \
    "    offset: The first element.\n" \
    "    async_op: If True, the call returns a Work at once, and the array must not\n" \
    "        be changed until it has completed.\n" \
    "    timeout: How long to wait for a rank on another host; None is the group's.\n" \
    "\n" \
    "Returns:\n" \
    "    None, or with `async_op` a `Work`.\n" \
    "\n" \
    "Raises:\n" \
    "    ValueError: The elements do not lie in the memory of the rank, or the dtype\n" \
    "        is another one.\n" \
    "    DistBackendError: The rank has ended, or has closed the window.\n" \
    "\n" \
    "Example:\n" \
    "    >>> with dist.window(4) as win:\n" \
    "    ...     win.put(np.ones(2), 1 - rank, offset=2)\n" \
    "    ...     win.fence()\n" \
    "    ...     print(win.local)\n" \
    "    [0. 0. 1. 1.]"

#define DLPY_DOC__WINDOW_GET \
    "Reads a rank's memory into an array.\n" \
    "\n" \
    "Args:\n" \
    "    array: The array to fill, of the window's dtype, with any strides.\n" \
    "    rank: The rank whose memory it is.\n" \
    "    offset: The first element.\n" \
    "    async_op: If True, the call returns a Work at once, and the array must not\n" \
    "        be used until it has completed.\n" \
    "    timeout: How long to wait for a rank on another host; None is the group's.\n" \
    "\n" \
    "Returns:\n" \
    "    None, or with `async_op` a `Work`.\n" \
    "\n" \
    "Raises:\n" \
    "    ValueError: The elements do not lie in the memory of the rank, or the dtype\n" \
    "        is another one.\n" \
    "    DistBackendError: The rank has ended, or has closed the window.\n" \
    "\n" \
    "Example:\n" \
    "    >>> with dist.window(np.arange(4)) as win:\n" \
    "    ...     last = np.empty(1, int)\n" \
    "    ...     win.get(last, 1 - rank, offset=3)\n" \
    "    ...     print(last)\n" \
    "    [3]"

#define DLPY_DOC__WINDOW_ACCUMULATE \
    "Combines elements of a rank's memory with an array.\n" \
    "\n" \
    "Each element is read and written in one atomic step. The order in which the\n" \
    "updates of several ranks take effect is not fixed, and so neither are the last\n" \
    "bits of sums of floats.\n" \
    "\n" \
    "Args:\n" \
    "    array: The array, of the window's dtype, with any strides.\n" \
    "    rank: The rank whose memory it is.\n" \
    "    op: A reduction but AVG, or \"replace\".\n" \
    "    offset: The first element.\n" \
    "    async_op: If True, the call returns a Work at once, and the array must not\n" \
    "        be changed until it has completed.\n" \
    "    timeout: How long to wait for other updates; None is the group's.\n" \
    "\n" \
    "Returns:\n" \
    "    None, or with `async_op` a `Work`.\n" \
    "\n" \
    "Raises:\n" \
    "    ValueError: The elements do not lie in the memory of the rank, or the dtype\n" \
    "        is another one or has no such reduction.\n" \
    "    DistBackendError: The rank has ended, has closed the window, or another rank\n" \
    "        was killed while it was updating this memory.\n" \
    "\n" \
    "Example:\n" \
    "    >>> with dist.window(2) as win:\n" \
    "    ...     win.accumulate(np.array([1.0, 2.0]), 1 - rank)\n" \
    "    ...     win.fence()\n" \
    "    ...     print(win.local)\n" \
    "    [1. 2.]"

#define DLPY_DOC__WINDOW_UNLOCK \
    "Gives the lock of a rank's memory back.\n" \
    "\n" \
    "What this rank did to the memory has taken effect before that.\n" \
    "\n" \
    "Args:\n" \
    "    rank: The rank whose memory it is.\n" \
    "    timeout: How long to wait for a rank on another host; None is the group's.\n" \
    "\n" \
    "Raises:\n" \
    "    ValueError: This rank does not hold the lock.\n" \
    "\n" \
    "Example:\n" \
    "    >>> with dist.window(2) as win:\n" \
    "    ...     held = win.lock(1, shared=True)\n" \
    "    ...     win.unlock(1)"

#define DLPY_DOC__WINDOW_FLUSH \
    "Waits until this rank's accesses have taken effect.\n" \
    "\n" \
    "On one host they have when they return.\n" \
    "\n" \
    "Args:\n" \
    "    rank: The rank whose memory was accessed; None means all ranks.\n" \
    "    timeout: How long to wait; None is the group's.\n" \
    "\n" \
    "Raises:\n" \
    "    DistBackendError: The rank has ended.\n" \
    "\n" \
    "Example:\n" \
    "    >>> with dist.window(2) as win:\n" \
    "    ...     win.put(np.ones(2), 1)\n" \
    "    ...     win.flush(1)"

#define DLPY_DOC__WINDOW_FENCE \
    "Waits for all ranks of the group to get here.\n" \
    "\n" \
    "Afterwards each rank sees what all ranks did before. It is a barrier of the\n" \
    "group, and ordered with the group's operations.\n" \
    "\n" \
    "Args:\n" \
    "    timeout: How long to wait for the others; None is the group's.\n" \
    "\n" \
    "Raises:\n" \
    "    DistBackendError: A rank has ended, or the timeout has passed.\n" \
    "\n" \
    "Example:\n" \
    "    >>> with dist.window(1, dtype=int) as win:\n" \
    "    ...     win.put(np.array([7]), 1 - rank)\n" \
    "    ...     win.fence()\n" \
    "    ...     print(win.local)\n" \
    "    [7]"

#define DLPY_DOC__WINDOW_CLOSE \
    "Closes the window on all ranks, after a fence.\n" \
    "\n" \
    "Does nothing the second time. If the group has ended, the window is closed on\n" \
    "this rank only. Its memory is freed when neither the window nor an array over\n" \
    "its memory exists any more.\n" \
    "\n" \
    "Args:\n" \
    "    timeout: How long to wait for the others; None is the group's.\n" \
    "\n" \
    "Raises:\n" \
    "    DistBackendError: A rank has ended, or the timeout has passed; the window\n" \
    "        is closed all the same.\n" \
    "\n" \
    "Example:\n" \
    "    >>> win = dist.window(2)\n" \
    "    >>> win.close()"

#endif
