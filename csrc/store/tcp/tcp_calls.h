/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A TCP store's calls: each is one request, and what becomes of its reply.  They are the
 * entries of tcp_store.c's table, whose contracts are store.h's. */
#ifndef DISTLITE_STORE_TCP_TCP_CALLS_H
#define DISTLITE_STORE_TCP_TCP_CALLS_H

#include "store/store.h"
#include "store/tcp/connection_pool.h"

/* What the calls need of a TCP store; its first member. */
typedef struct dl_tcp_client {
    dl_store base;
    dl_connection_pool pool;
    bool uses_libuv; /* fixed after init */
} dl_tcp_client;

dl_status dl_tcp_set(dl_store *store, dl_bytes key, dl_bytes value,
                     dl_deadline deadline);
dl_status dl_tcp_get(dl_store *store, dl_bytes key, dl_buffer *value,
                     dl_deadline deadline);
dl_status dl_tcp_add(dl_store *store, dl_bytes key, int64_t delta, int64_t *sum,
                     dl_deadline deadline);
dl_status dl_tcp_compare_set(dl_store *store, dl_bytes key, dl_bytes expected,
                             dl_bytes desired, dl_buffer *held, dl_deadline deadline);
dl_status dl_tcp_delete_key(dl_store *store, dl_bytes key, bool *existed,
                            dl_deadline deadline);
dl_status dl_tcp_check(dl_store *store, const dl_bytes *keys, size_t count, bool *exist,
                       dl_deadline deadline);
dl_status dl_tcp_wait(dl_store *store, const dl_bytes *keys, size_t count,
                      dl_deadline deadline);
dl_status dl_tcp_num_keys(dl_store *store, int64_t *count, dl_deadline deadline);
dl_status dl_tcp_list_keys(dl_store *store,
                           dl_status (*visit)(void *context, dl_bytes key),
                           void *context, dl_deadline deadline);
dl_status dl_tcp_append(dl_store *store, dl_bytes key, dl_bytes value,
                        dl_deadline deadline);
dl_status dl_tcp_multi_get(dl_store *store, const dl_bytes *keys, size_t count,
                           dl_buffer *values, dl_deadline deadline);
dl_status dl_tcp_multi_set(dl_store *store, const dl_bytes *keys,
                           const dl_bytes *values, size_t count, dl_deadline deadline);
dl_status dl_tcp_queue_push(dl_store *store, dl_bytes key, dl_bytes value,
                            dl_deadline deadline);
dl_status dl_tcp_queue_pop(dl_store *store, dl_bytes key, bool is_blocking,
                           dl_buffer *value, dl_deadline deadline);
dl_status dl_tcp_queue_len(dl_store *store, dl_bytes key, int64_t *count,
                           dl_deadline deadline);
dl_status dl_tcp_barrier(dl_store *store, dl_bytes key, int64_t world_size,
                         dl_deadline deadline);

#endif
