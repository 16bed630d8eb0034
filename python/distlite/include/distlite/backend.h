/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A backend of distlite in C or C++.  A shared library fills in one `distlite_backend`,
 * puts its address into a capsule, and Python registers that:
 *
 *     PyCapsule_New((void *)&backend, DISTLITE_BACKEND_CAPSULE, NULL)
 *     distlite.Backend.register_backend("name", capsule)
 *
 * This header includes nothing of distlite and needs no library to link with: what
 * distlite offers comes as function pointers, in a `distlite_host`.  Structs only grow
 * at their ends, and `version` and `size` say what a side was built with.  docs/backends.md
 * has an example, examples/c_backend. */
#ifndef DISTLITE_BACKEND_H
#define DISTLITE_BACKEND_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Incremented when an existing member changes its meaning; distlite refuses a backend
 * that was built for another version. */
#define DISTLITE_BACKEND_VERSION 1
#define DISTLITE_BACKEND_CAPSULE "distlite.backend"

/* What functions return.  Any other number is taken for DISTLITE_FAILED. */
enum {
    DISTLITE_OK = 0,
    DISTLITE_TIMEOUT = 1,     /* the deadline of the call has passed */
    DISTLITE_INVALID = 7,     /* ValueError: an argument is wrong */
    DISTLITE_UNSUPPORTED = 8, /* on all ranks alike, before anything is sent */
    DISTLITE_NO_MEMORY = 9,   /* MemoryError */
    DISTLITE_PEER_LOST = 11,  /* another rank has ended */
    DISTLITE_FAILED = 12,     /* anything else */
    DISTLITE_CANCELLED = 13,  /* the group was aborted */
    DISTLITE_INTERRUPTED = 14 /* a signal, such as Ctrl-C */
};

/* Element types.  DISTLITE_OPAQUE is one that is only moved, as bytes. */
enum {
    DISTLITE_OPAQUE = 0,
    DISTLITE_BOOL = 1,
    DISTLITE_INT8 = 2,
    DISTLITE_UINT8 = 3,
    DISTLITE_INT16 = 4,
    DISTLITE_UINT16 = 5,
    DISTLITE_INT32 = 6,
    DISTLITE_UINT32 = 7,
    DISTLITE_INT64 = 8,
    DISTLITE_UINT64 = 9,
    DISTLITE_FLOAT16 = 10,
    DISTLITE_BFLOAT16 = 11,
    DISTLITE_FLOAT32 = 12,
    DISTLITE_FLOAT64 = 13,
    DISTLITE_COMPLEX64 = 14,
    DISTLITE_COMPLEX128 = 15,
    DISTLITE_FLOAT8_E4M3FN = 16,
    DISTLITE_FLOAT8_E5M2 = 17
};

/* Reductions. */
enum {
    DISTLITE_SUM = 0,
    DISTLITE_AVG = 1,
    DISTLITE_PRODUCT = 2,
    DISTLITE_MIN = 3,
    DISTLITE_MAX = 4,
    DISTLITE_BAND = 5,
    DISTLITE_BOR = 6,
    DISTLITE_BXOR = 7,
    DISTLITE_PREMUL_SUM = 8 /* each rank's array times its factor, added up */
};

/* An array in the CPU's memory, in C order and without gaps: distlite copies others into
 * such memory, and results back. */
typedef struct distlite_array {
    void *data;
    size_t count;     /* elements */
    size_t item_size; /* bytes of an element */
    int32_t dtype;
} distlite_array;

/* The peer of a receive that takes a message of any rank. */
#define DISTLITE_ANY_RANK (-1)

/* A message between two ranks. */
typedef struct distlite_message {
    distlite_array array; /* stays in place until the message has ended */
    int64_t tag;          /* from 0; a receive takes messages of its tag only */
    int32_t peer;         /* a rank, never the own one; or DISTLITE_ANY_RANK */
    int32_t is_send;
} distlite_message;

/* A call that is under way.  Opaque but for these members; valid until the function that
 * got it returns. */
typedef struct distlite_call {
    uint64_t sequence; /* number of the operation in its group, from 1; 0 in open() */
    int64_t deadline;  /* nanoseconds of CLOCK_MONOTONIC; INT64_MAX: none */
    int64_t timeout;   /* what the deadline was made from, in nanoseconds, for texts */
} distlite_call;

typedef struct distlite_store distlite_store;

/* What distlite offers.  Any thread may call these functions. */
typedef struct distlite_host {
    uint32_t version;
    uint32_t size; /* sizeof(distlite_host) of the distlite that is running */
    /* Sets the text of the error that the calling function is about to return, and
     * returns `status`. */
    int (*fail)(int status, const char *format, ...);
    /* Returns DISTLITE_OK while the call may go on; otherwise the status to return: its
     * deadline has passed, the group was aborted, or a signal has come.  Every wait has to
     * call it at least every 50 ms; it may run signal handlers of Python, so no lock may
     * be held.  For the thread of the call alone. */
    int (*check)(const distlite_call *call);
    /* The store of the group, over which its ranks may meet.  Keys are the backend's own;
     * `get` waits for the key and writes at most `capacity` bytes, and `*size` is that of
     * the whole value.  `call` gives the deadline. */
    int (*set)(distlite_store *store, const distlite_call *call, const char *key,
               const void *value, size_t size);
    int (*get)(distlite_store *store, const distlite_call *call, const char *key,
               void *value, size_t capacity, size_t *size);
    int (*add)(distlite_store *store, const distlite_call *call, const char *key,
               int64_t amount, int64_t *sum);
    int (*delete_key)(distlite_store *store, const distlite_call *call,
                      const char *key);
    /* target[i] = left[i] op right[i], for numbers of a dtype; `target` may be one of the
     * others.  AVG and PREMUL_SUM add: see `scale` and `divide`.  Sums of 16- and 8-bit
     * floating-point numbers are rounded after each step. */
    int (*reduce)(int32_t reduction, int32_t dtype, void *target, const void *left,
                  const void *right, size_t count);
    /* Before PREMUL_SUM: array[i] *= factor.  After AVG: array[i] /= divisor. */
    int (*scale)(int32_t dtype, void *array, size_t count, double factor);
    int (*divide)(int32_t dtype, void *array, size_t count, int32_t divisor);
} distlite_host;

/* The group for which a backend is opened; valid until open() returns, but for `host` and
 * `store`, which are valid until close(). */
typedef struct distlite_group {
    const distlite_host *host;
    distlite_store *store;
    const char *name;
    int32_t rank;
    int32_t world_size;
} distlite_group;

/* The backend, which has to stay in place until the process ends.  Operations of a group
 * run one after the other, in the same order on all ranks, on any thread, without the
 * interpreter's lock; messages see below.  They return when the arrays are no longer used.  After an error
 * other than DISTLITE_UNSUPPORTED no further operation of the group is begun.
 *
 * Lists have an array for each rank of the group.  All arrays of a call have one dtype.
 * Blocks of one list may differ in size: the block that a rank gives has the size that the
 * other expects.  Inputs and outputs share no memory, except that a rank's own block may
 * be the same memory in both.  Operations left NULL are told to be missing. */
typedef struct distlite_backend {
    uint32_t version; /* DISTLITE_BACKEND_VERSION */
    uint32_t size;    /* sizeof(distlite_backend) */

    /* Required.  Meets the other ranks; `*state` is what all functions get. */
    int (*open)(const distlite_group *group, const distlite_call *call, void **state);
    /* Required.  Called once, after the last operation; not in a forked child. */
    void (*close)(void *state);
    /* Optional.  Another thread asks the running operation to end soon, as check() tells
     * it too.  Must not block. */
    void (*abort)(void *state, const char *reason);

    int (*barrier)(void *state, const distlite_call *call); /* required */
    int (*broadcast)(void *state, const distlite_call *call,
                     const distlite_array *array, int32_t root);
    int (*all_reduce)(void *state, const distlite_call *call,
                      const distlite_array *array, int32_t reduction, double factor);
    /* Other ranks' arrays have to stay as they are. */
    int (*reduce)(void *state, const distlite_call *call, const distlite_array *array,
                  int32_t root, int32_t reduction, double factor);
    int (*all_gather)(void *state, const distlite_call *call,
                      const distlite_array *input, const distlite_array *outputs);
    /* `outputs`, and `inputs` of scatter, are NULL except on the root. */
    int (*gather)(void *state, const distlite_call *call, const distlite_array *input,
                  const distlite_array *outputs, int32_t root);
    int (*scatter)(void *state, const distlite_call *call, const distlite_array *inputs,
                   const distlite_array *output, int32_t root);
    int (*reduce_scatter)(void *state, const distlite_call *call,
                          const distlite_array *inputs, const distlite_array *output,
                          int32_t reduction, double factor);
    int (*all_to_all)(void *state, const distlite_call *call,
                      const distlite_array *inputs, const distlite_array *outputs);

    /* Messages: all three, or none.  A table that was built without them is complete.
     * They are not ordered with the operations above, which may run at the same time on
     * another thread; but one of these three runs at a time.  None of them waits for
     * other ranks.  A failure concerns its message only.
     *
     * post() begins to send or to receive, and `*request` is what the others get.
     * Messages of one rank with one tag arrive in the order in which they were posted,
     * and receives take them in theirs.  A message may be shorter than the array that
     * receives it, whose first elements it becomes; one that is longer is an error of the
     * receiver.  `call` has the message's deadline, and the sequence number 0.
     *
     * test() makes progress and says whether the message has ended: then, and after an
     * error, the request is gone.  `*source` is the sending rank of what was received.
     * It is called again and again, for all messages in turn.  The deadline of `call` has
     * passed, so that `get` of the store looks once and returns DISTLITE_TIMEOUT where
     * there is no key.
     *
     * cancel() gives a message up, whose request is gone afterwards: nothing reads or
     * writes its array any more. */
    int (*post)(void *state, const distlite_call *call, const distlite_message *message,
                void **request);
    int (*test)(void *state, const distlite_call *call, void *request, int32_t *is_done,
                int32_t *source);
    void (*cancel)(void *state, void *request);
} distlite_backend;

#ifdef __cplusplus
}
#endif

#endif
