/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What is compared of the records of all ranks: an entry of fixed size for each, which
 * is sent as it is (contacts.h). */
#ifndef DISTLITE_PG_CPU_CONTACT_ENTRY_H
#define DISTLITE_PG_CPU_CONTACT_ENTRY_H

#include <stdbool.h>
#include <stdint.h>

#include "pg/cpu/health/process_table.h"
#include "pg/cpu/tcp/listener.h"

/* Hashes of the two texts of a dl_host, which are kept in their place.  Every rank
 * computes the same.  Should two hosts ever share them, the ranks of one do not reach
 * those of the other by their sockets, and are divided as others that do not
 * (pg/cpu/reach.h). */
typedef struct dl_host_id {
    uint64_t stack;
    uint64_t hint;
} dl_host_id;

static inline bool
dl_host_id_equal(const dl_host_id *left, const dl_host_id *right)
{
    return left->stack == right->stack && left->hint == right->hint;
}

typedef struct dl_contact_entry {
    uint8_t token[DL_TOKEN_SIZE];
    dl_host_id host;
    dl_process_id process;
    int32_t pid;
    uint32_t host_name; /* its offset, and that of the tail */
    uint32_t tail;      /* 0: the rank was not put */
    uint8_t tls_mode;
    bool is_refused : 1;
    bool has_loopback : 1; /* some of its addresses lead each host to itself */
    bool has_address : 1;
    bool has_socket : 1;
    bool has_problem : 1;
    uint8_t unused[2];
} dl_contact_entry;

#endif
