/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/store_methods.h"

/* What all of these share is said once, in the documentation of Store. */

PyDoc_STRVAR(set_doc, "set($self, key, value)\n--\n\n"
                      "Stores value under key, replacing what was there.");

PyDoc_STRVAR(
    get_doc,
    "get($self, key)\n--\n\n"
    "The value of key as bytes.\n\n"
    "Waits for the key to exist; DistStoreError when the store's timeout ends.");

PyDoc_STRVAR(
    add_doc,
    "add($self, key, amount)\n--\n\n"
    "Adds amount to the counter key, which begins at 0, and returns the sum.\n\n"
    "A counter is a value like any other, in decimal text, and wraps at 64 "
    "bits.\n"
    "ValueError when the value is not a number; it then stays as it is.");

PyDoc_STRVAR(
    compare_set_doc,
    "compare_set($self, key, expected, desired)\n--\n\n"
    "Stores desired if the value equals expected, or if there is none and expected is\n"
    "empty.  Returns what key holds afterwards; expected itself if that is nothing.");

PyDoc_STRVAR(delete_key_doc, "delete_key($self, key)\n--\n\n"
                             "Removes key; whether it was there.");

PyDoc_STRVAR(append_doc,
             "append($self, key, value)\n--\n\n"
             "Adds bytes to the end of the value of key, which begins empty.");

PyDoc_STRVAR(queue_push_doc,
             "queue_push($self, key, value)\n--\n\n"
             "Puts value at the end of the queue key.\n\n"
             "Queues have names of their own: a value and a queue may share one.\n"
             "NotImplementedError where the store has no queues.");

PyDoc_STRVAR(queue_pop_doc,
             "queue_pop($self, key, block=True)\n--\n\n"
             "Takes the first value of the queue key.\n\n"
             "An empty queue is waited for until the store's timeout, then "
             "DistStoreError;\n"
             "with block=False it is a QueueEmptyError at once.");

PyDoc_STRVAR(queue_len_doc,
             "queue_len($self, key)\n--\n\n"
             "How many values are in the queue key; 0 if there is none.");

PyDoc_STRVAR(check_doc,
             "check($self, keys)\n--\n\n"
             "Whether all of keys exist, as values or as queues that are not empty.");

PyDoc_STRVAR(wait_doc, "wait($self, keys, timeout=None)\n--\n\n"
                       "Waits until all of keys exist.\n\n"
                       "timeout is a timedelta, or seconds; None is the store's own; 0 "
                       "looks once; negative\n"
                       "is for ever.  DistStoreError when it ends.");

PyDoc_STRVAR(num_keys_doc,
             "num_keys($self)\n--\n\n"
             "How many values the store holds, those it keeps for itself included.");

PyDoc_STRVAR(list_keys_doc,
             "list_keys($self)\n--\n\n"
             "The names of all values, in no order.  Bytes that are not UTF-8 come as\n"
             "escaped surrogates, which every method understands.");

PyDoc_STRVAR(multi_get_doc,
             "multi_get($self, keys)\n--\n\n"
             "The values of keys, in their order, waited for as by get().");

PyDoc_STRVAR(multi_set_doc,
             "multi_set($self, keys, values)\n--\n\n"
             "Stores each of values under the key at its place.\n\n"
             "DistStoreError, and nothing stored, when they are not equally many.");

PyDoc_STRVAR(barrier_doc, "barrier($self, key, world_size, timeout=None)\n--\n\n"
                          "Waits until world_size callers have come to this key.\n\n"
                          "A key serves once: later callers pass straight through.  "
                          "timeout is as in wait().");

PyDoc_STRVAR(has_extended_api_doc,
             "has_extended_api($self)\n--\n\n"
             "Whether append, multi_get and multi_set are one round trip each.");

PyDoc_STRVAR(
    clone_doc,
    "clone($self)\n--\n\n"
    "A second store on the same data with the same timeout: for TCPStore a connection\n"
    "of its own, for HashStore the same object.");

PyDoc_STRVAR(
    set_timeout_doc,
    "set_timeout($self, timeout)\n--\n\n"
    "Sets how long calls wait: a timedelta, or seconds; negative is for ever.");

PyDoc_STRVAR(
    close_doc,
    "close($self)\n--\n\n"
    "Ends what the store holds: connections, the master's server, its place in a\n"
    "file.  Blocked and later calls raise DistStoreError.  Harmless when repeated.");

PyDoc_STRVAR(
    lock_doc,
    "lock($self, name, timeout=None)\n--\n\n"
    "A lock between all users of the store, to be held in a with statement.\n\n"
    "timeout bounds the waiting for it and is as in wait().  A holder that dies\n"
    "keeps it: see distlite.store_lock.StoreLock.");

PyDoc_STRVAR(enter_doc, "__enter__($self)\n--\n\nThe store itself.");

PyDoc_STRVAR(exit_doc, "__exit__($self, exception_type, exception, traceback)\n--\n\n"
                       "Closes the store.");

PyDoc_STRVAR(reduce_doc,
             "__reduce__($self)\n--\n\nStores cannot be pickled: TypeError.");

#define METHOD(function) (PyCFunction)(void (*)(void))(function)
#define FLAGS (METH_METHOD | METH_FASTCALL | METH_KEYWORDS)

PyMethodDef dlpy_store_method_table[] = {
    {"set", METHOD(dlpy_store_set), FLAGS, set_doc},
    {"get", METHOD(dlpy_store_get), FLAGS, get_doc},
    {"add", METHOD(dlpy_store_add), FLAGS, add_doc},
    {"compare_set", METHOD(dlpy_store_compare_set), FLAGS, compare_set_doc},
    {"delete_key", METHOD(dlpy_store_delete_key), FLAGS, delete_key_doc},
    {"append", METHOD(dlpy_store_append), FLAGS, append_doc},
    {"queue_push", METHOD(dlpy_store_queue_push), FLAGS, queue_push_doc},
    {"queue_pop", METHOD(dlpy_store_queue_pop), FLAGS, queue_pop_doc},
    {"queue_len", METHOD(dlpy_store_queue_len), FLAGS, queue_len_doc},
    {"check", METHOD(dlpy_store_check_keys), FLAGS, check_doc},
    {"wait", METHOD(dlpy_store_wait_keys), FLAGS, wait_doc},
    {"num_keys", METHOD(dlpy_store_num_keys), FLAGS, num_keys_doc},
    {"list_keys", METHOD(dlpy_store_list_keys), FLAGS, list_keys_doc},
    {"multi_get", METHOD(dlpy_store_multi_get), FLAGS, multi_get_doc},
    {"multi_set", METHOD(dlpy_store_multi_set), FLAGS, multi_set_doc},
    {"barrier", METHOD(dlpy_store_barrier), FLAGS, barrier_doc},
    {"has_extended_api", METHOD(dlpy_store_has_extended_api), FLAGS,
     has_extended_api_doc},
    {"clone", METHOD(dlpy_store_clone), FLAGS, clone_doc},
    {"set_timeout", METHOD(dlpy_store_set_timeout), FLAGS, set_timeout_doc},
    {"close", METHOD(dlpy_store_close), FLAGS, close_doc},
    {"lock", METHOD(dlpy_store_lock), FLAGS, lock_doc},
    {"__enter__", METHOD(dlpy_store_enter), FLAGS, enter_doc},
    {"__exit__", METHOD(dlpy_store_exit), FLAGS, exit_doc},
    {"__reduce__", METHOD(dlpy_store_reduce), FLAGS, reduce_doc},
    {NULL, NULL, 0, NULL},
};
